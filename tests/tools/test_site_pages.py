"""The site has every page, every link of it leads somewhere, and what is wrong with the pages stops its building."""

from __future__ import annotations

import html.parser
import importlib
import importlib.util
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
needs_mkdocs = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("mkdocs", "material")),
    reason="MkDocs and its theme are not installed: pip install '.[site]'",
)
LOADS = {"img": "src", "link": "href", "script": "src", "iframe": "src", "source": "src"}


@pytest.fixture
def hook() -> ModuleType:
    """Return the hook, imported as MkDocs does."""
    return importlib.import_module("site_pages")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make a small repository."""
    files = {
        "README.md": "[docs](docs), [all](docs/index.md#a), [code](core/one.py), [security](SECURITY.md)",
        "ARCHITECTURE.md": "[core](core/), [deep](docs/internals/)",
        "CONTRIBUTING.md": "```\n[not](core/two.py)\n```\n[gone](core/gone.py)",
        "SECURITY.md": "[example](examples/one)",
        "CHANGELOG.md": "",
        "docs/index.md": "[up](../README.md), [outside](../../etc/passwd), [code](../core/one.py#L3), [host](https://example.com/x)",
        "docs/internals/README.md": "[one](../../core/one.py)",
        "core/one.py": "print(1)\n",
        "core/two.py": 'TEXT = """\n```\n[x](y)\n"""\n',
        "core/__pycache__/one.pyc": "",
        "examples/one/README.md": "[code](code.py)",
        "examples/one/code.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("docs", "index.md"),
        ("docs/index.md", "index.md"),
        ("docs/internals", "internals/README.md"),
        ("README.md", "project/README.md"),
        ("core/one.py", "source/core/one.py.md"),
        ("core", "source/core/index.md"),
        ("examples/one", "source/examples/one/README.md"),
        ("examples/one/README.md", "source/examples/one/README.md"),
        ("core/gone.py", None),
        ("../etc", None),
    ],
)
def test_only_paths_that_exist_in_the_repository_are_mapped_to_pages_of_the_documentation_site(
    hook: ModuleType, repository: Path, path: str, inside: str | None
) -> None:
    """A page is where its neighbours look for it, and nothing outside the repository gets into the site."""
    assert hook.site_path(path, repository) == inside


def test_links_in_pages_are_rewritten_to_page_paths_in_the_site(hook: ModuleType, repository: Path) -> None:
    """Links without a target stay for the strict build to find, as do other hosts, anchors and code."""
    index = (repository / "docs" / "index.md").read_text()
    assert hook.rewritten(index, "docs", "index.md", repository) == (
        "[up](project/README.md), [outside](../../etc/passwd), [code](source/core/one.py.md#L3), [host](https://example.com/x)"
    )
    readme = (repository / "README.md").read_text()
    assert hook.rewritten(readme, "", "project/README.md", repository) == (
        "[docs](../index.md), [all](../index.md#a), [code](../source/core/one.py.md), [security](SECURITY.md)"
    )
    contributing = (repository / "CONTRIBUTING.md").read_text()
    assert hook.rewritten(contributing, "", "project/CONTRIBUTING.md", repository) == contributing
    assert hook.rewritten("[a](#b)", "docs", "index.md", repository) == "[a](#b)"


def test_linked_files_are_copied_into_the_site(hook: ModuleType, repository: Path) -> None:
    """The pages of folders and the READMEs of examples also contain such links."""
    assert hook.linked(repository) == {
        "source/core/index.md": "core",
        "source/core/one.py.md": "core/one.py",
        "source/core/two.py.md": "core/two.py",
        "source/examples/one/README.md": "examples/one",
        "source/examples/one/code.py.md": "examples/one/code.py",
    }


def test_source_files_and_folders_linked_from_pages_are_shown_as_pages_of_the_site(
    hook: ModuleType, repository: Path
) -> None:
    """A fence in a file does not end the block that shows it; what nobody reads is not listed."""
    assert hook.shown("core/two.py", repository) == (
        '# core/two.py\n\n````python\nTEXT = """\n```\n[x](y)\n"""\n````\n'
    )
    assert hook.shown("core", repository) == "# core/\n\n* [one.py](one.py)\n* [two.py](two.py)\n"
    assert hook.shown("examples/one", repository) == "[code](code.py)"


def test_lists_and_table_cells_are_rewritten_for_python_markdown(hook: ModuleType, repository: Path) -> None:
    """Python-Markdown would make a paragraph of the first list, one level of the second, and show the cell's backslashes."""
    text = "Three:\n* a\n  goes on\n  * inner\n\n| `a \\| b` | c \\| d |\n\n```\nx\n* y\n```\n"
    assert hook.rewritten(text, "docs", "index.md", repository) == (
        "Three:\n\n* a\n  goes on\n    * inner\n\n| `a | b` | c \\| d |\n\n```\nx\n* y\n```\n"
    )


# --- the site itself ---


class Page(html.parser.HTMLParser):
    """What a page of the site loads, links to, and can be linked to by."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors = {"", "__toc_top"}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of one element."""
        found = dict(attrs)
        if found.get("id"):
            self.anchors.add(str(found["id"]))
        if tag in LOADS and found.get(LOADS[tag]):
            self.loads.append(str(found[LOADS[tag]]))
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        assert "mermaid" not in (found.get("class") or ""), "the theme fetches mermaid from a host"


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout with its own script."""
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(site.parent)}
    return subprocess.run(
        [folder / "tools" / "site.sh", "--site-dir", site], env=environment, capture_output=True, text=True, check=False
    )


@needs_mkdocs
def test_the_built_site_has_no_broken_link_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    """Each link and each anchor leads to a page of it, and a browser loads nothing from elsewhere."""
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert {"quickstart.html", "limits.html", "settings.html"} <= {path.name for path in pages}
    broken = []
    for path, page in pages.items():
        for link in [*page.loads, *page.links]:
            url = urllib.parse.urlsplit(link)
            assert not (link in page.loads and (url.scheme or url.netloc)), f"{path} loads {link}"
            if url.scheme or url.netloc or path.name == "404.html":
                continue
            there = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            there = there / "index.html" if there.is_dir() else there
            if not there.exists() or (there in pages and url.fragment not in pages[there].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


@needs_mkdocs
def test_an_error_in_a_page_stops_the_build(tmp_path: Path) -> None:
    """The errors are a broken link or anchor, a page outside the navigation, and a snippet without a test."""
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns(".git", ".venv", ".overlay", "__pycache__", ".*_cache", "build", "site", "golden")
    shutil.copytree(ROOT, copy, ignore=ignored)
    with (copy / "docs" / "concepts.md").open("a") as page:
        page.write("\n[a](../core/gone.py) [b](settings.md#no-such-place)\n\n```sh\nmake it so\n```\n")
    (copy / "docs" / "forgotten.md").write_text("# Forgotten\n")
    done = build(copy, tmp_path / "site")
    assert done.returncode != 0
    for what in ("core/gone.py", "no-such-place", "forgotten.md", "no test runs this sh block"):
        assert what in done.stderr, done.stderr

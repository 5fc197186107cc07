"""Defines a hook for MkDocs (``mkdocs.yml``) that adds pages outside docs/ to the site, and the files to which pages link.

The pages of docs/ link to the files of the repository by relative paths. On the site, each of these links leads to a page with
the text of the file, or to a page with the list of a folder's files. A link to a file that does not exist is unchanged, and
makes the strict build fail. A snippet without an entry in ``tests/snippets.toml`` makes the build fail, too
(``tools/snippets.py``).
"""

from __future__ import annotations

import logging
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from snippets import ROOT, SnippetList

ROOT_PAGES: Final = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
"""Pages in the root folder of the repository. The site has them in ``project/``."""
_LINK: Final = re.compile(r"(?<=\]\()([^)\s#]+)(?=(?:#[^)\s]*)?\))")
_FENCE: Final = re.compile(r"^(```+)[^\n]*\n.*?^\1\s*$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`]*`")
_ITEM: Final = re.compile(r"( *)([*+-]|1\.) ")
_LANGUAGES: Final = {".py": "python", ".sh": "bash", ".toml": "toml", ".yaml": "yaml", ".c": "c", ".java": "java"}
_NOT_SHOWN: Final = re.compile(r"__pycache__|\..*|.*\.egg-info|build")
_NOT_SEARCHED: Final = "---\nsearch:\n  exclude: true\n---\n"
_logger: Final = logging.getLogger("mkdocs.hooks.flintmq")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside docs/, and warn of snippets without an entry in ``tests/snippets.toml``. MkDocs calls this function
    once for each build."""
    from mkdocs.structure.files import File, InclusionLevel

    for problem in SnippetList.read().problems():
        _logger.warning(problem)
    for path in ROOT_PAGES:
        files.append(File.generated(config, f"project/{path}", content=shown(path)))
    for inside, path in linked(ROOT).items():
        content = _NOT_SEARCHED + rewritten(shown(path), base_of(path), inside)
        files.append(File.generated(config, inside, content=content, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_rest: Any) -> str:
    """Return the Markdown of a page with links that lead to pages of the site. MkDocs calls this function for each page."""
    inside = page.file.src_uri
    if inside.startswith("source/"):
        return markdown
    base = "" if inside.startswith("project/") else posixpath.join("docs", posixpath.dirname(inside))
    return rewritten(markdown, base, inside)


def site_path(path: str, root: Path = ROOT) -> str | None:
    """Return the path on the site of a file or folder of the repository; None if the file or folder does not exist.

    Args:
        path: the path of the file or folder, relative to the repository's root and normalized.
        root: the repository's folder.
    """
    there = root / path
    if path.startswith("..") or not there.exists():
        return None
    if path in ("docs", "."):
        return "index.md"
    if there.is_dir():
        path = f"{path}/README.md" if (there / "README.md").exists() else f"{path}/index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in ROOT_PAGES:
        return f"project/{path}"
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def base_of(path: str, root: Path = ROOT) -> str:
    """Return the folder to which the links in a file of the repository are relative; for a folder, the folder itself."""
    return path if (root / path).is_dir() else posixpath.dirname(path)


def rewritten(markdown: str, base: str, inside: str, root: Path = ROOT) -> str:
    """Return the Markdown of a page for the site. Links lead to pages of the site, and lists and tables have the form that
    Python-Markdown needs.

    Args:
        markdown: the page.
        base: the folder of the repository to which the page's links are relative.
        inside: the page's path on the site.
        root: the repository's folder.
    """

    def link(found: re.Match[str]) -> str:
        if "://" in found[0] or found[0].startswith("mailto:"):
            return found[0]
        target = site_path(posixpath.normpath(posixpath.join(base, found[0])), root)
        return found[0] if target is None else posixpath.relpath(target, posixpath.dirname(inside) or ".")

    return "".join(
        piece if is_code else _LINK.sub(link, "".join(_as_python_markdown(piece)))
        for piece, is_code in _pieces(markdown)
    )


def linked(root: Path = ROOT) -> dict[str, str]:
    """Return the files outside docs/ to which pages link, directly or through other files. The pages of the repository's root
    are left out. The result has paths in the repository, keyed by path on the site."""
    waiting = [*ROOT_PAGES, *(path.relative_to(root).as_posix() for path in sorted((root / "docs").rglob("*.md")))]
    found: dict[str, str] = {}
    while waiting:
        path = waiting.pop()
        for target in _links(shown(path, root)):
            goes_to = posixpath.normpath(posixpath.join(base_of(path, root), target))
            inside = site_path(goes_to, root)
            if inside is not None and inside.startswith("source/") and inside not in found:
                found[inside] = goes_to
                waiting.append(goes_to)
    return found


def shown(path: str, root: Path = ROOT) -> str:
    """Return the Markdown of a page that shows a file or folder of the repository. A Markdown file is shown unchanged, any
    other file as code, and a folder as its README or as a list of its files."""
    there = root / path
    if there.is_dir() and not (there / "README.md").exists():
        names = (f"{one.name}/" if one.is_dir() else one.name for one in sorted(there.iterdir()))
        entries = "".join(f"* [{name}]({name})\n" for name in names if not _NOT_SHOWN.fullmatch(name.rstrip("/")))
        return f"# {path}/\n\n{entries}"
    text = (there / "README.md" if there.is_dir() else there).read_text("utf-8")
    if there.is_dir() or there.suffix == ".md":
        return text
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`{3,}", text)), 3)
    return f"# {path}\n\n{fence}{_LANGUAGES.get(there.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def _as_python_markdown(text: str) -> Iterator[str]:
    """Yield the lines of a Markdown text in the form that Python-Markdown needs: with a blank line before a list, four spaces
    before an inner list, and unescaped pipes in the code of table cells."""
    before, in_list = "", False
    for line in text.splitlines(keepends=True):
        item = _ITEM.match(line)
        if item and not in_list and before.strip():
            yield "\n"
        in_list = bool(item) or (in_list and bool(line.strip()))
        before = line
        if item and len(item[1]) in (2, 3):
            line = f"    {line.lstrip(' ')}"
        elif line.startswith("|"):
            line = _CODE.sub(lambda code: code[0].replace(r"\|", "|"), line)
        yield line


def _links(markdown: str) -> Iterator[str]:
    for piece, is_code in _pieces(markdown):
        if not is_code:
            yield from _LINK.findall(piece)


def _pieces(markdown: str) -> Iterator[tuple[str, bool]]:
    """Split a Markdown page into code blocks and the text between them. Yield each piece, and whether the piece is a code
    block."""
    end = 0
    for block in _FENCE.finditer(markdown):
        yield markdown[end : block.start()], False
        yield block[0], True
        end = block.end()
    yield markdown[end:], False

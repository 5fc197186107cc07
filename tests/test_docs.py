"""Pages that are derived from the code say what it says today, and what pages show to be typed does what they say."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import attrs
import pytest

import flintmq
import flintmq.client
from flintmq.client import ConsumerSettings
from flintmq.config import BrokerConfig
from flintmq.config.loading.schema import KEYS
from flintmq.config.units import parse_quantity
from flintmq.core.errors import RefusedError
from flintmq.tests.support.effort import first
from flintmq.tests.support.extras import extras
from flintmq.tests.support.snippet_runner import PageRunner, commands, is_printed

ROOT = Path(__file__).resolve().parent.parent


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"flintmq_{name}_tool", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TOOL = _tool("docs")
SNIPPETS = _tool("snippets")
LIST = SNIPPETS.SnippetList.read()
FIRST = ("README.md", "SECURITY.md", "docs/quickstart.md", "docs/replication.md", "docs/spark-feed.md")
"""Pages that are tried by default; the others start some forty programs, and are tried with ``--slow``."""


@pytest.mark.parametrize("page", sorted(TOOL.PAGES))
def test_each_generated_documentation_page_equals_the_output_of_its_generator(page: str) -> None:
    """A key, a hook or a request code was added or changed: run ``python tools/docs.py``."""
    assert (ROOT / "docs" / page).read_text() == TOOL.PAGES[page](), "run: python tools/docs.py"


@pytest.mark.parametrize("page", first(FIRST, LIST.run))
def test_the_code_blocks_of_a_documentation_page_run_in_order(page: str, tmp_path: Path) -> None:
    """A reader copies line by line; a line that fails is the end of the acquaintance."""
    shown = [snippet for snippet in SNIPPETS.snippets(ROOT, page) if LIST.is_run(snippet)]
    with PageRunner(tmp_path, "\n".join(one.text for one in shown if one.language == "console")) as runner:
        for snippet in shown:
            try:
                runner.run(snippet.language, snippet.text)
            except Exception as error:
                error.add_note(f"{snippet}: as it stands there")
                raise


PAGES = ("README.md", "SECURITY.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")))
NAMED = re.compile(r"`([a-z_]+(?:\.[a-z_]+)+)(?:: [^`]*)?`(?: \((?:`\w+`, )?(?P<default>[\d,.]+ ?(?:%|[a-zA-Z]+)?)\))?")
OF_FILES = (".py", ".md", ".conf", ".json", ".yml", ".yaml", ".log")


@pytest.mark.parametrize("page", PAGES)
def test_each_setting_named_on_a_documentation_page_exists_and_has_the_documented_default(page: str) -> None:
    """`store.disk_full_ratio` (90 %) is a promise of the default; a key that was renamed is found nowhere."""
    sections = {key.rpartition(".")[0] for key in KEYS}
    tops = {section.partition(".")[0] for section in sections if section}
    ids = "".join((ROOT / "docs" / name).read_text() for name in ("refusals.md", "alarms.md", "log-events.md"))
    for named in NAMED.finditer((ROOT / page).read_text()):
        key, told = named[1], named["default"]
        top, leaf = key.split(".", 1)
        is_method = top == "broker" and hasattr(flintmq.Broker, leaf)
        is_else = (
            key.endswith(OF_FILES) or f"`{key}`" in ids or is_method or key == RefusedError.of_answer(1, "").reason
        )
        if top not in tops or is_else:
            continue
        assert key in KEYS or key in sections, f"{page} names a setting {key!r}"
        if key in KEYS and told is not None:
            default = KEYS[key].value_of(BrokerConfig())
            quantity = told.replace(" ", "").replace(",", "").removesuffix("%")
            promised = parse_quantity(quantity, KEYS[key].spec.unit) if isinstance(default, int) else quantity
            assert promised == default, f"{page}: {named[0]}"


def test_the_defaults_on_the_documentation_pages_of_the_client_equal_the_defaults_in_the_code() -> None:
    """A program is written by the page: retries, what is cached, how long a listener may take."""
    producer = inspect.signature(flintmq.client.Producer.__init__).parameters
    consumer = attrs.fields_dict(ConsumerSettings)
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("client.md", "client-advanced.md"))
    told = re.findall(r"`([a-z_]+)` \(([\d,]+)(?: (MiB|KiB|minutes))?\)", pages)
    told += re.findall(r"\*\*`([a-z_]+)`\*\* \(([\d,]+)()\)", pages)
    for name, number, unit in told:
        default = consumer[name].default if name in consumer else producer[name].default
        assert int(number.replace(",", "")) * {"MiB": 2**20, "KiB": 2**10, "minutes": 60, "": 1}[unit] == default, name
    assert len(told) >= 7


def test_every_snippet_listed_in_snippets_toml_exists() -> None:
    """A reason for a block that has changed would excuse nothing, or the wrong one. Missing entries stop ``tools/site.sh``."""
    stale = [problem for problem in LIST.problems() if problem.startswith("tests/snippets.toml")]
    assert stale == []


def test_the_list_of_code_blocks_that_are_not_run_gives_a_reason_for_each_block() -> None:
    """An empty reason would be a way to switch a block off."""
    assert all(len(why.split()) > 3 for reasons in LIST.not_run.values() for why in reasons.values())


def test_the_documentation_index_names_every_page() -> None:
    """A page that nothing leads to is not read; the console and ``top`` were such pages."""
    docs = ROOT / "docs"
    index = (docs / "index.md").read_text()
    named = {(docs / target.partition("#")[0]).resolve() for target in re.findall(r"\]\(([^)\s]+\.md[^)\s]*)\)", index)}
    assert sorted(set(docs.rglob("*.md")) - named - {docs / "index.md"}) == []


def test_the_readme_is_short_and_names_the_plugin_hooks_and_optional_parts_in_its_first_50_lines() -> None:
    """A visitor decides on the first screens; what is behind them has pages."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 150
    first = "\n".join(lines[:50])
    for named in (
        "CommitLogDispatcher",
        "FlushCommitLogService",
        "IndexService",
        "NettyRequestProcessor",
        "| core |",
        "| optional",
    ):
        assert named in first


def test_the_site_shows_tutorials_then_guides_then_reference_and_then_explanation() -> None:
    """A reader learns first, then has a task, then looks something up, and then asks why."""
    groups = re.findall(r"^  - ([^:\n]+):$", (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2], re.MULTILINE)
    assert groups == ["Tutorial", "How-to", "Reference", "Explanation"]
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)
    assert headings == ["Tutorials", "How-to guides", "Reference", "Explanation"]


def test_documentation_pages_outside_the_reference_section_have_at_most_3000_words() -> None:
    """A page of more than 3,000 words is not read to its end; what is looked up may be long."""
    reference = (ROOT / "mkdocs.yml").read_text().partition("  - Reference:\n")[2].partition("  - Explanation:\n")[0]
    looked_up = {name.removeprefix("project/") for name in re.findall(r"[\w/-]+\.md", reference)}
    pages = {page.relative_to(ROOT / "docs").as_posix(): page for page in (ROOT / "docs").rglob("*.md")}
    pages |= {page.name: page for page in ROOT.glob("*.md")}
    assert [
        name for name, page in pages.items() if len(page.read_text().split()) > 3_000 and name not in looked_up
    ] == []


def test_each_of_the_four_tutorials_is_run_as_a_test() -> None:
    """Who follows a tutorial that stopped working gives up."""
    for use in ("configure", "plugin", "flush", "embed"):
        assert f"docs/tutorial-{use}.md" in LIST.run


FROM_AN_INDEX = re.compile(r"pip install (?:-\S+ )*['\"]?flintmq\b(?!-)|pip install '?flintmq\[")
"""FlintMQ is on no index, where somebody else may take its name: what installs it names the folder of the checkout."""


def _texts() -> Iterator[Path]:
    for folder in (
        "client",
        "config",
        "core",
        "deploy",
        "dispatchers",
        "docs",
        "examples",
        "flush",
        "plugins",
        "programs",
        "remoting",
    ):
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py", ".txt", ".yaml"))
    yield from (ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "ARCHITECTURE.md"))


def test_documented_install_commands_install_from_the_checkout_and_not_from_a_package_index() -> None:
    """``pip install 'flintmq[top]'`` fails, or installs a stranger's package."""
    assert [str(path.relative_to(ROOT)) for path in _texts() if FROM_AN_INDEX.search(path.read_text())] == []


def test_each_optional_extra_named_in_a_documented_install_command_exists_in_the_package() -> None:
    """pip only warns of an extra that does not exist, so a renamed extra would go unnoticed."""
    known = extras().keys() | {
        "extra",
        "test",
    }  # {extra}: filled in by the program; test: of the projects that are made
    named = {
        (str(path.relative_to(ROOT)), name)
        for path in _texts()
        for found in re.findall(r"\.\[([a-z,{}]+)\]'", path.read_text())
        for name in found.strip("{}").split(",")
    }
    assert len(named) > 20
    assert [one for one in sorted(named) if one[1] not in known] == []


# --- the runner is tested, or a page could say anything ---


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[PageRunner]:
    """Yield a runner in an empty folder."""
    with PageRunner(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("language", "text", "says"),
    [
        ("console", "$ false", "ended with 1"),
        ("console", "$ echo one\ntwo", r"and not\s+two"),
        ("console", "no command", "begins with a command"),
        ("console", "$ flintmq broker --set store.size=1", "ended before it was ready"),
        ("sh", "false\ntrue", "ended with 1"),
        ("python", "raise SystemExit(3)", "ended with 3"),
    ],
)
def test_a_failing_code_block_of_a_documentation_page_fails_the_test_of_that_page(
    runner: PageRunner, language: str, text: str, says: str
) -> None:
    """A runner that passes over a failure would let every page pass."""
    with pytest.raises(AssertionError, match=says):
        runner.run(language, text)


def test_an_unknown_setting_in_a_yaml_block_fails_the_test_of_the_documentation_page(runner: PageRunner) -> None:
    """A YAML block is a broker's configuration."""
    with pytest.raises(Exception, match=r"flush\.speed"):
        runner.run("yaml", "flush: {speed: 3}")


def test_code_blocks_of_a_page_find_files_written_by_earlier_blocks(runner: PageRunner, tmp_path: Path) -> None:
    """A page shows a file, then what is done with it."""
    runner.run("yaml", "# broker.yaml\nflush: {strategy: group_commit}")
    runner.run("python", "# pack/made.py\nfrom pathlib import Path\nPath('made').touch()")
    runner.run("console", "$ cat broker.yaml\nflush: {strategy: group_commit}\n$ test -e made && echo '1 of \\\n2'\n…")
    assert (tmp_path / "pack" / "made.py").exists()


def test_a_program_in_the_docs_is_not_run_twice_if_a_command_on_the_same_page_runs_that_program(
    tmp_path: Path,
) -> None:
    """A second run of a program that stores something would print something else than the page says."""
    program = "# twice.py\nfrom pathlib import Path\nwith Path('runs').open('a') as runs:\n    runs.write('x')"
    shown = "$ python twice.py && cat runs\nx"
    with PageRunner(tmp_path, shown) as runner:
        runner.run("python", program)
        runner.run("console", shown)


def test_a_server_command_on_a_documentation_page_may_begin_with_an_environment_variable(runner: PageRunner) -> None:
    """A plugin that is a file is found by ``PYTHONPATH=.``; the server goes on until the page ends."""
    runner.run("console", "$ PYTHONPATH=. flintmq run --store ./store\nREADY …\n$ flintmq status --json\n…")


def test_a_console_code_block_is_split_into_commands_and_outputs() -> None:
    """A long command continues on the next line."""
    assert list(commands("$ one\na\n\nb\n$ two \\\n  three")) == [("one", ["a", "b"]), ("two three", [])]


@pytest.mark.parametrize(
    ("shown", "printed", "is_it"),
    [
        ("READY pid=47", "READY pid=1234", True),
        ("a   1  b", "x\na 22 b\n", True),
        ("id … end", "id 7F0000 end", True),
        ("READY", "READY now", False),
        ("a.c", "abc", False),
        ("count 1", "count one", False),
    ],
)
def test_command_output_matches_the_output_on_a_page_even_if_numbers_or_spacing_differ(
    shown: str, printed: str, is_it: bool
) -> None:
    """Such values change from run to run, and any other difference makes the page wrong."""
    assert is_printed(shown, printed) is is_it


# --- the list ---


def test_a_code_block_that_no_test_runs_is_an_error(tmp_path: Path) -> None:
    """The site is not built with such a block."""
    page = "# A\n\n```console\n$ one\n```\n\n```\ntext\n```\n\n````yaml\na: 1\n```\n````\n"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(page)
    found = list(SNIPPETS.snippets(tmp_path, "docs/index.md"))
    assert [(one.line, one.language, one.text) for one in found] == [(4, "console", "$ one"), (12, "yaml", "a: 1\n```")]

    def problems(**lists: object) -> list[str]:
        return list(SNIPPETS.SnippetList(**{"run": (), "elsewhere": {}, "not_run": {}, **lists}).problems(tmp_path))

    assert [problem.partition(": ")[0] for problem in problems()] == ["docs/index.md:4", "docs/index.md:12"]
    assert problems(run=("docs/index.md",)) == []
    assert problems(not_run={"docs/index.md": {"$ one": "needs a second machine", "a: 1": "half a file"}}) == []
    assert "'gone'" in problems(run=("docs/index.md",), not_run={"docs/index.md": {"gone": "because"}})[0]
    assert problems(run=("docs/index.md",), elsewhere={"docs/limits.md": "tests/test_b.py"}) == [
        "tests/snippets.toml: there is no docs/limits.md",
        "tests/snippets.toml: there is no tests/test_b.py",
    ]


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    """A version whose changes nobody wrote down is a surprise to those who install it."""
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == flintmq.__version__

"""What docs, examples and new plugins import is public."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import flintmq.protocol
from flintmq.core.broker import api

ROOT = Path(__file__).resolve().parent.parent

IMPORT = re.compile(
    r"^[ \t]*(?:>>> )?from (flintmq(?:\.\w+)*) import (\([^)]*\)|[^\n(#]+)|^[ \t]*(?:>>> )?import (flintmq(?:\.\w+)*)\b",
    re.M,
)
BLOCK = re.compile(r"^```py(?:thon)?\b.*?\n(.*?)^```", re.M | re.S)
ROW = re.compile(r"^\| `(flintmq[\w.]*)` \| (.*) \|$", re.M)


def public() -> dict[str, set[str]]:
    """Return the public modules of docs/compatibility.md with their names; none where these are listed elsewhere."""
    rows = {module: set(re.findall(r"`(\w+)`", names)) for module, names in ROW.findall(page("compatibility.md"))}
    rows["flintmq"] |= rows["flintmq.client"]
    rows["flintmq.client.sync"] = rows["flintmq.client"] - {"ClientInstance", "RemotingClient"}
    tools: dict[str, set[str]] = {f"flintmq.testing.{module}": set() for module in rows["flintmq.testing"]}
    # The names of these are in their own __all__, or on pages of their own.
    return (
        rows
        | tools
        | {
            name: set()
            for name in ("flintmq.core.kernel.hookspecs", "flintmq.core.kernel.ports", "flintmq.plugins.spark")
        }
        | {"flintmq.protocol": set(flintmq.protocol.__all__)}
    )


def page(name: str) -> str:
    """Return a page of the documentation."""
    return (ROOT / "docs" / name).read_text()


def shown() -> Iterator[tuple[str, str]]:
    """Yield each text of Python that users are given to copy, with where it stands."""
    pages = [
        ROOT / "README.md",
        ROOT / "SECURITY.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
    for path in pages:
        for block in BLOCK.findall(path.read_text()):
            yield str(path.relative_to(ROOT)), block
    for path in (ROOT / "examples").rglob("*.py"):
        yield str(path.relative_to(ROOT)), path.read_text()
    for path in (ROOT / "programs" / "scaffold" / "templates").glob("*.txt"):
        yield str(path.relative_to(ROOT)), path.read_text()


def imported(text: str) -> Iterator[tuple[str, str]]:
    """Yield what a text imports from FlintMQ: module and name; the name is empty for a whole module."""
    for module, names, whole in IMPORT.findall(text):
        if whole:
            yield whole, ""
        for name in re.sub(r"#[^\n]*", "", names).strip("() \n").split(","):
            if name.strip():
                yield module, name.split()[0]


def private() -> dict[str, set[str]]:
    """Return what is imported and not public, with the places that do it."""
    rows = public()
    found: dict[str, set[str]] = defaultdict(set)
    for place, text in shown():
        for module, name in imported(text):
            whole = f"{module}.{name}" if name else module
            is_public = module in rows and (not name or not rows[module] or name in rows[module])
            if not is_public and whole not in rows:
                found[whole].add(place)
    return dict(found)


def test_documentation_and_examples_and_plugin_templates_import_only_public_names() -> None:
    """compatibility.md lets every other module change with any version, and with it the programs that copied the import."""
    found = {name: sorted(places) for name, places in private().items()}
    assert found == {}, "import it from a public module, or make it public in docs/compatibility.md"


def test_the_compatibility_page_lists_every_name_of_the_broker_api_as_public() -> None:
    """A listener and a change of the role need no other names."""
    assert public()["flintmq.core.broker.api"] == set(api.__all__)
    assert {"ASYNC_MASTER", "MASTER_ID", "SLAVE", "SYNC_MASTER", "Peer", "Sender"} <= set(api.__all__)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from flintmq.core.store import a, b as c  # why", {("flintmq.core.store", "a"), ("flintmq.core.store", "b")}),
        ("from flintmq.x import (\n    a,  # one, two\n    b,\n)\n", {("flintmq.x", "a"), ("flintmq.x", "b")}),
        ("    import flintmq.core.store as s", {("flintmq.core.store", "")}),
        (">>> from flintmq import Broker", {("flintmq", "Broker")}),
        ("# words from flintmq import nothing\nimport flintmqx\n", set()),
    ],
)
def test_the_check_for_private_imports_recognizes_every_form_of_import_statement(
    text: str, names: set[tuple[str, str]]
) -> None:
    """Pages and templates use each of these forms, and an import that is not found is not checked."""
    assert set(imported(text)) == names

"""The pages about the client and the commands are made of docstrings: what is lost on the way is missing on the page only."""

from __future__ import annotations

import importlib
import re
from types import ModuleType

import pytest

from flintmq.programs.cli.commands import COMMANDS
from flintmq.remoting import client as library


@pytest.fixture
def reference() -> ModuleType:
    """Return the tool."""
    return importlib.import_module("reference")


def test_every_name_has_a_chapter(reference: ModuleType) -> None:
    """With all methods, those that are inherited among them, and no address of this process."""
    page = reference.client_reference()
    assert re.findall(r"^## `(\w+)`$", page, re.M) == library.__all__
    assert "### `TransactionProducer.send()`" in page
    assert not re.search(r"0x[0-9a-f]{4}|:class:|<function", page)


def test_every_command_has_a_chapter(reference: ModuleType) -> None:
    """Those of groups as well; options that sign are told once."""
    page = reference.cli_reference()
    chapters = re.findall(r"^## `flintmq (.+)`$", page, re.M)
    assert set(COMMANDS) <= set(chapters)
    assert {"store verify", "topics create", "config init"} <= set(chapters)
    assert len(re.findall(r"^\| `--access-key", page, re.M)) == 1


def test_a_docstring_becomes_markdown(reference: ModuleType) -> None:
    """Sections become lists, blocks code, and roles names."""
    doc = "Send it.\n\nAs :class:`~a.b.C` does::\n\n    one\n\n    two\n\nArgs:\n    it: what\n        to send.\n"
    assert "\n".join(reference._markdown(doc)).split("\n") == [
        "Send it.", "", "As `C` does:", "", "```text", "one", "", "two", "```", "",
        "**Args**", "", "* `it`: what", "  to send.",
    ]  # fmt: skip

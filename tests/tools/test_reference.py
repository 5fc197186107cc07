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


def test_the_reference_has_a_chapter_for_every_public_name(reference: ModuleType) -> None:
    """Inherited methods are listed as well, and no address of an object in memory appears."""
    page = reference.client_reference()
    assert re.findall(r"^## `(\w+)`$", page, re.M) == library.__all__
    assert "### `TransactionProducer.send()`" in page
    assert not re.search(r"0x[0-9a-f]{4}|:class:|<function", page)


def test_the_reference_has_a_chapter_for_every_command(reference: ModuleType) -> None:
    """Subcommands have chapters as well, and options for signing requests are described once."""
    page = reference.cli_reference()
    chapters = re.findall(r"^## `flintmq (.+)`$", page, re.M)
    assert set(COMMANDS) <= set(chapters)
    assert {"store verify", "topics create", "config init"} <= set(chapters)
    assert len(re.findall(r"^\| `--access-key", page, re.M)) == 1


def test_a_docstring_is_converted_to_markdown(reference: ModuleType) -> None:
    """Sections become lists, blocks code, and roles names."""
    doc = "Send it.\n\nAs :class:`~a.b.C` does::\n\n    one\n\n    two\n\nArgs:\n    it: what\n        to send.\n"
    assert "\n".join(reference._markdown(doc)).split("\n") == [
        "Send it.", "", "As `C` does:", "", "```text", "one", "", "two", "```", "",
        "**Args**", "", "* `it`: what", "  to send.",
    ]  # fmt: skip

"""What docs/console.md shows works as it stands, but for what is installed from the network."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")

from flintmq.tests.support.snippet_runner import PageRunner

PAGE = Path(__file__).resolve().parents[3] / "docs" / "console.md"


def test_the_commands_on_the_documentation_page_of_the_console_print_the_documented_output(tmp_path: Path) -> None:
    """The first page that somebody copies from."""
    blocks = [part.partition("```")[0] for part in PAGE.read_text().split("```console\n")[1:]]
    install, _, first = blocks[0].partition("\n")
    assert install.startswith("$ pip install")
    with PageRunner(tmp_path) as runner:
        for block in (first, *blocks[1:]):
            runner.run("console", block)

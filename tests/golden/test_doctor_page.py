"""What docs/doctor.md prints is what the doctor says of that store: a page whose figures nobody compares is soon a story."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.tests.support.snippet_runner import PageRunner

from .test_crash_recovery import crashed

ROOT = Path(str(flintmq.__file__)).resolve().parent
PAGE = "docs/doctor.md"


@pytest.mark.slow
def test_the_store_inspection_commands_print_the_output_that_their_documentation_page_shows(
    crash: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store of a killed broker of RocketMQ's, four bytes of which were overwritten; the pair to compare are copies."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    snippets = importlib.import_module("snippets")
    crashed(crash, "second-file-bad", tmp_path / "store")
    for copy in ("master", "slave"):
        crashed(crash, "kill9", tmp_path / copy)
    with PageRunner(tmp_path) as runner:
        for snippet in snippets.snippets(ROOT, PAGE):
            try:
                runner.run(snippet.language, snippet.text)
            except AssertionError as error:
                error.add_note(f"{snippet}: as it stands there")
                raise

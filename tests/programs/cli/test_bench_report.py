"""``bench report`` as it is typed: tables for people, JSON for scripts, and a name for a file that holds no report."""

from __future__ import annotations

import json
from pathlib import Path

from flintmq.tests.support.bench_reports import a_report

from .conftest import RunCommand


def test_bench_report_prints_json_and_a_table(cli: RunCommand, tmp_path: Path) -> None:
    """Scripts read the lines of JSON, people the table."""
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(json.dumps(a_report(100)))
    second.write_text(json.dumps(a_report(150)))
    found = json.loads(cli("bench", "report", first, second, "--json").out)
    assert found["same_machine"]
    assert {one["strategy"] for one in found["figures"]} == {"group_commit"}
    assert "B / A" in cli("bench", "report", first, second).out


def test_the_command_bench_report_refuses_an_invalid_or_missing_file(cli: RunCommand, tmp_path: Path) -> None:
    """A file that holds no report is named, with the exit code of a failure or of wrong usage."""
    (tmp_path / "a.json").write_text("{}")
    assert cli("bench", "report", tmp_path / "a.json", tmp_path / "a.json").code == 1
    assert cli("bench", "report", tmp_path / "none.json", tmp_path / "a.json").code == 2
    (tmp_path / "b.json").write_text("{")
    assert cli("bench", "report", tmp_path / "b.json", tmp_path / "a.json").code == 2

"""``tools/readme_numbers.py``: the README's numbers are medians of several runs, with intervals, and stand where they stood."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def numbers() -> ModuleType:
    """The tool as a module."""
    return importlib.import_module("readme_numbers")


def run_with(numbers: ModuleType, factor: float) -> dict[str, dict[str, Any]]:
    """A run in which FlintMQ's figures are some factor of RocketMQ's, which are 200."""
    return {
        f"{line.flush} {row}": {line.key: {"ours": 200.0 * factor, "theirs": 200.0}}
        | {other.key: {"ours": 200.0 * factor, "theirs": 200.0} for other in numbers.LINES}
        for line in numbers.LINES
        for row in line.rows
    }


def test_each_row_of_the_readme_table_shows_a_median_ratio_and_a_95_percent_interval(
    numbers: ModuleType,
) -> None:
    """One lucky run, as the README once had, is seen in neither."""
    lines = numbers.table([run_with(numbers, factor) for factor in (0.5, 0.52, 0.51, 0.5, 0.2)])
    assert lines[0] == numbers.HEADER
    assert len(lines) == 2 + len(numbers.LINES)
    first = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert first[:5] == ["send, 4 connections × 64 in flight", "CPU µs", "100", "200", "0.50"]
    low, high = map(float, first[5].split(" to "))
    assert low < 0.36 < 0.5 < high


def test_a_readme_row_that_summarizes_several_benchmarks_shows_a_ratio_but_no_message_rate(
    numbers: ModuleType,
) -> None:
    """Rates of different loads have no mean that says anything."""
    line = next(line for line in numbers.table([run_with(numbers, 2.0)] * 3) if "SYNC_FLUSH" in line)
    assert [cell.strip() for cell in line.strip("|").split("|")][1:] == ["messages/s", "", "", "2.00", "2.00 to 2.00"]


def test_a_benchmark_run_without_a_result_for_a_readme_row_is_an_error(numbers: ModuleType) -> None:
    """A row that could not be measured must not vanish from the median."""
    broken = run_with(numbers, 1.0)
    del broken["async start"]["start_ms"]
    with pytest.raises(ValueError, match="a run has no start_ms of the row start"):
        numbers.table([run_with(numbers, 1.0), broken, run_with(numbers, 1.0)])


def test_writing_the_table_of_numbers_leaves_the_rest_of_the_readme_unchanged(numbers: ModuleType) -> None:
    """The option ``--write`` must leave the rest of the README as it is."""
    before = (ROOT / "README.md").read_text()
    lines = numbers.table([run_with(numbers, 0.5)] * 3)
    after = numbers.with_table(before, lines)
    assert "\n".join(lines) in after
    assert numbers.with_table(after, lines) == after
    assert after.partition("| row |")[0] == before.partition("| row |")[0]
    assert after.rpartition("|\n\n")[2] == before.rpartition("|\n\n")[2]
    with pytest.raises(ValueError, match=r"README\.md has no table"):
        numbers.with_table("no table\n", lines)


@pytest.mark.parametrize("words", [["--runs", "2"], ["--runs", "3"]])
def test_measuring_readme_numbers_is_refused_with_fewer_than_3_runs_or_on_a_busy_machine(
    numbers: ModuleType, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers that will be doubted are not worth an hour."""
    monkeypatch.setattr(numbers.os, "getloadavg", lambda: (4.0, 4.0, 4.0))
    with pytest.raises(SystemExit):
        numbers.main(words)
    assert ("3 at least" if words[1] == "2" else "its load is 4.00, above 0.3") in capsys.readouterr().err


def test_every_row_of_the_readme_table_exists_in_the_benchmark_comparison(numbers: ModuleType) -> None:
    """A name that the comparison does not know would end an hour of measuring at its end."""
    known = {spec.name for spec in importlib.import_module("against_java.versus").ROWS}
    assert {row for line in numbers.LINES for row in line.rows} <= known

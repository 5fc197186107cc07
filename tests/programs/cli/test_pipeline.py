"""``flintmq pipeline`` without a Spark: what it says before one is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flintmq.programs.cli.exits import ExitCode
from flintmq.programs.cli.main import run_command_line

GOOD = "source: {path: ./store, subscribe: Orders}\nsinks: [{format: console}]\n"


def pipeline(folder: Path, text: str) -> str:
    file = folder / "p.yaml"
    file.write_text(text)
    return str(file)


@pytest.fixture
def without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were not installed."""
    monkeypatch.setitem(sys.modules, "pyspark", None)


@pytest.mark.usefixtures("without_pyspark")
def test_the_pipeline_command_without_pyspark_names_the_extra_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker runs without it; whoever wants a pipeline must learn how to get one, not see a traceback."""
    for words in (("run", pipeline(tmp_path, GOOD)), ("demo",)):
        assert run_command_line(["pipeline", *words]) == ExitCode.USAGE
        assert "a pipeline needs pyspark: pip install '.[spark]'" in capsys.readouterr().err


@pytest.mark.usefixtures("without_pyspark")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD.replace("console", "consle"), "p.yaml:2: 'sinks[0].format' must be one of"),
        (GOOD.replace("subscribe", "subscrib"), "p.yaml:1: 'source.subscrib': unknown option"),
        (GOOD.replace("path: ./store, ", ""), "p.yaml:1: 'source': a read needs exactly one source"),
        (GOOD.replace("Orders", "Orders, maxBytesPerTrigger: much"), "p.yaml:1: 'source.maxBytesPerTrigger'"),
    ],
)
def test_an_error_in_a_pipeline_file_is_reported_before_a_spark_session_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    """Before ten seconds of a session's start, with the line, and exit code 2."""
    assert run_command_line(["pipeline", "run", pipeline(tmp_path, text), "--dry-run"]) == ExitCode.USAGE
    assert says in capsys.readouterr().err


@pytest.mark.usefixtures("without_pyspark")
def test_a_missing_pipeline_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped path is the commonest mistake of all."""
    assert run_command_line(["pipeline", "run", str(tmp_path / "nope.yaml")]) == ExitCode.USAGE
    assert "nope.yaml: the file cannot be read" in capsys.readouterr().err


@pytest.mark.usefixtures("without_pyspark")
def test_a_value_set_on_the_command_line_overrides_the_value_of_the_pipeline_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--set changes a value, and is named where it is wrong."""
    words = ["pipeline", "run", pipeline(tmp_path, GOOD), "--set", "source.pullTimeoutMs=soon"]
    assert run_command_line(words) == ExitCode.USAGE
    assert "command line: 'source.pullTimeoutMs'" in capsys.readouterr().err

"""Mistakes on the command line of ``flintmq spark offsets``; tests/plugins/spark has what it does with checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from flintmq.programs.cli.exits import CommandError
from flintmq.programs.cli.main import run_command_line
from flintmq.programs.cli.spark_offsets import _source


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--reset", "earliest"), "--reset needs --source"),
        (("--move", "wire"), "--move needs --source"),
        (("--reset", "earliest", "--move", "wire"), "either --reset or --move"),
        (("--source", "nonsense"), "OPTION=VALUE, not 'nonsense'"),
    ],
)
def test_the_command_spark_offsets_exits_with_code_2_if_its_options_are_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    """Before anything is opened."""
    assert run_command_line(["spark", "offsets", str(tmp_path), *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_command_argument_is_split_at_its_first_equals_sign_into_a_spark_option_and_its_value() -> None:
    """A value may hold an equals sign itself."""
    assert _source(["path=/data/store", 'queues={"a": [0]}']) == {"path": "/data/store", "queues": '{"a": [0]}'}
    with pytest.raises(CommandError, match="OPTION=VALUE"):
        _source(["=x"])

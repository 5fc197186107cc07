"""A FlintMQ in a process of its own: what it says when it cannot start, and how it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.programs.cli.child import ServedChild
from flintmq.programs.cli.exits import CommandError, ExitCode


def test_a_failed_start_of_a_child_broker_raises_its_error_with_its_exit_code() -> None:
    """A measurement that cannot begin must tell a wrong setting from a broken store."""
    with pytest.raises(CommandError, match=r"the broker did not start: .* did you mean 'listen.port'") as raised:
        ServedChild(["--set", "listen.prt=1"]).__enter__()
    assert raised.value.code == ExitCode.USAGE


def test_a_child_broker_that_is_not_ready_in_time_is_stopped(tmp_path: Path, small: list[str]) -> None:
    """A caller that waits for READY forever would hold up a whole series."""
    with pytest.raises(CommandError, match="was not ready within 0 s"):
        ServedChild(["--store", str(tmp_path), *small], start_timeout_s=0).__enter__()


def test_the_exit_code_of_a_child_broker_can_be_read_after_the_broker_has_stopped(
    tmp_path: Path, small: list[str]
) -> None:
    """The demo and the measurements look at the exit code: a stop that is not in order is a finding."""
    with ServedChild(["--store", str(tmp_path / "s"), *small]) as child:
        assert child.exit_code is None
        assert child.broker.partition(":")[2].isdecimal()
    assert (child.exit_code, child.errors) == (0, "")

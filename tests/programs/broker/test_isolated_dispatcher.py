"""What an optional dispatcher raises is counted for its plugin, and the store goes on; an essential one stops it."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from flintmq.core.errors import StoreFencedError, StoreFullError
from flintmq.core.kernel.failures import Failures, Part
from flintmq.core.kernel.plugin_info import PluginOrigin, PluginSource
from flintmq.core.kernel.ports import RecordBatch
from flintmq.programs.broker.isolated_dispatcher import IsolatedDispatcher
from flintmq.testing.dispatcher_kit import sample_batch

MINE = PluginOrigin("mine", PluginSource.PROGRAM)


@pytest.fixture
def part() -> Part:
    return Failures(3).of(MINE, "flintmq_dispatchers", "dispatcher 'd'", optional=True)


def test_sys_exit_in_a_plugin_dispatcher_counts_as_a_failure_of_the_plugin(part: Part) -> None:
    """It must not end the broker."""
    dispatcher: Any = types.SimpleNamespace(dispatch=sys.exit)
    IsolatedDispatcher(dispatcher, part, essential=False).dispatch(sample_batch(0))
    assert part.errors == 1
    with pytest.raises(RuntimeError, match="dispatch called sys"):
        IsolatedDispatcher(dispatcher, part, essential=True).dispatch(sample_batch(0))


def test_status_shows_why_a_failing_dispatcher_was_switched_off(part: Part) -> None:
    calls: list[object] = []

    def fails(batch: object) -> None:
        calls.append(batch)
        raise OSError("disk of its own is full")

    dispatcher = IsolatedDispatcher(types.SimpleNamespace(dispatch=fails), part, essential=False)  # type: ignore[arg-type]
    for _ in range(3):
        assert part.why_off == ""
        dispatcher.dispatch(sample_batch(0))
    assert part.why_off
    assert part.why_off == (
        "failed 3 times, the last time in dispatcher 'd' (dispatch): OSError: disk of its own is full"
    )
    dispatcher.dispatch(sample_batch(0))
    assert len(calls) == 3


class Recorder:
    """A dispatcher that notes, and raises when told to."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.error: Exception | None = None
        self.closed = False

    def dispatch(self, batch: RecordBatch) -> None:
        self.batches.append(len(batch))
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.closed = True


def test_errors_of_an_essential_dispatcher_are_raised_and_never_disable_the_dispatcher() -> None:
    part = Failures(1).of(MINE, "flintmq_dispatchers", "dispatcher 'd'", optional=False)
    recorder = Recorder()
    isolated = IsolatedDispatcher(recorder, part, essential=True)
    recorder.error = ValueError("no unit")
    for _ in range(3):
        with pytest.raises(ValueError, match="no unit"):
            isolated.dispatch(sample_batch(0))
    assert (part.errors, part.why_off) == (3, "")


@pytest.mark.parametrize("error", [StoreFullError("full"), StoreFencedError("fenced")])
def test_store_errors_in_a_plugin_dispatcher_are_raised_to_the_caller(error: Exception, part: Part) -> None:
    """Dispatch stands still on a full disk and goes on later: isolating would lose the batch."""
    recorder = Recorder()
    isolated = IsolatedDispatcher(recorder, part, essential=False)
    recorder.error = error
    for _ in range(6):
        with pytest.raises(type(error)):
            isolated.dispatch(sample_batch(0))
    assert (part.errors, part.why_off) == (0, "")


def test_closing_the_dispatcher_of_a_plugin_never_raises_an_error_of_the_plugin(part: Part) -> None:
    recorder = Recorder()
    isolated = IsolatedDispatcher(recorder, part, essential=False)
    isolated.close()
    assert recorder.closed
    recorder.close = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    isolated.close()
    assert part.errors == 1
    IsolatedDispatcher(type("NoClose", (), {"dispatch": print})(), part, essential=False).close()

"""What a third party's dispatcher or index builder raises stays its own."""

from __future__ import annotations

import types
from typing import Any

import pytest

from flintmq.core.errors import RefusedError, StoreFencedError, StoreFullError
from flintmq.core.kernel.failures import Failures, Part
from flintmq.core.kernel.isolation import Guarded, IsolatedDispatcher
from flintmq.core.kernel.plugin_info import PluginOrigin, PluginSource
from flintmq.core.kernel.plugin_shapes import INDEX_BUILDER
from flintmq.core.kernel.ports import RecordBatch, SupportsCommitted, SupportsQuerySteps, SupportsTruncate
from flintmq.testing.dispatcher_kit import sample_batch

MINE = PluginOrigin("mine", PluginSource.PROGRAM)


@pytest.fixture
def part() -> Part:
    return Failures(3).of(MINE, "flintmq_dispatchers", "dispatcher 'd'", optional=True)


def exits(*_arguments: object) -> None:
    raise SystemExit(3)


def test_sys_exit_in_a_plugin_is_counted_as_a_failure(part: Part) -> None:
    """It must not end the broker."""
    dispatcher: Any = types.SimpleNamespace(dispatch=exits)
    IsolatedDispatcher(dispatcher, part, essential=False).dispatch(sample_batch(0))
    assert part.errors == 1
    with pytest.raises(RuntimeError, match="dispatch called sys"):
        IsolatedDispatcher(dispatcher, part, essential=True).dispatch(sample_batch(0))
    with pytest.raises(RuntimeError, match="dispatch called sys"):
        Guarded(dispatcher, INDEX_BUILDER, part, "somebody").dispatch(sample_batch(0))


def test_the_reason_why_a_dispatcher_is_off_names_its_last_error(part: Part) -> None:
    calls: list[object] = []

    def fails(batch: object) -> None:
        calls.append(batch)
        raise OSError("disk of its own is full")

    dispatcher = IsolatedDispatcher(types.SimpleNamespace(dispatch=fails), part, essential=False)  # type: ignore[arg-type]
    for _ in range(3):
        assert part.why_off == ""
        dispatcher.dispatch(sample_batch(0))
    assert part.is_off
    assert part.why_off == (
        "failed 3 times, the last time in dispatcher 'd' (dispatch): OSError: disk of its own is full"
    )
    dispatcher.dispatch(sample_batch(0))
    assert len(calls) == 3


class Builder:
    """An index builder that fails in ``dispatch`` and refuses queries."""

    size = 7

    def dispatch(self, batch: object) -> None:
        raise ValueError("no")

    def query(self) -> None:
        raise RefusedError(1, "not now", reason="a.b")

    def committed(self) -> int:
        return 17

    def query_steps(self) -> None: ...

    def close(self) -> None:
        raise OSError("close")


def test_a_guarded_object_counts_failures_once_but_no_refusals(part: Part) -> None:
    """The dispatcher `index` calls the index builder: one failure, not two."""
    builder: Any = Guarded(Builder(), INDEX_BUILDER, part, "somebody")
    IsolatedDispatcher(builder, part, essential=False).dispatch(sample_batch(0))
    assert part.errors == 1
    with pytest.raises(RefusedError):
        builder.query()
    assert part.errors == 1
    assert builder.close() is None
    assert part.errors == 2


def test_a_guarded_object_has_the_optional_methods_of_its_object(part: Part) -> None:
    builder: Any = Guarded(Builder(), INDEX_BUILDER, part, "somebody")
    assert (builder.size, builder.committed()) == (7, 17)
    assert isinstance(builder, SupportsCommitted)
    assert isinstance(builder, SupportsQuerySteps)
    assert not isinstance(builder, SupportsTruncate)


def test_an_index_builder_that_is_off_is_not_called(part: Part) -> None:
    builder: Any = Guarded(Builder(), INDEX_BUILDER, part, "somebody")
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            builder.dispatch(sample_batch(0))
    assert builder.dispatch(sample_batch(0)) is None
    assert part.errors == 3


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


def test_an_essential_dispatcher_raises_its_errors_and_is_never_switched_off() -> None:
    part = Failures(1).of(MINE, "flintmq_dispatchers", "dispatcher 'd'", optional=False)
    recorder = Recorder()
    isolated = IsolatedDispatcher(recorder, part, essential=True)
    recorder.error = ValueError("no unit")
    for _ in range(3):
        with pytest.raises(ValueError, match="no unit"):
            isolated.dispatch(sample_batch(0))
    assert (part.errors, part.is_off) == (3, False)


@pytest.mark.parametrize("error", [StoreFullError("full"), StoreFencedError("fenced")])
def test_store_errors_pass_through_isolation_and_are_not_counted(error: Exception, part: Part) -> None:
    """Dispatch stands still on a full disk and goes on later: isolating would lose the batch."""
    recorder = Recorder()
    isolated = IsolatedDispatcher(recorder, part, essential=False)
    recorder.error = error
    for _ in range(6):
        with pytest.raises(type(error)):
            isolated.dispatch(sample_batch(0))
    assert (part.errors, part.is_off) == (0, False)


def test_isolated_dispatchers_are_closed_without_raising(part: Part) -> None:
    recorder = Recorder()
    isolated = IsolatedDispatcher(recorder, part, essential=False)
    isolated.close()
    assert recorder.closed
    recorder.close = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    isolated.close()
    assert part.errors == 1
    IsolatedDispatcher(type("NoClose", (), {"dispatch": print})(), part, essential=False).close()

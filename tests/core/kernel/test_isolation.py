"""What a third party's index builder raises is counted for its plugin."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from flintmq.core.errors import RefusedError
from flintmq.core.kernel.failures import Failures, Part
from flintmq.core.kernel.isolation import Guarded
from flintmq.core.kernel.plugin_info import PluginOrigin, PluginSource
from flintmq.core.kernel.plugin_shapes import INDEX_BUILDER
from flintmq.core.kernel.ports import SupportsCommitted, SupportsQuerySteps, SupportsTruncate
from flintmq.programs.broker.isolated_dispatcher import IsolatedDispatcher
from flintmq.testing.dispatcher_kit import sample_batch

MINE = PluginOrigin("mine", PluginSource.PROGRAM)


@pytest.fixture
def part() -> Part:
    return Failures(3).of(MINE, "flintmq_dispatchers", "dispatcher 'd'", optional=True)


def test_sys_exit_in_a_plugin_is_counted_as_a_failure(part: Part) -> None:
    """It must not end the broker."""
    builder: Any = Guarded(types.SimpleNamespace(dispatch=sys.exit), INDEX_BUILDER, part, "somebody")
    with pytest.raises(RuntimeError, match="dispatch called sys"):
        builder.dispatch(sample_batch(0))
    assert part.errors == 1


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


def test_a_failure_of_an_index_builder_adds_only_one_error_to_the_error_count_of_its_plugin(part: Part) -> None:
    """The dispatcher `index` calls the index builder: one failure, not two."""
    builder: Any = Guarded(Builder(), INDEX_BUILDER, part, "somebody")
    IsolatedDispatcher(builder, part, essential=False).dispatch(sample_batch(0))
    assert part.errors == 1
    with pytest.raises(RefusedError):
        builder.query()
    assert part.errors == 1
    assert builder.close() is None
    assert part.errors == 2


def test_the_wrapper_of_a_plugin_object_has_only_those_optional_methods_that_the_object_has(part: Part) -> None:
    builder: Any = Guarded(Builder(), INDEX_BUILDER, part, "somebody")
    assert (builder.size, builder.committed()) == (7, 17)
    assert isinstance(builder, SupportsCommitted)
    assert isinstance(builder, SupportsQuerySteps)
    assert not isinstance(builder, SupportsTruncate)


def test_a_switched_off_index_builder_is_not_called(part: Part) -> None:
    builder: Any = Guarded(Builder(), INDEX_BUILDER, part, "somebody")
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            builder.dispatch(sample_batch(0))
    assert builder.dispatch(sample_batch(0)) is None
    assert part.errors == 3

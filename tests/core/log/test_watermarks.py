"""Readers see up to the watermark ``readable``: too far, and a crash takes back what somebody has read."""

from __future__ import annotations

import pytest

from flintmq.core.log.watermarks import Watermarks


@pytest.mark.parametrize(("synchronous", "readable"), [(True, 100), (False, 200)])
def test_messages_become_readable_when_flushed_in_sync_mode_and_when_committed_in_async_mode(
    synchronous: bool, readable: int
) -> None:
    """Consumers must not read a message that a crash can still remove under a synchronous strategy."""
    marks = Watermarks(synchronous=synchronous)
    marks.wrote, marks.committed, marks.flushed = 300, 200, 100
    assert marks.readable == readable


@pytest.mark.parametrize(("replicated", "readable"), [(None, 200), (150, 150), (500, 200)])
def test_the_readable_position_is_at_most_the_position_that_slaves_have_copied(
    replicated: int | None, readable: int
) -> None:
    """A slave may be ahead in another file's past, and a master without slaves waits for none."""
    marks = Watermarks(synchronous=False)
    marks.committed, marks.replicated = 200, replicated
    assert marks.readable == readable


def test_all_log_positions_except_the_dispatched_position_can_be_set_in_a_single_call() -> None:
    """The dispatched position is found separately, because queues may be behind the log."""
    marks = Watermarks(synchronous=True)
    marks.set_all(400)
    assert (marks.wrote, marks.committed, marks.flushed, marks.readable, marks.dispatched) == (400, 400, 400, 400, 0)
    assert marks.fence_reason is None

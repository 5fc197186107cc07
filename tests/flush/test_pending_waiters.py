"""Everyone who waits for a sync must be answered exactly once: the list between submit and the flush thread."""

from __future__ import annotations

from flintmq.core.kernel.ports import FlushStatus
from flintmq.core.waiters import FENCED
from flintmq.flush.pending_waiters import PendingWaiters


def test_pending_waiters_are_completed_by_position_not_by_order() -> None:
    waiters = PendingWaiters()
    late, early = waiters.add(200, 9.0), waiters.add(100, 9.0)
    assert waiters.complete_flushed(150) == 1
    assert (late.status, early.status) == (None, FlushStatus.FLUSHED)
    assert waiters.newest_end_bytes == 200
    assert waiters.complete_flushed(200) == 1
    assert waiters.newest_end_bytes == 0
    assert len(waiters) == 0


def test_closed_pending_waiters_take_nobody_in() -> None:
    waiters = PendingWaiters()
    left = waiters.add(100, 9.0)
    assert waiters.close() == 1
    assert left.status is FlushStatus.FENCED
    assert waiters.add(100, 9.0) is FENCED
    assert waiters.close() == 0
    assert waiters.completed == 2

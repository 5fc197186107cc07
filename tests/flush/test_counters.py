"""The figures of a flush service are what operators compare strategies by."""

from __future__ import annotations

from flintmq.core.testing.clock import ManualClock
from flintmq.flush.counters import SyncCounter


class SteppedLog:
    """A log of several files: a flush ends one of them, and takes half a second."""

    def __init__(self, clock: ManualClock, ends: list[int]) -> None:
        self._clock = clock
        self._ends = ends
        self.flushed_offset_bytes = 0
        self.wrote_offset_bytes = ends[-1]
        self.committed_offset_bytes = ends[-1]
        self.calls: list[int] = []

    def flush(self, least_pages: int) -> int:
        self.calls.append(least_pages)
        self._clock.advance_ms(500)
        if self._ends:
            self.flushed_offset_bytes = self._ends.pop(0)
        return self.flushed_offset_bytes

    def commit(self, least_pages: int) -> int:
        return self.committed_offset_bytes


def test_only_a_flush_that_moved_the_position_is_a_sync() -> None:
    """One that found nothing to do would make the mean time of a sync look better than it is."""
    clock = ManualClock()
    log = SteppedLog(clock, [100])
    counter = SyncCounter(log, clock)
    assert counter.flush(4) == 100
    assert counter.flush(4) == 100
    found = counter.statistics(waiters=3, timeouts=1)
    assert (found.syncs, found.synced_bytes, found.sync_time_s) == (1, 100, 0.5)
    assert (found.waiters, found.timeouts) == (3, 1)
    assert counter.last_sync_s == 0.5
    assert log.calls == [4, 4]


def test_a_target_is_reached_over_several_files_and_not_passed() -> None:
    """A call ends one file; what is behind the target is for the next round, or a busy log would never be done."""
    clock = ManualClock()
    log = SteppedLog(clock, [100, 200, 300])
    counter = SyncCounter(log, clock)
    assert counter.flush_to(150) == 200
    assert counter.statistics(0, 0).syncs == 2
    assert counter.flush_to(150) == 200
    assert len(log.calls) == 2, "the target is reached: nothing is asked of the disk"


def test_a_flush_without_progress_ends_the_round() -> None:
    """A fenced log gets no further: the thread must come back."""
    clock = ManualClock()
    log = SteppedLog(clock, [100, 100])
    assert SyncCounter(log, clock).flush_to(500) == 100
    assert len(log.calls) == 2

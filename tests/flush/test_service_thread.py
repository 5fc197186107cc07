"""A wake-up that is lost stops acknowledgements: the thread of a flush service, woken, paused and ended."""

from __future__ import annotations

import threading

from flintmq.flush.service_thread import ServiceThread, SyncCounter
from flintmq.testing.clock import ManualClock


class Counting(ServiceThread):
    """Counts rounds and lets the test wait for them."""

    def __init__(self) -> None:
        super().__init__("flintmq-test", ManualClock())
        self.rounds = 0
        self.finished = 0
        self.round_done = threading.Semaphore(0)

    def run_once(self, now_s: float) -> None:
        self.rounds += 1
        self.round_done.release()

    def wait_s(self, now_s: float) -> float | None:
        return None

    def finish(self) -> None:
        self.finished += 1


def test_a_flush_thread_without_an_interval_runs_one_round_per_wakeup() -> None:
    thread = Counting()
    thread.start()
    thread.start()
    for _ in range(3):
        thread.wakeup()
        assert thread.round_done.acquire(timeout=5)
    assert thread.rounds == 3, "with no interval, only wake-ups lead to rounds"
    assert thread.end(5)
    assert thread.end(5)
    assert thread.finished == 1
    thread.start()
    thread.wakeup()
    assert thread.rounds == 3


def test_a_flush_thread_combines_several_pending_wakeups_into_one_run() -> None:
    thread = Counting()
    for _ in range(10):
        thread.wakeup()
    thread.start()
    assert thread.round_done.acquire(timeout=5)
    thread.wakeup()
    assert thread.round_done.acquire(timeout=5)
    assert thread.end(5)
    assert thread.rounds == 2


def test_stopping_a_flush_thread_ends_the_pause_between_rounds() -> None:
    """Work that is cheaper by the heap is not done for each wake-up; and a stop does not wait for the rest's end."""
    thread = Counting()
    thread.rest_s = 600.0
    thread.start()
    thread.wakeup()
    assert thread.round_done.acquire(timeout=5)
    thread.wakeup()
    assert not thread.round_done.acquire(timeout=0.05)
    assert thread.end(5)
    assert thread.rounds == 1
    assert thread.finished == 1


def test_wakeups_from_many_threads_never_raise() -> None:
    """The binary semaphore is a bare lock: releasing it twice raises, which nobody may see."""
    thread = Counting()
    thread.start()
    errors: list[BaseException] = []

    def hammer() -> None:
        try:
            for _ in range(2_000):
                thread.wakeup()
        except BaseException as error:
            errors.append(error)

    hammers = [threading.Thread(target=hammer) for _ in range(4)]
    for hammering in hammers:
        hammering.start()
    for hammering in hammers:
        hammering.join()
    assert thread.end(5)
    assert not errors


def test_stopping_a_flush_thread_interrupts_its_sleep() -> None:
    """A strategy that lets time pass in a round must not delay the stop by it."""

    class Pausing(Counting):
        def run_once(self, now_s: float) -> None:
            super().run_once(now_s)
            self.pause(60)

    thread = Pausing()
    thread.start()
    thread.wakeup()
    assert thread.round_done.acquire(timeout=5)
    assert thread.end(5)


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


def test_only_flushes_that_advance_the_flushed_position_are_counted_as_syncs() -> None:
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


def test_no_more_flush_calls_are_made_after_the_target_position_is_flushed() -> None:
    """A call ends one file; what is behind the target is for the next round, or a busy log would never be done."""
    clock = ManualClock()
    log = SteppedLog(clock, [100, 200, 300])
    counter = SyncCounter(log, clock)
    assert counter.flush_to(150) == 200
    assert counter.statistics(0, 0).syncs == 2
    assert counter.flush_to(150) == 200
    assert len(log.calls) == 2, "the target is reached: nothing is asked of the disk"


def test_flushing_to_a_target_position_ends_if_a_flush_call_makes_no_progress() -> None:
    """A fenced log gets no further: the thread must come back."""
    clock = ManualClock()
    log = SteppedLog(clock, [100, 100])
    assert SyncCounter(log, clock).flush_to(500) == 100
    assert len(log.calls) == 2

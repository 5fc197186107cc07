"""The parts every strategy stands on: lists of waiters, threads that stop, buffers that forget."""

from __future__ import annotations

import threading

import pytest

from flintmq.core.kernel.ports import FlushStatus
from flintmq.core.testing.clock import ManualClock
from flintmq.core.waiters import FENCED
from flintmq.flush.pending_waiters import PendingWaiters
from flintmq.flush.service_thread import ServiceThread
from flintmq.flush.transient_store_pool import AnonymousBufferPool


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


def test_a_thread_runs_when_woken_and_finishes_once() -> None:
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


def test_wakeups_before_a_round_are_one_wakeup() -> None:
    thread = Counting()
    for _ in range(10):
        thread.wakeup()
    thread.start()
    assert thread.round_done.acquire(timeout=5)
    thread.wakeup()
    assert thread.round_done.acquire(timeout=5)
    assert thread.end(5)
    assert thread.rounds == 2


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


def test_a_pause_ends_with_the_thread() -> None:
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


def test_a_pool_refuses_what_it_did_not_lend() -> None:
    """A buffer in the pool twice would be two files' buffer."""
    pool = AnonymousBufferPool(2, 4096)
    buffer = pool.borrow()
    assert buffer is not None
    pool.give_back(buffer)
    with pytest.raises(ValueError, match="not a borrowed buffer"):
        pool.give_back(buffer)
    with pytest.raises(ValueError, match="not a borrowed buffer"):
        pool.give_back(memoryview(bytearray(4096)))
    assert pool.available_buffers == 2
    pool.close()


def test_a_buffer_lent_over_the_close_is_freed_when_it_comes_back() -> None:
    """The store may still commit from it while the broker stops."""
    pool = AnonymousBufferPool(1, 4096)
    buffer = pool.borrow()
    assert buffer is not None
    pool.close()
    buffer[:2] = b"ok"
    pool.give_back(buffer)
    assert pool.available_buffers == 0
    with pytest.raises(ValueError, match="released"):
        bytes(buffer)


@pytest.mark.parametrize(("buffers", "bytes_each"), [(0, 4096), (1, 0)])
def test_a_pool_of_nothing_is_refused(buffers: int, bytes_each: int) -> None:
    with pytest.raises(ValueError, match="is no pool"):
        AnonymousBufferPool(buffers, bytes_each)

"""A wake-up that is lost stops acknowledgements: the thread of a flush service, woken, paused and ended."""

from __future__ import annotations

import threading

from flintmq.core.testing.clock import ManualClock
from flintmq.flush.service_thread import ServiceThread


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

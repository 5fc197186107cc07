"""What runs beside the loop must run in the machine's threads, unless the loop does the work itself; and it must end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor

from flintmq.core.io.threads import (
    MACHINE_THREADS,
    Rounds,
    Signal,
    background,
    daemon_thread,
    submit,
    thread_pool,
    threads_here,
)


class LoopThreads:
    """Does nothing of what it is asked for."""

    def run_rounds(self, service: Rounds) -> Signal | None:
        raise NotImplementedError

    def repeat(self, name: str, interval_s: float, call: Callable[[], object]) -> Callable[[], None]:
        raise NotImplementedError

    def worker(self, name: str) -> Executor:
        raise NotImplementedError


def test_operating_system_threads_are_used_unless_the_running_event_loop_provides_a_replacement() -> None:
    async def here() -> object:
        return threads_here()

    loop = asyncio.new_event_loop()
    own = LoopThreads()
    try:
        assert loop.run_until_complete(here()) is MACHINE_THREADS
        loop.threads = own  # type: ignore[attr-defined]
        assert loop.run_until_complete(here()) is own
    finally:
        loop.close()
    assert threads_here() is MACHINE_THREADS


def test_a_repeating_thread_calls_its_function_until_the_thread_is_ended() -> None:
    called = threading.Semaphore(0)
    running = threading.active_count()
    end = MACHINE_THREADS.repeat("test-repeat", 0.001, called.release)
    for _ in range(3):
        assert called.acquire(timeout=10)
    end()
    assert threading.active_count() == running
    while called.acquire(blocking=False):
        pass
    assert not called.acquire(blocking=False)


def test_a_newly_created_daemon_thread_has_the_given_name_but_is_not_started() -> None:
    done = threading.Event()
    thread = daemon_thread(done.set, "test-thread")
    assert (thread.name, thread.daemon, done.is_set()) == ("test-thread", True, False)
    thread.start()
    assert done.wait(10)


def test_a_callable_submitted_to_a_thread_pool_runs_outside_the_thread_of_the_event_loop() -> None:
    async def names() -> list[str]:
        with thread_pool(1, "test-pool") as pool:
            name = lambda: threading.current_thread().name  # noqa: E731
            return [await background(name), await submit(pool, name), await submit(None, name)]

    first, second, third = asyncio.run(names())
    assert first.startswith("asyncio_")
    assert second == "test-pool_0"
    assert third.startswith("asyncio_")


def test_a_worker_thread_runs_submitted_calls_in_order() -> None:
    order: list[int] = []
    with MACHINE_THREADS.worker("test-worker") as worker:
        for number in range(20):
            worker.submit(order.append, number)
    assert order == list(range(20))

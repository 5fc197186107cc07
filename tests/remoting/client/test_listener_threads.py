"""Users' plain functions run in threads that come when they are needed, and that a process which ends does not wait for."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from flintmq.remoting.client.listener_threads import ListenerThreads


class Held:
    """A result that can be watched."""


def test_there_are_as_many_threads_as_calls_and_no_more_than_the_limit() -> None:
    async def run() -> None:
        threads = ListenerThreads(3, "test")
        begin, entered = threading.Event(), threading.Semaphore(0)

        def wait() -> str:
            entered.release()
            begin.wait(10)
            return threading.current_thread().name

        assert await threads.call(lambda: threading.current_thread().name) == "test-0"
        assert await threads.call(lambda: threading.current_thread().name) == "test-0"
        calls = [threads.call(wait) for _ in range(5)]
        await asyncio.to_thread(lambda: [entered.acquire(timeout=10) for _ in range(3)])
        assert threads.busy == 3
        calls[4].cancel()
        begin.set()
        names = await asyncio.gather(*calls[:4])
        assert set(names) == {"test-0", "test-1", "test-2"}
        assert threads.busy == 0 or await asyncio.sleep(0.01) is None
        assert all(thread.daemon for thread in threading.enumerate() if thread.name in names)
        threads.close()

    asyncio.run(run())


def test_what_waits_for_a_thread_is_not_begun_after_the_close() -> None:
    async def run() -> None:
        threads = ListenerThreads(1, "test")
        begin, entered, begun = threading.Event(), threading.Event(), []
        first = threads.call(lambda: (entered.set(), begin.wait(10))[1])
        await asyncio.to_thread(entered.wait, 10)
        second = threads.call(lambda: begun.append(1))
        threads.close()
        begin.set()
        assert await first is True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await second
        assert begun == []

    asyncio.run(run())


def test_a_thread_that_waits_keeps_no_message_alive() -> None:
    async def run() -> None:
        threads = ListenerThreads(1, "test")
        held = Held()
        watched = weakref.ref(held)
        await threads.call(lambda held=held: None)  # type: ignore[misc]
        del held
        async with asyncio.timeout(5):
            while watched() is not None:
                gc.collect()
                await asyncio.sleep(0.001)
        threads.close()

    asyncio.run(run())


def test_a_loop_that_is_closed_ends_no_thread_by_an_exception(recwarn: pytest.WarningsRecorder) -> None:
    begin, entered = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def wait() -> None:
        threads.append(threading.current_thread())
        entered.set()
        begin.wait(10)

    async def run() -> None:
        pool = ListenerThreads(1, "test")
        calling = pool.call(wait)
        await asyncio.to_thread(entered.wait, 10)
        pool.close()
        calling.cancel()

    asyncio.run(run())
    begin.set()
    threads[0].join(10)
    assert not threads[0].is_alive()

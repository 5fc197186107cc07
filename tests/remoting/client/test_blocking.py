"""The loop in a thread ends with nothing left of it, and is the same one for all who ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from flintmq.remoting.client.blocking import LoopThread, shared_loop


async def answer() -> int:
    return 42


def test_a_loop_thread_returns_results_and_raises_errors_of_coroutines() -> None:
    thread = LoopThread()

    async def fail() -> None:
        raise KeyError("x")

    assert thread.run(answer()) == 42
    with pytest.raises(KeyError):
        thread.run(fail())
    thread.stop()


def test_stopping_a_loop_thread_cancels_its_tasks() -> None:
    """A task that is destroyed while it waits is a complaint on somebody's terminal."""
    thread = LoopThread("stops")
    started, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = thread.start(wait())
    assert started.wait(10)
    thread.stop()
    assert ended.is_set()
    assert waiting.cancelled()
    assert "stops" not in {one.name for one in threading.enumerate()}
    thread.stop()
    assert thread.is_stopped
    with pytest.raises(RuntimeError, match="stopped"):
        thread.run(answer())


def test_the_shared_event_loop_is_created_only_once_per_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it belongs to the process that this one was forked from, whose thread is not here."""
    shared = shared_loop()
    assert shared_loop() is shared
    assert shared.run(answer()) == 42
    monkeypatch.setattr(shared, "_process", -1)
    with pytest.raises(RuntimeError, match="forked"):
        shared.run(answer())
    shared.stop()
    assert not shared.is_stopped, "that would be the parent's"
    other = shared_loop()
    assert other is not shared
    other.stop()
    monkeypatch.undo()
    assert shared.run(answer()) == 42
    shared.stop()


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_keyboard_interrupt_cancels_the_coroutine_that_the_interrupted_thread_has_scheduled(
    monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    """The loop's thread may be faster than the caller's, which KeyboardInterrupt then finds on its way to the wait."""
    loop = LoopThread()
    began, ended, free = threading.Event(), threading.Event(), threading.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    def interrupted(coroutine: Coroutine[Any, Any, None], of_loop: asyncio.AbstractEventLoop) -> None:
        if not has_begun:
            of_loop.call_soon_threadsafe(free.wait)
        scheduled(coroutine, of_loop)
        assert not has_begun or began.wait(10)
        raise KeyboardInterrupt

    scheduled = asyncio.run_coroutine_threadsafe
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    monkeypatch.undo()
    free.set()
    loop.run(asyncio.sleep(0))
    assert began.is_set() == has_begun
    assert ended.is_set() or not has_begun or ended.wait(10)
    loop.stop()


def test_the_stop_method_returns_after_a_timeout_if_a_coroutine_blocks_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A coroutine function that never waits holds up all clients; the end of the process it must not."""
    monkeypatch.setattr("flintmq.remoting.client.blocking.END_TIMEOUT_S", 0.05)
    monkeypatch.setattr("flintmq.remoting.client.blocking.BUSY_TIMEOUT_S", 0.05)
    thread, begun, go_on = LoopThread("held"), threading.Event(), threading.Event()

    async def hold() -> None:
        begun.set()
        go_on.wait(20)

    thread.start(hold())
    assert begun.wait(10)
    thread.stop()
    assert "a function that it called does not return" in caplog.text
    go_on.set()
    thread._thread.join(20)
    assert not thread._thread.is_alive()
    left = asyncio.all_tasks(thread._loop)
    for task in left:
        task.cancel()
    thread._loop.run_until_complete(asyncio.wait(left))
    thread._loop.close()

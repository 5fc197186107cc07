"""The loop in a thread ends with nothing left of it, and is the same one for all who ask."""

from __future__ import annotations

import asyncio
import threading

import pytest

from flintmq.remoting.client.blocking import LoopThread, shared_loop


async def answer() -> int:
    return 42


def test_work_is_done_and_what_it_raises_is_raised() -> None:
    thread = LoopThread()

    async def fail() -> None:
        raise KeyError("x")

    assert thread.run(answer()) == 42
    with pytest.raises(KeyError):
        thread.run(fail())
    thread.stop()


def test_a_stop_cancels_what_runs() -> None:
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


def test_all_share_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
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

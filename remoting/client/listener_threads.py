"""Threads for the plain functions of users. The process does not wait for them: what they have comes again."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

import msgspec


class _Work(msgspec.Struct):
    call: Callable[[], Any]
    done: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class ListenerThreads:
    """Daemon threads, as many as are needed at a time up to a bound. Loop thread only.

    Those of :mod:`concurrent.futures` are joined when the process ends: a listener that hangs would keep it, without a word.

    Args:
        limit: how many threads there are at most; further calls wait for one.
        name: what the threads are called.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._works: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._is_closed = False
        self._threads = 0
        self._open = 0
        """Calls that are not done."""

    @property
    def busy(self) -> int:
        """Return how many calls run now."""
        return self._open - self._works.qsize()

    def call(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call a function, which does not raise, in a thread; return the promise of its result.

        Raises:
            RuntimeError: the interpreter ends, and begins no thread any more; or they are closed.
        """
        if self._is_closed:
            raise RuntimeError(f"no call of {self._name} begins any more")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        if self._open >= self._threads and self._threads < self._limit:
            threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
            self._threads += 1
        self._open += 1
        self._works.put(_Work(function, done, loop))
        return done

    def close(self) -> None:
        """Begin no call any more; those that run are finished, if the process lives so long."""
        self._is_closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._works.get_nowait()
        for _ in range(self._threads):
            self._works.put(None)

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            result = None if work.done.cancelled() else work.call()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                work.loop.call_soon_threadsafe(self._done, work.done, result)
            del work, result  # a thread that waits keeps no message alive

    def _done(self, done: asyncio.Future[Any], result: Any) -> None:
        self._open -= 1
        if not done.done():
            done.set_result(result)

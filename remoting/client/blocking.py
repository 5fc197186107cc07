"""Clients for callers without an event loop: the loop runs in a daemon thread."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
import time
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from flintmq.core.log_events import event_log

T = TypeVar("T")

log = event_log("flintmq.client")

END_TIMEOUT_S: Final = 2.0
"""How long :meth:`LoopThread.stop` waits for work that it has cancelled."""
BUSY_TIMEOUT_S: Final = 1.0
"""How long it waits for the loop itself."""


class LoopThread:
    """An event loop in a daemon thread. Thread-safe."""

    def __init__(self, name: str = "flintmq-client") -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Run the loop until :meth:`stop`. A callback that raises ``SystemExit`` does not end it: other clients use it."""
        while not self._is_stopping:
            try:
                self._loop.run_forever()
            except BaseException:
                log.exception("client.loop_kept", "a callback would have ended the loop of all clients")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result. Never call it on the loop's own thread.

        What interrupts the wait, such as ``KeyboardInterrupt``, cancels the coroutine, even where it comes before there is
        a future to wait for.
        """
        task: asyncio.Task[T] | None = None
        is_abandoned = False

        async def noted() -> T:
            nonlocal task
            task = asyncio.current_task()
            if is_abandoned:
                work.close()
                raise asyncio.CancelledError
            return await work

        def abandon() -> None:
            nonlocal is_abandoned
            is_abandoned = True
            if task is not None:
                task.cancel()

        self._check_usable(work)
        try:
            return self.start(noted()).result()
        except BaseException:
            with contextlib.suppress(RuntimeError):  # the loop has been stopped, and everything on it with it
                self._loop.call_soon_threadsafe(abandon)  # nothing happens where it was the coroutine that failed
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin a coroutine on the loop.

        Raises:
            RuntimeError: the loop was stopped; or this process was forked from the one that has its thread.
        """
        self._check_usable(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _check_usable(self, work: Coroutine[Any, Any, T]) -> None:
        if not self.is_usable:
            work.close()
            raise RuntimeError(
                "this client's event loop has been stopped: the program ends"
                if self.is_stopped
                else "this client belongs to the process that this one was forked from: make it after the fork"
            )

    @property
    def is_stopped(self) -> bool:
        return self._loop.is_closed()

    @property
    def is_of_parent(self) -> bool:
        """Whether this process was forked from the one that has the loop's thread."""
        return self._process != os.getpid()

    @property
    def is_usable(self) -> bool:
        """Whether the loop runs, in this process: a forked one has the object, but not its thread."""
        return not self.is_of_parent and not self.is_stopped

    def stop(self) -> None:
        """Cancel what runs on the loop, then end it and its thread. Idempotent.

        A function on the loop that does not return, such as a listener that is a coroutine function and never waits, is not
        waited for without bound.
        """
        if not self.is_usable:
            return  # in a forked process, closing the loop would take the sockets out of the parent's selector
        try:
            cancelling = self.start(_cancel_all())
            try:
                cancelling.result(END_TIMEOUT_S + BUSY_TIMEOUT_S)
            except concurrent.futures.TimeoutError:  # told below
                cancelling.cancel()
        finally:
            self._is_stopping = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(BUSY_TIMEOUT_S)
            if self._thread.is_alive():  # a daemon: it ends with the process
                log.warning(
                    "client.loop_busy",
                    "the event loop of all clients does not end: a function that it called does not return",
                )
            else:
                self._loop.close()


async def _cancel_all() -> None:
    """Cancel all tasks, and again those that have made another failure of it, as a task does that shares a connection."""
    give_up_s = time.monotonic() + END_TIMEOUT_S
    while (tasks := asyncio.all_tasks() - {asyncio.current_task()}) and time.monotonic() < give_up_s:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=0.1)


_sharing: Final = threading.Lock()
_shared: LoopThread | None = None


def shared_loop() -> LoopThread:
    """Return the loop of this process that all share: started when it is first asked for, ended with the program.

    Thread-safe.
    """
    global _shared
    with _sharing:
        if _shared is None or not _shared.is_usable:
            _shared = LoopThread()
            atexit.register(_shared.stop)
        return _shared

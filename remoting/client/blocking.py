"""An event loop in a daemon thread, on which blocking clients run asynchronous clients."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from flintmq.core.io.threads import daemon_thread
from flintmq.core.log_events import event_log

T = TypeVar("T")

log = event_log("flintmq.client")

END_TIMEOUT_S: Final = 2.0
"""Seconds that :meth:`LoopThread.stop` waits for the tasks that it has cancelled."""
BUSY_TIMEOUT_S: Final = 1.0
"""Seconds that :meth:`LoopThread.stop` waits for the event loop to react and for its thread to end."""


class LoopThread:
    """An event loop that runs in a daemon thread. Thread-safe."""

    def __init__(self, name: str = "flintmq-client") -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._is_stopping = False
        self._thread = daemon_thread(self._run, name)
        self._thread.start()

    def _run(self) -> None:
        """Run the event loop until :meth:`stop`.

        If a callback raises ``SystemExit``, the loop continues to run, because other clients use the loop.
        """
        while not self._is_stopping:
            try:
                self._loop.run_forever()
            except BaseException:
                log.exception("client.loop_kept", "a callback would have ended the loop of all clients")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result. Never call this method on the loop's own thread.

        An exception that interrupts the wait, such as ``KeyboardInterrupt``, cancels the coroutine, even if it is raised before
        the coroutine has started.
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
            # call_soon_threadsafe() raises RuntimeError if the event loop is closed.
            # A closed event loop has already cancelled the coroutine, so the RuntimeError is ignored.
            with contextlib.suppress(RuntimeError):
                # If the coroutine has already ended, abandon() has no effect.
                self._loop.call_soon_threadsafe(abandon)
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop, and return its future.

        Raises:
            RuntimeError: the loop was stopped, or this process is a fork of the process that runs the loop.
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
        """Whether this process is a fork of the process that runs the loop's thread."""
        return self._process != os.getpid()

    @property
    def is_usable(self) -> bool:
        """Whether the loop runs in this process; a forked process has the loop's object, but not the loop's thread."""
        return not self.is_of_parent and not self.is_stopped

    def stop(self) -> None:
        """Cancel all tasks of the loop, then end the loop and its thread. Idempotent.

        The method waits a limited time for the tasks and the thread. A function that never returns to the loop, such as an
        endless listener, ends with the process.
        """
        if not self.is_usable:
            # In a forked process, closing the event loop would take the parent's sockets out of the parent's selector.
            return
        try:
            cancelling = self.start(_cancel_all())
            try:
                cancelling.result(END_TIMEOUT_S + BUSY_TIMEOUT_S)
            except concurrent.futures.TimeoutError:
                # TimeoutError means that a function blocks the event loop.
                # If the thread of the blocked event loop does not end after the loop is stopped, client.loop_busy is logged.
                cancelling.cancel()
        finally:
            self._is_stopping = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(BUSY_TIMEOUT_S)
            # A loop thread that is still alive does not keep the process from ending, because the thread is a daemon.
            if self._thread.is_alive():
                log.warning(
                    "client.loop_busy",
                    "the event loop of all clients does not end: a function that it called does not return",
                )
            else:
                self._loop.close()


async def _cancel_all() -> None:
    """Cancel all tasks of the event loop, repeatedly, until all have ended or ``END_TIMEOUT_S`` has passed.

    Repetition is necessary because a task can turn a cancellation into another exception.
    """
    now_s = asyncio.get_running_loop().time
    give_up_s = now_s() + END_TIMEOUT_S
    while (tasks := asyncio.all_tasks() - {asyncio.current_task()}) and now_s() < give_up_s:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=0.1)


_sharing: Final = threading.Lock()
_shared: LoopThread | None = None


def shared_loop() -> LoopThread:
    """Return the event loop that all blocking clients of this process share.

    The first call of this function starts the event loop, and program exit ends it.

    Thread-safe.
    """
    global _shared
    with _sharing:
        if _shared is None or not _shared.is_usable:
            _shared = LoopThread()
            atexit.register(_shared.stop)
        return _shared

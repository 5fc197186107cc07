"""Threads in which plain functions of users are called: apart from the loop's own, and not waited for without bound."""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

from flintmq.core.log_events import event_log

P = ParamSpec("P")
T = TypeVar("T")

log = event_log("flintmq.client")

EXIT_TIMEOUT_S: Final = 5.0
"""How long the end of the process waits for functions that have not returned."""
_EXIT_SILENCE_S: Final = 0.2
"""It waits for so long without a word."""
_Call = tuple["Future[Any]", Callable[[], Any]]


class DaemonThreads(Executor):
    """Calls functions in threads of its own, which begin when they are needed. Thread-safe.

    The threads are daemons. Those of a ``ThreadPoolExecutor`` are joined when the interpreter ends, so that a function which
    does not return keeps the process alive, without bound and without a word.

    Args:
        name: of the threads, followed by a number.
        threads_max: further calls wait until another one has returned.
    """

    def __init__(self, name: str, threads_max: int) -> None:
        self.name = name
        self._threads_max = threads_max
        self._lock = threading.Lock()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._is_ending = False
        """Whether the process ends."""
        _all.add(self)

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function; return the promise of what becomes of it.

        Raises:
            RuntimeError: the process ends, and no function begins any more.
        """
        with self._lock:
            if self._is_ending:
                raise RuntimeError(f"{self.name} calls no function any more: the process ends")
            promise: Future[T] = Future()
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._threads_max:
                self._start_thread()
            self._calls.put((promise, functools.partial(function, *args, **kwargs)))
            return promise

    def is_current(self) -> bool:
        """Return whether the caller's thread is one of these: it is in a function that was called here."""
        return threading.current_thread() in self._threads

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """End the threads, each when the function that it is in has returned; a later call begins others.

        Args:
            wait: whether to wait for that.
            cancel_futures: calls that have not begun do not begin, whatever it says.
        """
        with self._lock:
            calls, self._calls = self._calls, SimpleQueue()
            threads, self._threads = self._threads, []
            self._idle = threading.Semaphore(0)
        with contextlib.suppress(Empty):
            while (call := calls.get_nowait()) is not None:
                call[0].cancel()
        for _ in threads:
            calls.put(None)
        if wait:
            for thread in threads:
                thread.join()

    def __del__(self) -> None:
        """End the threads of a client that was dropped without a close."""
        self.shutdown()

    def end(self) -> None:
        """Begin no function any more, and end the threads: the process ends."""
        with self._lock:
            self._is_ending = True
        self.shutdown()

    def _start_thread(self) -> None:
        name = f"{self.name}_{len(self._threads)}"
        thread = threading.Thread(target=self._run, args=(self._calls, self._idle), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)
        _all_threads.add(thread)
        _wait_at_exit()

    @staticmethod
    def _run(calls: SimpleQueue[_Call | None], idle: threading.Semaphore) -> None:
        while (call := calls.get()) is not None:
            promise, function = call
            if promise.set_running_or_notify_cancel():
                try:
                    result = function()
                except BaseException as failure:
                    promise.set_exception(failure)
                else:
                    promise.set_result(result)
                    del result
            del call, promise, function  # else the last message stays in memory until another one comes
            idle.release()


_all: Final[weakref.WeakSet[DaemonThreads]] = weakref.WeakSet()
_all_threads: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()
"""Those that were shut down as well: a function that they are in may not have returned."""


def wait_for_all(timeout_s: float = EXIT_TIMEOUT_S) -> None:
    """Wait for the functions of all threads, and say so if that takes long; those that have not returned in time are left.

    For the end of the process, which then ends them wherever they are.
    """
    for threads in list(_all):
        threads.end()
    ends_s = time.monotonic() + timeout_s
    busy = _joined(time.monotonic() + min(_EXIT_SILENCE_S, timeout_s))
    if busy:
        log.warning(
            "client.exit_waits",
            "the process ends, and waits %(limit_s)g s at most for functions of clients: %(threads)s",
            limit_s=timeout_s,
            threads=", ".join(busy),
        )
        busy = _joined(ends_s)
    if busy:
        log.warning(
            "client.exit_busy",
            "the process ends, functions of clients have not returned: %(threads)s",
            threads=", ".join(busy),
        )


def _joined(ends_s: float) -> list[str]:
    """Wait for all threads until a time; return the names of those that still run."""
    for thread in list(_all_threads):
        thread.join(max(0.0, ends_s - time.monotonic()))
    return sorted(thread.name for thread in list(_all_threads) if thread.is_alive())


@functools.cache
def _wait_at_exit() -> None:
    """Have the end of the process wait for functions, before it ends what was registered until now: the loop of all clients."""
    atexit.register(wait_for_all)

"""Daemon threads for users' plain functions, separate from the event loop's threads.

Program exit waits briefly for the functions that run on these threads.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

from flintmq.core.io.clock import SYSTEM_CLOCK
from flintmq.core.io.threads import daemon_thread
from flintmq.core.log_events import event_log

P = ParamSpec("P")
T = TypeVar("T")

log = event_log("flintmq.client")

EXIT_TIMEOUT_S: Final = 5.0
"""Seconds that the exit of the program waits for functions on daemon threads that have not returned."""
_EXIT_SILENCE_S: Final = 0.2
"""Seconds that the exit of the program waits for functions on daemon threads before it logs that it waits."""
_Call = tuple["Future[Any]", Callable[[], Any]]


class DaemonThreads(Executor):
    """An executor that calls functions on daemon threads, which it starts on demand. Thread-safe.

    The interpreter joins the threads of a ``ThreadPoolExecutor`` at exit without a time limit, so a function that does not
    return would silently keep the process alive.

    Args:
        name: the prefix of the threads' names, followed by a number.
        threads_max: the maximum number of threads; further calls wait for a free thread.
    """

    def __init__(self, name: str, threads_max: int) -> None:
        self.name = name
        self._threads_max = threads_max
        self._lock = threading.Lock()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._is_ending = False
        """Whether the process is ending, so that the executor accepts no further call."""
        _all.add(self)

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function on a daemon thread of this executor, and return the future of its result.

        Raises:
            RuntimeError: the process is ending.
        """
        with self._lock:
            if self._is_ending:
                raise RuntimeError(f"the executor '{self.name}' accepts no further calls: the process ends")
            promise: Future[T] = Future()
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._threads_max:
                self._start_thread()
            self._calls.put((promise, functools.partial(function, *args, **kwargs)))
            return promise

    def is_current(self) -> bool:
        """Return whether the caller runs on a thread of this executor, in a function that was passed to :meth:`submit`."""
        return threading.current_thread() in self._threads

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """End each thread of the executor after the thread's current function. A later :meth:`submit` starts new threads.

        Args:
            wait: whether to wait until the threads have ended.
            cancel_futures: has no effect; calls that have not begun are always cancelled.
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
        """End the executor's threads, for a client that was garbage-collected without a ``close()``."""
        self.shutdown()

    def end(self) -> None:
        """Refuse further calls of functions and end the executor's threads, because the process is ending."""
        with self._lock:
            self._is_ending = True
        self.shutdown()

    def _start_thread(self) -> None:
        name = f"{self.name}_{len(self._threads)}"
        thread = daemon_thread(functools.partial(self._run, self._calls, self._idle), name)
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
            # Without del, the variables would keep the objects of this call in memory until the thread's next call.
            del call, promise, function
            idle.release()


_all: Final[weakref.WeakSet[DaemonThreads]] = weakref.WeakSet()
_all_threads: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()
"""Threads of all executors, including executors that were shut down, because functions may still run on these threads."""


def wait_for_all(timeout_s: float = EXIT_TIMEOUT_S) -> None:
    """Wait at most ``timeout_s`` for the functions on all daemon threads, and log the threads whose functions take long.

    This function is called at program exit. Daemon threads that still run after this wait end with the process.
    """
    for threads in list(_all):
        threads.end()
    ends_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
    busy = _joined(SYSTEM_CLOCK.monotonic_s() + min(_EXIT_SILENCE_S, timeout_s))
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
    """Wait for all daemon threads until the monotonic time ``ends_s``; return the names of the threads that still run."""
    for thread in list(_all_threads):
        thread.join(max(0.0, ends_s - SYSTEM_CLOCK.monotonic_s()))
    return sorted(thread.name for thread in list(_all_threads) if thread.is_alive())


@functools.cache
def _wait_at_exit() -> None:
    """Register :func:`wait_for_all` with ``atexit``, once. Program exit then calls this function before the shared event loop
    is stopped."""
    atexit.register(wait_for_all)

"""The base of broker and name server: runs in the caller's event loop or in a thread with a separate event loop, with periodic
work.

``async with service`` runs in the caller's loop. ``with service`` starts a thread with an event loop, and :meth:`Service.call`
runs coroutines there. In both cases sockets, threads and files are released at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from typing import TYPE_CHECKING, Final, Self, TypeVar

from flintmq.core.errors import FlintError, RefusedError
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock, Scheduled
from flintmq.core.io.threads import daemon_thread
from flintmq.core.kernel.failures import PLUGIN_FAULTS
from flintmq.core.kernel.plugin_shapes import drop, shown
from flintmq.core.kernel.ports.alarm import CRITICAL, Alarm
from flintmq.core.log_events import event_log
from flintmq.core.response_code import ResponseCode
from flintmq.programs.broker.running import run_loop_named as run_loop_named
from flintmq.programs.broker.running import run_to_end, to_its_end

if TYPE_CHECKING:
    from flintmq.config import LoadedConfig
    from flintmq.core.kernel.failures import Part

T = TypeVar("T")

log = event_log("flintmq.broker")
_CONFIG_LOG: Final = event_log("flintmq.config")

_FAILED_WAIT_S: Final = 1.0
"""Seconds after which a timer whose function failed calls the function again."""
_THIRD_PARTY_WAIT_S: Final = 0.001
_STOPPED_POLL_S: Final = 1.0
"""Seconds between checks whether the event loop still runs, while another thread waits for a call on the loop."""


def tell_ignored(loaded: LoadedConfig) -> None:
    """Log a warning for each line of a RocketMQ file that has no effect. The warning names the line and the reason."""
    for entry in loaded.ignored:
        _CONFIG_LOG.warning("config.ignored", "%(entry)s", entry=entry)


class Service(ABC):
    """Starts and stops a broker or a name server. One object can be started only once.

    Args:
        loaded: the configuration.
        timers: the periodic work, which ends before other resources are released.
    """

    def __init__(self, loaded: LoadedConfig, timers: Timers) -> None:
        self.loaded = loaded
        self.timers = timers
        self._held = contextlib.AsyncExitStack()
        """Resources that the start has taken. The stop, or a failed start, releases them in reverse order."""
        self._started = False
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        """Id of the event loop's thread; 0 before the start."""
        self._process = 0
        """Id of the process that started the service; 0 before the start. A forked child has neither the event loop nor the
        store."""
        self._thread: threading.Thread | None = None
        self._stop_thread: asyncio.Event | None = None
        self._failure: BaseException | None = None

    async def start(self) -> None:
        """Start the server on the running event loop. If the start raises an error, all resources are released."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._process = os.getpid()
        try:
            await self._start()
        except BaseException:
            await self._release()
            raise
        self._started = True

    async def stop(self) -> None:
        """Stop the server, and release its resources in the reverse order of the start. Idempotent."""
        if self._runs:
            self._stopped = True
            await self._release()

    @property
    def _runs(self) -> bool:
        return self._started and not self._stopped

    @abstractmethod
    async def _start(self) -> None:
        """Start the sockets, threads and timers of the server. Their resources are added to the exit stack ``_held``, which
        releases them."""

    async def _release(self) -> None:
        """Release all resources of the server, even after an incomplete start."""
        self.timers.cancel()
        await to_its_end(self._held.aclose())

    @property
    def loop_name(self) -> str:
        """The kind of event loop that ``with`` runs in a thread: ``asyncio``, ``uvloop`` or ``auto``."""
        return self.loaded.config.listen.loop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        started = threading.Event()

        def live() -> None:
            try:
                run_to_end(self.loop_name, self._live(started))
            except BaseException as error:
                # Any exception is kept for the callers that wait for the broker's start.
                self._failure = error
            finally:
                started.set()

        self._thread = daemon_thread(live, f"flintmq-{type(self).__name__.lower()}")
        self._thread.start()
        started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._loop is not None
        assert self._stop_thread is not None
        assert self._thread is not None
        # call_soon_threadsafe() raises RuntimeError if the event loop has already ended.
        # RuntimeError is ignored, because __exit__() raises the exception that ended the event loop.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop_thread.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    async def _live(self, started: threading.Event) -> None:
        self._stop_thread = asyncio.Event()
        await self.start()
        started.set()
        try:
            await self._stop_thread.wait()
        finally:
            await self.stop()

    @property
    def in_own_thread(self) -> bool:
        """Whether the server was started with ``with`` and runs in a separate thread."""
        return self._thread is not None

    @property
    def is_elsewhere(self) -> bool:
        """Whether the caller is on another thread than the server's event loop."""
        return self._loop is not None and threading.get_ident() != self._loop_thread

    def _check_process(self) -> None:
        """Raise RefusedError in a forked child process: the child's copy of the event loop has no thread, and the files belong
        to the parent process."""
        if os.getpid() != self._process:
            raise RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"service not available now: the {type(self).__name__.lower()} belongs to the parent process, from which this "
                "process was forked",
                reason="broker.forked",
            )

    def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine function on the thread of the server's event loop, and return the function's result. Call it from
        other threads.

        Raises:
            FlintError: the service has stopped or stops during the call, or its loop does not run.
            RefusedError: this is a forked child process (``broker.forked``).
        """
        assert self._loop is not None
        self._check_process()
        loop = self._loop
        future: Future[T] = Future()
        tasks: list[asyncio.Task[None]] = []

        async def run() -> None:
            try:
                future.set_result(await work())
            except BaseException as error:
                future.set_exception(error)
                if not isinstance(error, Exception):
                    raise

        def begin() -> None:
            if future.set_running_or_notify_cancel():
                tasks.append(loop.create_task(run()))

        name = type(self).__name__.lower()
        try:
            loop.call_soon_threadsafe(begin)
        except RuntimeError as error:
            raise FlintError(f"the {name} has stopped") from error
        while not wait((future,), _STOPPED_POLL_S).done:
            # The wait ends if no thread runs the event loop, because the result would never arrive.
            if not loop.is_running() and not future.done():
                begun = not future.cancel()
                unknown = "; the call had begun, and its result is unknown" if begun else ""
                raise FlintError(f"the {name} has stopped, or its event loop does not run{unknown}")
        try:
            return future.result()
        except (CancelledError, asyncio.CancelledError) as error:
            raise FlintError(f"the {name} has stopped") from error


class Timers:
    """The timers of one server. For the loop thread only.

    Args:
        clock: schedules the timers.
        part_of: function of a new timer's name. If a third party's plugin starts the timer, the function returns the object
            that counts the timer's calls and failures. For other timers the function returns None, and this class logs their
            failures.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        part_of: Callable[[str], Part | None] = lambda name: None,
    ) -> None:
        self._part_of = part_of
        self._clock = clock
        self._failures: dict[str, tuple[int, str]] = {}
        """(number of failures since the last success, text of the last error), keyed by the timer's name."""
        self._handles: dict[int, Scheduled] = {}
        self._work: dict[str, Callable[[], float]] = {}
        self._count = 0

    def every(
        self, interval_s: float, work: Callable[[], object], name: str, rest_s: Callable[[], float] | None = None
    ) -> Scheduled:
        """Call ``work`` at an interval, first after one interval, and return the timer, which ends when the timer is cancelled.

        Args:
            interval_s: the interval in seconds.
            work: the function to call.
            name: the timer's name in the log and in alarms.
            rest_s: see :meth:`flintmq.core.io.clock.Clock.call_later`.
        """
        return self._pace(interval_s, lambda: _then(work, interval_s), name, rest_s)

    def pace(
        self, first_s: float, work: Callable[[], float], name: str, rest_s: Callable[[], float] | None = None
    ) -> Scheduled:
        """Call ``work`` at varying intervals, and return the timer, which ends when the timer is cancelled.

        Args:
            first_s: seconds until the first call.
            work: the function to call. The function returns the seconds until its next call.
            name: the timer's name in the log and in alarms.
            rest_s: see :meth:`flintmq.core.io.clock.Clock.call_later`.
        """
        return self._pace(first_s, work, name, rest_s)

    def _pace(
        self, first_s: float, work: Callable[[], float], name: str, rest_s: Callable[[], float] | None
    ) -> Scheduled:
        self._work[name] = work
        part = self._part_of(name)
        key = self._count
        self._count += 1
        loop = asyncio.get_running_loop()

        def tick() -> None:
            wait_s = _FAILED_WAIT_S
            try:
                if part is None:
                    wait_s = work()
                    if self._failures:
                        self._failures.pop(name, None)
                elif part.why_off:
                    return
                else:
                    part.calls += 1
                    wait_s = _checked(work())
            except PLUGIN_FAULTS as error:
                if part is not None:
                    part.failed(error)
                else:
                    times = self._failures.get(name, (0, ""))[0] + 1
                    self._failures[name] = times, f"{type(error).__name__}: {error}"
                    # Failures 1, 10, 100 … of a timer are logged, so that a timer that fails often does not fill the log.
                    if str(times).rstrip("0") == "1":
                        log.exception(
                            "timer.failed",
                            "the timer '%(timer)s' failed; its next call is in %(wait_s)s s",
                            timer=name,
                            wait_s=wait_s,
                        )
            if key in self._handles:
                self._handles[key] = self._clock.call_later(loop, wait_s, tick, rest_s)
            else:
                # The timer was cancelled while its function ran, so the failures of the timer are not counted any more.
                self._failures.pop(name, None)

        self._handles[key] = self._clock.call_later(loop, first_s, tick, rest_s)
        return _Timer(partial(self._end, key, name, work))

    def _end(self, key: int, name: str, work: Callable[[], float]) -> None:
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()
        if self._work.get(name) is work:
            del self._work[name]
            self._failures.pop(name, None)

    def alarms(self) -> Iterator[Alarm]:
        """Yield an alarm for each timer that fails repeatedly, except timers of third parties' plugins."""
        for name, (times, error) in self._failures.items():
            text = f"the work '{name}' of the broker fails, {times:,} times so far: {error}"
            yield Alarm("timer.failed", CRITICAL, name, text, times, "failures")

    def run_now(self, name: str) -> None:
        """Run the work of a timer once, now, without a change of the timer's schedule. Raises the error of the work."""
        self._work[name]()

    def cancel(self) -> None:
        """Stop all timers of the server."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()


class _Timer:
    """A timer of a server (:class:`flintmq.core.io.clock.Scheduled`).

    Args:
        cancel: cancels the timer.
    """

    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel


def _checked(wait_s: object) -> float:
    """Return the seconds until the next call of a third party's timer, from the return value of the timer's function.

    Raises:
        TypeError: the function does not return a valid number of seconds.
    """
    if isinstance(wait_s, bool) or not isinstance(wait_s, (int, float)) or not 0 <= wait_s < math.inf:
        drop(wait_s)
        raise TypeError(f"expected a number of seconds to be returned, 0 or more; found {shown(wait_s)}")
    return max(wait_s, _THIRD_PARTY_WAIT_S)


def _then(work: Callable[[], object], interval_s: float) -> float:
    work()
    return interval_s

"""Clocks for tests: ``ManualClock``, whose time a test sets, and ``VirtualClock``, which also runs the scheduled work that
becomes due."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from datetime import timedelta
from typing import Any, Final

import attrs

from flintmq.config.units import parse_duration
from flintmq.core.event import Event
from flintmq.core.io.clock import SYSTEM_CLOCK as SYSTEM_CLOCK
from flintmq.core.io.clock import Scheduled, SystemClock
from flintmq.core.running_loop import running_loop

_NEVER_MS: Final = 1 << 62
_TURNS: Final = 2
"""Number of iterations of the event loop for each moment of virtual time. The first iteration runs the due work. The second
runs the callbacks that the due work has scheduled."""
_LAST_TURNS: Final = 10
"""Number of iterations of the event loop at the end of ``VirtualClock.advance``, in which the tasks that the due work has
started can run."""
_LOOK_S: Final = 1.0
"""Interval, in seconds, at which a caller of ``VirtualClock.advance`` checks whether the event loop that it waits for still
runs."""


class ManualClock(SystemClock):
    """A :class:`flintmq.core.io.clock.Clock` whose time changes only when a test sets it. Not thread-safe.

    The time applies only to code that reads this clock. The periodic work of a server uses the time of the server's event loop,
    so moving this clock does not run the periodic work. :class:`VirtualClock` also runs the periodic work.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 1_000_000

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_ms / 1000

    def advance_ms(self, duration_ms: int) -> None:
        """Move the wall clock and the monotonic clock of a test's clock forward."""
        self._now_ms += duration_ms
        self._monotonic_ms += duration_ms

    def set_wall_clock(self, now_ms: int) -> None:
        """Set the wall clock, as an administrator or NTP does. The monotonic clock does not change."""
        self._now_ms = now_ms


class VirtualClock(ManualClock):
    """A clock that stands still until :meth:`advance` moves it, and that runs the work that becomes due.

    One clock may serve several brokers, each in a separate thread. Work is done in the order of the due times. If work of
    several event loops is due at the same time, the loop whose work was scheduled first runs its work first.

    Args:
        now_ms: the wall clock at the beginning; None is the present time.
    """

    def __init__(self, now_ms: int | None = None) -> None:
        super().__init__(SYSTEM_CLOCK.now_ms() if now_ms is None else now_ms)
        self.advancing: Event[[]] = Event()
        """Event that :meth:`advance` publishes at its beginning, on its caller's thread."""
        self.advanced: Event[[]] = Event()
        """Event that :meth:`advance` publishes at its end, on its caller's thread."""
        self._lock = threading.RLock()
        self._moving = threading.Lock()
        self._works: set[_Work] = set()
        self._orders = itertools.count()

    def call_later(
        self,
        loop: asyncio.AbstractEventLoop,
        delay_s: float,
        callback: Callable[[], object],
        rest_s: Callable[[], float] | None = None,
    ) -> Scheduled:
        with self._lock:
            due_ms = self._monotonic_ms + _in_ms(delay_s)
            work = _Work(self, loop, due_ms, next(self._orders), callback, rest_s, due_ms)
            self._works.add(work)
            if due_ms <= self._monotonic_ms:
                loop.call_soon(work.run)
        return work

    def take(self, work: _Work) -> bool:
        """Remove an item of work from the clock, because the work now runs or is cancelled. Return whether the work was still
        waiting."""
        with self._lock:
            waited = work in self._works
            self._works.discard(work)
        return waited

    def advance(self, duration: str | timedelta) -> None:
        """Move the clock's time forward by a duration, and return when all work that becomes due in this duration has been
        done.

        The call does not wait for clients in other programs and threads, because they use real time.

        Args:
            duration: a ``timedelta``, or a text such as ``500ms``, ``10s``, ``5m``, ``2h``, ``3d``.

        Raises:
            ConfigError: the text is not a duration.
            ValueError: the duration is negative.
            RuntimeError: the caller runs on an event loop that has work on this clock, so the call would wait for itself; or an
                event loop with such work does not run.
        """
        duration_ms = _duration_ms(duration)
        with self._moving:
            self.advancing.publish()
            end_ms = self._monotonic_ms + duration_ms
            while any(self._run_on(loop, end_ms) for loop in self._loops()):
                pass
            self._move_to(end_ms)
            for loop in self._loops():
                _call(loop, _settle())
            self.advanced.publish()

    def advance_ms(self, duration_ms: int) -> None:
        """Move the clock's time forward, and return when all work that becomes due in this time has been done.

        This method is :meth:`advance` with the duration as a number of milliseconds instead of a text or a ``timedelta``.

        Raises:
            ValueError, RuntimeError: see :meth:`advance`.
        """
        self.advance(timedelta(milliseconds=duration_ms))

    def _loops(self) -> list[asyncio.AbstractEventLoop]:
        """Return the event loops that have work on the clock. The loop with the oldest work is first."""
        with self._lock:
            self._works = {work for work in self._works if not work.loop.is_closed()}
            return list(dict.fromkeys(work.loop for work in sorted(self._works, key=lambda work: work.order)))

    def _run_on(self, loop: asyncio.AbstractEventLoop, end_ms: int) -> bool:
        """Run the work of an event loop that is due before the work of any other loop. Return whether any work ran or changed
        its due time."""
        return _call(loop, self._run(loop, end_ms))

    async def _run(self, loop: asyncio.AbstractEventLoop, end_ms: int) -> bool:
        changed = self._ask(loop)
        while due := self._next(loop, end_ms):
            changed = True
            for work in due:
                loop.call_soon(work.run)
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            self._ask(loop)
        return changed

    def _ask(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Update the due times of an event loop's waiting work, and return whether any due time has changed.

        Only work that polls has a new due time. Its function ``rest_s`` returns the number of seconds in which a poll will find
        nothing. The work becomes due after these seconds, but not before the time at which it was scheduled to run.
        """
        changed = False
        with self._lock:
            mine = [work for work in self._works if work.loop is loop]
        for work in mine:
            if work.rest_s is not None:
                at_ms = max(work.due_ms, self._monotonic_ms + _in_ms(work.rest_s()))
                changed = changed or at_ms != work.at_ms
                work.at_ms = at_ms
        return changed

    def _next(self, loop: asyncio.AbstractEventLoop, end_ms: int) -> list[_Work]:
        """Move the clock's time to the next due work of an event loop, and return that work.

        If the work is due after the end of the advance, or after the work of another loop, the clock's time does not change,
        and an empty list is returned.
        """
        with self._lock:
            mine = [work for work in self._works if work.loop is loop]
            at_ms = min((work.at_ms for work in mine), default=_NEVER_MS)
            others_ms = min((work.at_ms for work in self._works if work.loop is not loop), default=_NEVER_MS)
            if at_ms > end_ms or at_ms > others_ms:
                return []
            self._move_to(at_ms)
            return sorted((work for work in mine if work.at_ms <= at_ms), key=lambda work: (work.at_ms, work.order))

    def _move_to(self, monotonic_ms: int) -> None:
        with self._lock:
            super().advance_ms(max(0, monotonic_ms - self._monotonic_ms))


@attrs.define(eq=False)
class _Work:
    """Work that a test's clock runs at the time for which the work was scheduled."""

    clock: VirtualClock
    loop: asyncio.AbstractEventLoop
    due_ms: int
    """Monotonic time, in ms, at which the work was scheduled to run."""
    order: int
    callback: Callable[[], object]
    rest_s: Callable[[], float] | None
    at_ms: int
    """Monotonic time, in ms, at which the work is due. This is :attr:`due_ms`, except for work that only polls. Such work has a
    function :attr:`rest_s`, which returns the number of seconds in which a poll will find nothing. Polling work becomes due
    after these seconds, but not before :attr:`due_ms`."""

    def cancel(self) -> None:
        """Drop the work from the clock, so that it never runs."""
        self.clock.take(self)

    def run(self) -> None:
        """Run the work, unless it has already run or was cancelled."""
        if self.clock.take(self):
            self.callback()


def _in_ms(duration_s: float) -> int:
    """Return a duration in whole milliseconds, rounded up: work on a test's clock never runs early, and a positive wait is
    never 0."""
    return _NEVER_MS if duration_s >= _NEVER_MS / 1000 else max(0, math.ceil(duration_s * 1000 - 1e-6))


def _duration_ms(duration: str | timedelta) -> int:
    if isinstance(duration, str):
        return parse_duration(duration)
    duration_ms = duration // timedelta(milliseconds=1)
    if duration_ms < 0:
        raise ValueError(f"time goes forward only: {duration} is negative")
    return duration_ms


async def _settle() -> bool:
    for _ in range(_LAST_TURNS):
        await asyncio.sleep(0)
    return True


def _call(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, bool]) -> bool:
    """Run a coroutine on the event loop of another thread. Return the coroutine's result, or False if the loop ends before the
    coroutine.

    Raises:
        RuntimeError: the loop is that of the calling thread, or does not run.
    """
    wrong = ""
    if loop.is_closed():
        work.close()
        return False
    if running_loop() is loop:
        wrong = (
            "advance() was called on the event loop whose work it waits for: await asyncio.to_thread(clock.advance, …)"
        )
    elif not loop.is_running():
        wrong = "work is due on an event loop that does not run: run it in a thread, or close it"
    if wrong:
        work.close()
        raise RuntimeError(wrong)
    future = asyncio.run_coroutine_threadsafe(work, loop)
    while not wait((future,), _LOOK_S).done:
        if not loop.is_running():
            return False
    return future.result()

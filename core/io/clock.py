"""The interface to time: code that waits or takes timestamps uses a :class:`Clock`, so that tests need no sleeps.

There are two kinds of waits, in broker time and in real time.

Waits in **broker time** use the clock and :meth:`Clock.call_later`, so that a test's clock controls them. They are:

* the delays of delayed messages and timers
* the intervals of transaction checks
* the time that a pull is held
* the time after which clients, locks, files and connections without traffic expire

Waits in **real time** use the event loop and threads, and do not depend on a test's clock. They are:

* retries to accept or open a connection, or to register
* requests of a slave to its master
* closing and draining a socket
* waits in clients
* writes of the Spark feed's file, which other processes read
* the watchdog of the event loop
* the threads that sync files

Durations of work, and of slices of work, are measured with :func:`stopwatch_of` and :func:`thread_time_of`. A test's clock does
not change these durations, unless it is the clock of a simulation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import asyncio


class Scheduled(Protocol):
    """A scheduled call, returned by :meth:`Clock.call_later`."""

    def cancel(self) -> None:
        """Cancel the scheduled call. Idempotent; without effect if the call was already made."""
        ...


class Clock(Protocol):
    """The source of time in FlintMQ: the machine's clock, or a test's. Thread-safe."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since 1970, as used for store times."""
        ...

    def monotonic_s(self) -> float:
        """Return the time of a monotonic clock in seconds, for deadlines and intervals."""
        ...

    def call_later(
        self,
        loop: asyncio.AbstractEventLoop,
        delay_s: float,
        callback: Callable[[], object],
        rest_s: Callable[[], float] | None = None,
    ) -> Scheduled:
        """Schedule a call after a delay on this clock. Call this method on the loop's thread.

        Args:
            loop: the event loop that calls ``callback``.
            delay_s: the delay in seconds. With 0, ``callback`` is called in the loop's next iteration.
            callback: the function to call.
            rest_s: function for a callback that only polls. It returns the number of seconds in which a poll will find nothing
                unless something arrives, or ``math.inf``. A test's clock skips the polls within these seconds. The machine's
                clock does not call ``rest_s``.
        """
        ...


class SystemClock:
    """The clock of the machine on which the process runs, as a source of time for FlintMQ."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)
    """The function :func:`time.monotonic` itself, without a method around it, because the hot path calls it several times for
    each request."""

    def call_later(
        self,
        loop: asyncio.AbstractEventLoop,
        delay_s: float,
        callback: Callable[[], object],
        rest_s: Callable[[], float] | None = None,
    ) -> Scheduled:
        return loop.call_later(delay_s, callback)


SYSTEM_CLOCK = SystemClock()


@runtime_checkable
class DecidesWork(Protocol):
    """A clock that also determines how long work takes, such as the clock of a simulation."""

    def stopwatch_s(self) -> float:
        """Return the seconds since a moment that is arbitrary, but fixed for this clock, to measure the duration of work."""
        ...


def stopwatch_of(clock: Clock) -> Callable[[], float]:
    """Return a function that returns the seconds since an arbitrary moment, to measure work and to divide it into slices.

    Hot paths keep the function, which saves a call.
    """
    return clock.stopwatch_s if isinstance(clock, DecidesWork) else time.perf_counter


def thread_time_of(clock: Clock) -> Callable[[], float]:
    """Return a function that returns the processor time of the calling thread in seconds, without the time of other threads."""
    return clock.stopwatch_s if isinstance(clock, DecidesWork) else time.thread_time

"""The seam to time: everything that waits or stamps asks a :class:`Clock`, so that tests need no sleep.

Two kinds of waiting are told apart. **Broker time** is what a broker promises: a delay, a timer, the next check of a
transaction, a held pull, the expiry of clients, locks and files, the silence of a peer. It is read from the clock and scheduled
by :meth:`Clock.call_later`, so that a clock that is moved by hand moves it all. **The world's time** goes on whatever a clock
says, and is waited for with the loop and with threads: another try to accept a connection, to connect or to register; a slave's
questions to its master; the farewell and the draining of a socket; what a client waits for; the write of the Spark feed's file,
which other processes read; the watch over a blocked loop; the threads that sync files, because a disk is as slow as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


class Scheduled(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Do not call. Idempotent, also when it was called already."""
        ...


class Clock(Protocol):
    """Time as FlintMQ sees it. Thread-safe."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970 (what the store stamps)."""
        ...

    def monotonic_s(self) -> float:
        """Return the seconds of a clock that never moves back, for deadlines and intervals."""
        ...

    def call_later(
        self,
        loop: asyncio.AbstractEventLoop,
        delay_s: float,
        callback: Callable[[], object],
        rest_s: Callable[[], float] | None = None,
    ) -> Scheduled:
        """Call back after so many seconds of this clock's time. On the thread of the loop.

        Args:
            loop: calls ``callback``.
            delay_s: 0 calls in the loop's next iteration.
            callback: what is due.
            rest_s: of work that merely looks whether something has come: returns for how many seconds there is nothing to do
                unless something comes, ``math.inf`` for ever. A clock that is moved by hand skips the looks until then; the
                machine's clock does not ask.
        """
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)
    """As it stands, without a call around it: the hot path asks several times a request."""

    def call_later(
        self,
        loop: asyncio.AbstractEventLoop,
        delay_s: float,
        callback: Callable[[], object],
        rest_s: Callable[[], float] | None = None,
    ) -> Scheduled:
        return loop.call_later(delay_s, callback)


SYSTEM_CLOCK = SystemClock()

"""Runs the work of features: periodically or soon on the thread of the broker's event loop, or in another thread if the work
blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar, TypeVarTuple, Unpack

from flintmq.core.io.threads import background

if TYPE_CHECKING:
    import asyncio

    from flintmq.core.broker.state import BrokerState

P = ParamSpec("P")
A = TypeVarTuple("A")
T = TypeVar("T")


class Work:
    """Runs work for features, from the start of the services until they stop."""

    __slots__ = ("_state", "every", "pace")

    def __init__(self, state: BrokerState) -> None:
        self._state: Final = state
        self.every: Final = state.timers.every
        """Method that calls a function at an interval, see :meth:`flintmq.core.broker.api.PeriodicTimers.every`."""
        self.pace: Final = state.timers.pace
        """Method that calls a function repeatedly; the function returns the seconds until its next call."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Event loop of the broker, for features that run work on it."""
        return self._state.loop

    def from_thread(self, call: Callable[[Unpack[A]], object], *arguments: *A) -> None:
        """Schedule a call on the loop's thread, without waiting for it. Thread-safe.

        Raises:
            RuntimeError: the loop is closed.
        """
        self._state.loop.call_soon_threadsafe(call, *arguments)

    async def background(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run a blocking function in a thread and return its result."""
        return await background(call, *arguments, **named)

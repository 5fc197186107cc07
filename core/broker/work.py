"""The work of features: on the thread of the broker's loop, now, later, and again and again."""

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
    """Has work done on the loop's thread. What a feature asks for is done from the start of the services to the stop."""

    __slots__ = ("_state", "every", "pace")

    def __init__(self, state: BrokerState) -> None:
        self._state: Final = state
        self.every: Final = state.timers.every
        """Call something every so many seconds; see :class:`flintmq.core.broker.api.PeriodicTimers`."""
        self.pace: Final = state.timers.pace
        """Call something that returns after how many seconds it wants to be called again."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop on whose thread the broker works."""
        return self._state.loop

    def from_thread(self, call: Callable[[Unpack[A]], object], *arguments: *A) -> None:
        """Call something on the loop's thread. Thread-safe; does not wait.

        Raises:
            RuntimeError: the loop is closed.
        """
        self._state.loop.call_soon_threadsafe(call, *arguments)

    async def background(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run something that blocks in a thread, and return what it returns."""
        return await background(call, *arguments, **named)

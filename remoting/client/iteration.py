"""The messages of a consumer without a listener: given to loops, one message at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import attrs

from flintmq.core.running_loop import running_loop
from flintmq.remoting.client.message import MessageExt


class NotTakenError(Exception):
    """No loop will consume the message: the consumer is closed. It is neither consumed nor sent back."""


@attrs.define(eq=False)
class Handed:
    """A message that a worker has given to the loops."""

    message: MessageExt
    consumed: asyncio.Future[None]


class Iteration:
    """Gives messages to loops. Loop thread only.

    ::

        worker ──hand_over──▶ waits ──next_message──▶ a loop has it ──it asks for the next──▶ consumed
                                ▲                          │
                                └──── the loop ends ───────┘

    Args:
        has_listener: whether the messages are a listener's: then nobody may iterate.
    """

    def __init__(self, *, has_listener: bool) -> None:
        self._has_listener = has_listener
        self._handed: deque[Handed] = deque()
        """Messages that no loop has."""
        self._arrived = asyncio.Event()
        """Set while loops that wait have something to look at."""
        self._taken: set[Handed] = set()
        """Messages that loops have."""
        self._has_ended = False
        self._settling: set[asyncio.Future[None]] = set()
        """Messages that are consumed, and whose worker does not know it yet."""

    def begin(self) -> None:
        """Take messages, also after :meth:`end`."""
        self._has_ended = False
        self._arrived.clear()

    def end(self) -> None:
        """Release the messages that no loop has consumed, and end every loop: those that wait for a message get None."""
        self._has_ended = True
        for handed in (*self._taken, *self._handed):
            if not handed.consumed.done():
                handed.consumed.set_exception(NotTakenError())
        self._taken.clear()
        self._handed.clear()
        self._arrived.set()

    async def hand_over(self, message: MessageExt) -> None:
        """Return when a loop has consumed a message. Raise :class:`NotTakenError` if none will."""
        if self._has_ended:
            raise NotTakenError
        consumed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._handed.append(Handed(message, consumed))
        self._arrived.set()
        try:
            await consumed
        finally:
            self._settling.discard(consumed)

    async def settle(self) -> None:
        """Return when the worker knows of every message that counts as consumed."""
        while self._settling:  # noqa: ASYNC110 - the next iterations of the loop end it
            await asyncio.sleep(0)

    def messages(self, timeout_ms: int | None = None, *, owner: object = None) -> LoopMessages:
        """Return an iterator for one loop; a message counts as consumed when the loop asks for the next one.

        The message that a loop had when it ended, by ``break`` or by an exception, is the next one of another loop.

        Args:
            timeout_ms: the loop ends when no message came for so long; None: only when the consumer is closed.
            owner: is not collected while the iterator lives.

        Raises:
            TypeError: there is a listener.
        """
        if self._has_listener:
            raise TypeError("a consumer with a listener gives its messages to the listener")
        return LoopMessages(self, timeout_ms, owner)

    async def next_of(self, loop: LoopMessages) -> MessageExt | None:
        """Return the loop's next message, which makes the one that it had consumed; None once the consumer is closed."""
        had, loop.handed = loop.handed, None
        if had is not None:
            self._taken.discard(had)
            if not had.consumed.done():  # else its queue was given up meanwhile
                had.consumed.set_result(None)
                self._settling.add(had.consumed)
        while True:
            while self._handed:
                handed = self._handed.popleft()
                if not handed.consumed.done():
                    loop.handed = handed
                    self._taken.add(handed)
                    return handed.message
            if self._has_ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()

    def give_back(self, handed: Handed) -> None:
        """Take the message of a loop that has ended; another loop gets it first."""
        self._taken.discard(handed)
        if not handed.consumed.done():
            self._handed.appendleft(handed)
            self._arrived.set()


class LoopMessages(AsyncIterator[MessageExt]):
    """The iterator of one ``async for`` loop. Loop thread only."""

    def __init__(self, iteration: Iteration, timeout_ms: int | None = None, owner: object = None) -> None:
        self._owner = owner
        self._timeout_s = None if timeout_ms is None else timeout_ms / 1000
        self.handed: Handed | None = None
        """The message that the loop has."""
        self._iteration = iteration
        self._loop = asyncio.get_running_loop()

    async def __anext__(self) -> MessageExt:
        message = await self.next_message()
        if message is None:
            raise StopAsyncIteration
        return message

    async def next_message(self) -> MessageExt | None:
        """Return the next message; None once the consumer is closed, or where none came in time."""
        if self._timeout_s is None:
            return await self._iteration.next_of(self)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._iteration.next_of(self)
        except TimeoutError:
            return None

    def end(self) -> None:
        """End the loop: its message, if it has one, is given to another loop."""
        handed, self.handed = self.handed, None
        if handed is not None:
            self._iteration.give_back(handed)

    async def aclose(self) -> None:
        """End the loop, as :meth:`end` does: for ``contextlib.aclosing``."""
        self.end()

    def __del__(self) -> None:
        """End a loop that was left by ``break`` or by an exception, wherever its iterator is collected."""
        if self.handed is None:
            return
        if running_loop() is self._loop:
            self.end()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._iteration.give_back, self.handed)

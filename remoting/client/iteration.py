"""Iteration over the messages of a consumer without a listener, by any number of ``async for`` loops."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import attrs

from flintmq.core.running_loop import running_loop
from flintmq.remoting.client.message import MessageExt


class NotTakenError(Exception):
    """The consumer was closed before an ``async for`` loop consumed a message.

    The message is neither consumed nor sent back to the broker.
    """


@attrs.define(eq=False)
class Handed:
    """A message that a worker offers to the ``async for`` loops, with the future that the worker waits for."""

    message: MessageExt
    consumed: asyncio.Future[None]


class Iteration:
    """Distributes messages from the consuming tasks (workers) to the ``async for`` loops.

    Used only on the event loop's thread.

    ::

        worker ──hand_over──▶ waits ──next_message──▶ a loop has it ──it asks for the next──▶ consumed
                                ▲                          │
                                └──── the loop ends ───────┘

    Args:
        has_listener: whether the consumer has a listener; if it has, iterating raises ``TypeError``.
    """

    def __init__(self, *, has_listener: bool) -> None:
        self._has_listener = has_listener
        self._handed: deque[Handed] = deque()
        """Messages that no ``async for`` loop has taken yet."""
        self._arrived = asyncio.Event()
        """Event that is set when a message arrives or the iteration ends. It wakes the ``async for`` loops that wait."""
        self._taken: set[Handed] = set()
        """Messages that ``async for`` loops have taken and not consumed yet."""
        self._has_ended = False
        self._settling: set[asyncio.Future[None]] = set()
        """Futures of the messages that ``async for`` loops have just consumed. A worker of the consumer waits for each
        future, and removes it when :meth:`hand_over` returns."""

    def begin(self) -> None:
        """Begin to accept messages that workers offer; a call after :meth:`end` begins again."""
        self._has_ended = False
        self._arrived.clear()

    def end(self) -> None:
        """End every ``async for`` loop, and raise :class:`NotTakenError` in the workers whose messages were not consumed."""
        self._has_ended = True
        for handed in (*self._taken, *self._handed):
            if not handed.consumed.done():
                handed.consumed.set_exception(NotTakenError())
        self._taken.clear()
        self._handed.clear()
        self._arrived.set()

    async def hand_over(self, message: MessageExt) -> None:
        """Offer a message to the ``async for`` loops, and return when a loop has consumed the message.

        Raises:
            NotTakenError: the iteration ended before a loop consumed the message.
        """
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
        """Wait until no consuming task of the consumer (worker) waits for a message that an ``async for`` loop has already
        consumed. A worker waits for its message in :meth:`hand_over`. The consumer calls this method when it leaves its group,
        before it ends the workers."""
        while self._settling:  # noqa: ASYNC110 - the next iterations of the loop end it
            await asyncio.sleep(0)

    def messages(self, timeout_ms: int | None = None, *, owner: object = None) -> LoopMessages:
        """Return an iterator for one ``async for`` loop. A message counts as consumed when the loop requests the next one.

        If ``break`` or an exception ends a loop, another loop gets the current message of the ended loop next.

        Args:
            timeout_ms: the loop ends when no message arrives for this long; None: only when the consumer is closed.
            owner: an object that the iterator keeps from being garbage-collected.

        Raises:
            TypeError: the consumer has a listener.
        """
        if self._has_listener:
            raise TypeError("a consumer with a listener cannot be iterated, because the listener gets its messages")
        return LoopMessages(self, timeout_ms, owner)

    async def next_of(self, loop: LoopMessages) -> MessageExt | None:
        """Mark a loop's current message as consumed, and return the loop's next message; None if the consumer is closed."""
        had, loop.handed = loop.handed, None
        if had is not None:
            self._taken.discard(had)
            # If the consumer lost the queue or was closed, the future ``consumed`` is done, and set_result() would raise.
            if not had.consumed.done():
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
        """Put the message of an ended ``async for`` loop before the waiting messages, so that another loop gets it next."""
        self._taken.discard(handed)
        if not handed.consumed.done():
            self._handed.appendleft(handed)
            self._arrived.set()


class LoopMessages(AsyncIterator[MessageExt]):
    """The iterator of one ``async for`` loop over a consumer's messages. Used only on the event loop's thread."""

    def __init__(self, iteration: Iteration, timeout_ms: int | None = None, owner: object = None) -> None:
        self._owner = owner
        self._timeout_s = None if timeout_ms is None else timeout_ms / 1000
        self.handed: Handed | None = None
        """The message that the ``async for`` loop is consuming; None if there is none."""
        self._iteration = iteration
        self._loop = asyncio.get_running_loop()

    async def __anext__(self) -> MessageExt:
        message = await self.next_message()
        if message is None:
            raise StopAsyncIteration
        return message

    async def next_message(self) -> MessageExt | None:
        """Return the next message; None if the consumer is closed, or no message arrived within the timeout."""
        if self._timeout_s is None:
            return await self._iteration.next_of(self)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._iteration.next_of(self)
        except TimeoutError:
            return None

    def end(self) -> None:
        """End an ``async for`` loop; the loop's current message, if any, goes to another loop."""
        handed, self.handed = self.handed, None
        if handed is not None:
            self._iteration.give_back(handed)

    async def aclose(self) -> None:
        """End the ``async for`` loop like :meth:`end`; for use with ``contextlib.aclosing``."""
        self.end()

    def __del__(self) -> None:
        """End a loop that ``break`` or an exception has left; the garbage collector can call this method on any thread."""
        if self.handed is None:
            return
        if running_loop() is self._loop:
            self.end()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._iteration.give_back, self.handed)

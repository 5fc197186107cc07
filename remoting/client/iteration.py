"""The messages of a consumer without a listener: handed to a loop, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from flintmq.remoting.client.message import MessageExt


class Iteration:
    """Hands messages over to a loop. Loop thread only.

    ::

        worker ──hand_over──▶ waits ──next_message──▶ in hand ──the next one is asked for──▶ consumed, and the worker goes on

    Args:
        has_listener: whether the messages are a listener's: then nobody may iterate.
    """

    def __init__(self, *, has_listener: bool) -> None:
        self._has_listener = has_listener
        self._handed: asyncio.Queue[tuple[MessageExt, asyncio.Future[None]] | None] = asyncio.Queue()
        self._in_hand: tuple[MessageExt, asyncio.Future[None]] | None = None
        self._has_ended = False
        self._settling: set[asyncio.Future[None]] = set()
        """Of messages that are consumed, and whose worker does not know it yet."""

    def begin(self) -> None:
        """Take messages, after :meth:`end`, too."""
        self._has_ended = False

    def end(self) -> None:
        """Let go of the messages that were handed over, and end every loop: those that wait for a message get None."""
        self._has_ended = True
        handed = [self._in_hand]
        while not self._handed.empty():
            handed.append(self._handed.get_nowait())
        for one in filter(None, handed):
            one[1].cancel()
        self._in_hand = None
        self._handed.put_nowait(None)

    async def hand_over(self, message: MessageExt) -> None:
        """Return when a loop has consumed a message; raise ``CancelledError`` when none will."""
        consumed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._has_ended:
            consumed.cancel()  # and so the task that pulls, or consumes: nobody takes the message
        else:
            self._handed.put_nowait((message, consumed))
        try:
            await consumed
        finally:
            self._settling.discard(consumed)

    async def settle(self) -> None:
        """Return when every message that counts as consumed is known to be by the worker that handed it over."""
        while self._settling:  # noqa: ASYNC110 - the next turn of the loop ends it
            await asyncio.sleep(0)

    async def messages(self) -> AsyncIterator[MessageExt]:
        """Iterate over the messages; one counts as consumed when the next one is asked for.

        The message that ended a loop, by ``break`` or by an exception, comes again in the next loop.

        Raises:
            TypeError: there is a listener.
        """
        message = await self.next_message(again=True)
        while message is not None:
            yield message
            message = await self.next_message()

    async def next_message(self, *, again: bool = False) -> MessageExt | None:
        """Return the next message, which makes the one before count as consumed; with ``again`` that one once more.

        Returns:
            None once the consumer is closed.

        Raises:
            TypeError: there is a listener.
        """
        if self._has_listener:
            raise TypeError("a consumer with a listener hands its messages to the listener")
        if self._in_hand is not None:
            message, consumed = self._in_hand
            if not consumed.done():  # else its queue was given up meanwhile
                if again:
                    return message
                consumed.set_result(None)
                self._settling.add(consumed)
        self._in_hand = None
        while True:
            handed = await self._handed.get()
            if handed is not None and not handed[1].done():
                self._in_hand = handed
                return handed[0]
            if handed is None and self._has_ended:
                self._handed.put_nowait(None)  # for who else waits
                return None

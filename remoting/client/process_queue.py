"""What one consumer holds of one queue: messages that were pulled and are not consumed yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from flintmq.core.broker.message_queue import MessageQueue
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.wire.bodies import ProcessQueueInfo


class ProcessQueue:
    """Pulled, not yet consumed. Loop thread only.

    Args:
        queue: which one.
        pull_queue_offset: where pulling begins.
        max_messages: with so many waiting, :meth:`has_room` holds.
    """

    def __init__(self, queue: MessageQueue, pull_queue_offset: int, max_messages: int) -> None:
        self.queue = queue
        self.pull_queue_offset = pull_queue_offset
        self.saved_offset = pull_queue_offset
        """What was stored as consumed."""
        self.dropped = False
        """True once the queue belongs to another member: what is left is not consumed."""
        self.pulling = False
        self.task: asyncio.Task[None] | None = None
        self.last_pull_timestamp_ms = 0
        self.last_consume_timestamp_ms = 0
        self._max_messages = max_messages
        self._waiting: dict[int, MessageExt] = {}
        self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def commit_offset(self) -> int:
        """Everything below it is consumed."""
        return min(self._waiting, default=self.pull_queue_offset)

    @property
    def message_count(self) -> int:
        return len(self._waiting)

    def put(self, messages: Iterable[MessageExt]) -> None:
        """Takes what was pulled."""
        for message in messages:
            self._waiting[message.queue_offset] = message
            self._waiting_bytes += len(message.body)
        if len(self._waiting) >= self._max_messages:
            self._room.clear()

    def done(self, message: MessageExt) -> None:
        """The message is consumed, or cared for elsewhere."""
        gone = self._waiting.pop(message.queue_offset, None)
        if gone is not None:
            self._waiting_bytes -= len(gone.body)
        if len(self._waiting) < self._max_messages:
            self._room.set()

    async def has_room(self) -> None:
        """Returns once fewer messages wait than are allowed to."""
        await self._room.wait()

    def info(self, *, locked: bool) -> ProcessQueueInfo:
        """As consumers report it on request (307)."""
        return ProcessQueueInfo(
            cached_msg_count=len(self._waiting),
            cached_msg_max_queue_offset=max(self._waiting, default=0),
            cached_msg_min_queue_offset=min(self._waiting, default=0),
            cached_msg_size_mib=self._waiting_bytes >> 20,
            commit_consumer_offset=self.commit_offset,
            dropped=self.dropped,
            last_consume_timestamp_ms=self.last_consume_timestamp_ms,
            last_pull_timestamp_ms=self.last_pull_timestamp_ms,
            locked=locked,
        )

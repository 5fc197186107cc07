"""The messages of one queue that a consumer has pulled and not consumed yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from flintmq.core.broker.message_queue import MessageQueue
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.wire.bodies import ProcessQueueInfo


class ProcessQueue:
    """Messages that were pulled and are not consumed yet. Loop thread only.

    Args:
        queue: the queue.
        pull_queue_offset: the queue offset where pulling begins.
        max_messages: while so many messages are held, :meth:`has_room` waits.
    """

    def __init__(self, queue: MessageQueue, pull_queue_offset: int, max_messages: int) -> None:
        self.queue = queue
        self.pull_queue_offset = pull_queue_offset
        self.saved_offset = pull_queue_offset
        """The consumer offset that was stored last."""
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
        """Return the queue offset below which everything is consumed."""
        return min(self._waiting, default=self.pull_queue_offset)

    @property
    def message_count(self) -> int:
        """Return how many messages are held."""
        return len(self._waiting)

    def put(self, messages: Iterable[MessageExt]) -> None:
        """Hold messages that were pulled."""
        for message in messages:
            self._waiting[message.queue_offset] = message
            self._waiting_bytes += len(message.body)
        if len(self._waiting) >= self._max_messages:
            self._room.clear()

    def done(self, message: MessageExt) -> None:
        """Release a message that is consumed, or was sent back."""
        gone = self._waiting.pop(message.queue_offset, None)
        if gone is not None:
            self._waiting_bytes -= len(gone.body)
        if len(self._waiting) < self._max_messages:
            self._room.set()

    async def has_room(self) -> None:
        """Wait until fewer messages are held than are allowed."""
        await self._room.wait()

    def info(self, *, locked: bool) -> ProcessQueueInfo:
        """Return the report that a consumer gives on GET_CONSUMER_RUNNING_INFO (307)."""
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

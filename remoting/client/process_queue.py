"""The messages of one queue pulled but not yet consumed, limited in number and size (``ProcessQueue`` of RocketMQ)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.wire.bodies import ProcessQueueInfo


@attrs.frozen
class CacheLimits:
    """The limits on the unconsumed messages of one queue. Pulling from the queue pauses while one of the limits is reached."""

    messages: int
    size_bytes: int
    """Maximum total size of the bodies of a queue's unconsumed messages, in bytes."""
    span: int
    """Maximum number of queue offsets from the first unconsumed message to the last pulled message.

    This limits how many later messages are consumed while one message takes long. If the process dies, the later messages are
    delivered again, because the committed offset is the offset of the slow message."""


class ProcessQueue:
    """The messages of one queue that were pulled and are not consumed yet. Used only on the event loop's thread.

    Args:
        queue: the queue that the messages belong to.
        pull_queue_offset: the queue offset where pulling begins.
        limits: :meth:`has_room` waits while one of these limits is reached.
    """

    def __init__(self, queue: MessageQueue, pull_queue_offset: int, limits: CacheLimits) -> None:
        self.queue = queue
        self.pull_queue_offset = pull_queue_offset
        self.saved_offset = pull_queue_offset
        """The last consumer offset that was stored for this queue."""
        self.dropped = False
        """Whether the queue now belongs to another member, so that this member does not consume the remaining messages."""
        self.consuming = False
        """Whether an orderly listener is consuming a message of this queue. The task of the queue is not cancelled while this
        is true."""
        self.task: asyncio.Task[None] | None = None
        self.last_pull_timestamp_ms = 0
        self.last_consume_timestamp_ms = 0
        self._limits = limits
        self._waiting: dict[int, MessageExt] = {}
        """Unconsumed messages, keyed by queue offset. Their order is ascending, because pulls return messages in order."""
        self._size_bytes = 0
        self._last_queue_offset = pull_queue_offset
        self._room = asyncio.Event()
        self._room.set()

    @property
    def commit_offset(self) -> int:
        """The queue offset of the first message that is not consumed yet, which is the offset to commit."""
        return next(iter(self._waiting), self.pull_queue_offset)

    def put(self, messages: Sequence[MessageExt]) -> None:
        """Add pulled messages to the process queue, in the order of their queue offsets."""
        if not messages:
            return
        for message in messages:
            self._waiting[message.queue_offset] = message
            self._size_bytes += len(message.body)
        self._last_queue_offset = messages[-1].queue_offset
        self._look_for_room()

    def done(self, messages: Sequence[MessageExt]) -> None:
        """Remove messages from the process queue that were consumed, or sent back to the broker."""
        for message in messages:
            if self._waiting.pop(message.queue_offset, None) is not None:
                self._size_bytes -= len(message.body)
        if not self._room.is_set():
            self._look_for_room()

    def _look_for_room(self) -> None:
        limits = self._limits
        span = self._last_queue_offset - self.commit_offset if self._waiting else 0
        if len(self._waiting) < limits.messages and self._size_bytes < limits.size_bytes and span < limits.span:
            self._room.set()
        else:
            self._room.clear()

    async def has_room(self) -> None:
        """Wait until the unconsumed messages of the queue are below all limits."""
        await self._room.wait()

    def info(self, *, locked: bool) -> ProcessQueueInfo:
        """Return this queue's part of a consumer's answer to GET_CONSUMER_RUNNING_INFO (307)."""
        return ProcessQueueInfo(
            cached_msg_count=len(self._waiting),
            cached_msg_max_queue_offset=max(self._waiting, default=0),
            cached_msg_min_queue_offset=min(self._waiting, default=0),
            cached_msg_size_mib=self._size_bytes >> 20,
            commit_consumer_offset=self.commit_offset,
            dropped=self.dropped,
            last_consume_timestamp_ms=self.last_consume_timestamp_ms,
            last_pull_timestamp_ms=self.last_pull_timestamp_ms,
            locked=locked,
        )

"""The messages of one queue that were pulled and are not consumed yet, within bounds (``ProcessQueue`` of RocketMQ)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.wire.bodies import ProcessQueueInfo


@attrs.frozen
class CacheLimits:
    """How much of one queue is held before pulling pauses; each at least by one message."""

    messages: int
    size_bytes: int
    """Of the bodies."""
    span: int
    """Queue offsets from the first message that is not consumed to the last one that was pulled: while one is slow, the rest
    may go ahead so far, and all of it comes again when this process dies."""


class ProcessQueue:
    """The messages of one queue that were pulled and are not consumed yet. Loop thread only.

    Args:
        queue: the queue.
        pull_queue_offset: the queue offset where pulling begins.
        limits: while one of them is reached, :meth:`has_room` waits.
    """

    def __init__(self, queue: MessageQueue, pull_queue_offset: int, limits: CacheLimits) -> None:
        self.queue = queue
        self.pull_queue_offset = pull_queue_offset
        self.saved_offset = pull_queue_offset
        """The consumer offset that was stored last."""
        self.dropped = False
        """True once the queue belongs to another member: what is left is not consumed."""
        self.consuming = False
        """Whether an orderly listener has a message of the queue: then its task is not cancelled."""
        self.task: asyncio.Task[None] | None = None
        self.last_pull_timestamp_ms = 0
        self.last_consume_timestamp_ms = 0
        self._limits = limits
        self._waiting: dict[int, MessageExt] = {}
        """By queue offset, in its order, for pulls come in order."""
        self._size_bytes = 0
        self._last_queue_offset = pull_queue_offset
        self._room = asyncio.Event()
        self._room.set()

    @property
    def commit_offset(self) -> int:
        """Return the queue offset below which everything is consumed."""
        return next(iter(self._waiting), self.pull_queue_offset)

    def put(self, messages: Sequence[MessageExt]) -> None:
        """Hold messages that were pulled."""
        if not messages:
            return
        for message in messages:
            self._waiting[message.queue_offset] = message
            self._size_bytes += len(message.body)
        self._last_queue_offset = messages[-1].queue_offset
        self._look_for_room()

    def done(self, messages: Sequence[MessageExt]) -> None:
        """Release messages that are consumed, or were sent back."""
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
        """Wait until less is held than is allowed."""
        await self._room.wait()

    def info(self, *, locked: bool) -> ProcessQueueInfo:
        """Return the report that a consumer gives on GET_CONSUMER_RUNNING_INFO (307)."""
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

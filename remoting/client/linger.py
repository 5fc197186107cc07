"""Gathers concurrent sends of one topic into batches: each caller has its own result, and all share the cost of one request.

RocketMQ 5's client has the like in ProduceAccumulator; here a producer of 4.9's protocol has it, with any broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import FlintError, RemotingConnectError
from flintmq.core.limits import BATCH_MAX_MESSAGES
from flintmq.core.record.batch import BatchItem
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.prepared import Prepared, Preparer
from flintmq.remoting.client.send_result import SendResult, send_result, send_results
from flintmq.remoting.wire.command import RemotingCommand

LINGER_MAX_BYTES: Final = 256 * 1024

Stored = Callable[[Prepared, MessageQueue | None, int], Awaitable[tuple[MessageQueue, RemotingCommand]]]
"""Sends a request within so many milliseconds; returns the queue that it went to, and the answer."""
LaneKey = tuple[str, bool, MessageQueue | None, int]
"""Topic, ``wait_store``, the queue where the caller named one, timeout in milliseconds: what one request has in common."""


Entry = tuple[Message, str, BatchItem, "asyncio.Future[SendResult]"]
"""A message, its id, its form in a batch, and what its caller waits for."""


class _Lane:
    """Sends that will go together, in the order in which they came."""

    __slots__ = ("is_sending", "key", "size_bytes", "timer", "waiting")

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.waiting: list[Entry] = []
        self.size_bytes = 0
        self.timer: asyncio.Handle | None = None
        self.is_sending = False
        """Only where callers name the queue: the next request waits for the answer to this one, so that order is kept."""


class Gatherer:
    """Gathers sends for ``linger_ms``, or until a batch is full. Loop thread only.

    Args:
        stored: sends what was gathered.
        preparer: makes requests of messages.
        linger_ms: how long a message waits for others; 0: for those that are sent in the same turn of the event loop.
        max_bytes: a batch gets no longer.

    Raises:
        ValueError: ``linger_ms`` is negative.
    """

    def __init__(self, stored: Stored, preparer: Preparer, linger_ms: float, max_bytes: int = LINGER_MAX_BYTES) -> None:
        if linger_ms < 0:
            raise ValueError(
                f"linger_ms is {linger_ms:g}: 0 gathers what is sent at the same time, None gathers nothing"
            )
        self._stored = stored
        self._preparer = preparer
        self._linger_s = linger_ms / 1000
        self._max_bytes = min(max_bytes, preparer.max_message_bytes)
        self._lanes: dict[LaneKey, _Lane] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._closed = False

    def add(self, message: Message, queue: MessageQueue | None, timeout_ms: int) -> asyncio.Future[SendResult]:
        """Return the result to come of a message; cancelling it takes the message back, unless it has left.

        Args:
            message: what to send; one that :meth:`~flintmq.remoting.client.prepared.Preparer.goes_in_batch`.
            queue: where to; None: to any, with the others.
            timeout_ms: from when its request leaves.

        Raises:
            ValueError: the message cannot be sent.
            RemotingConnectError: the producer is closed.
        """
        if self._closed:
            raise RemotingConnectError("this producer is closed")
        msg_id, item = self._preparer.item(message)
        key = (message.topic, message.wait_store, queue, timeout_ms)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        elif lane.size_bytes + item.size_bytes > self._max_bytes or len(lane.waiting) >= BATCH_MAX_MESSAGES:
            self._leave(lane)
            lane = self._lanes.setdefault(key, lane)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[SendResult] = loop.create_future()
        lane.waiting.append((message, msg_id, item, result))
        lane.size_bytes += item.size_bytes
        if lane.timer is None and not lane.is_sending:
            lane.timer = (
                loop.call_later(self._linger_s, self._leave, lane)
                if self._linger_s
                else loop.call_soon(self._leave, lane)
            )
        return result

    async def close(self) -> None:
        """Send what was gathered, and wait until all of it is answered. Further messages are refused."""
        self._closed = True
        for lane in list(self._lanes.values()):
            self._leave(lane)
        while self._sending:
            await asyncio.gather(*self._sending, return_exceptions=True)

    def _leave(self, lane: _Lane) -> None:
        """Send what a lane holds; where order is asked for, not before the request ahead of it is answered."""
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        while lane.waiting and not lane.is_sending:
            if together := self._take(lane):
                lane.is_sending = lane.key[2] is not None
                task = asyncio.create_task(self._send(lane, together))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
        if not lane.waiting and not lane.is_sending:
            self._lanes.pop(lane.key, None)

    def _take(self, lane: _Lane) -> list[Entry]:
        """Take the first messages that one batch holds off a lane; without those that were taken back."""
        taken = size_bytes = 0
        for _, _, item, _ in lane.waiting[:BATCH_MAX_MESSAGES]:
            if taken and size_bytes + item.size_bytes > self._max_bytes:
                break
            taken += 1
            size_bytes += item.size_bytes
        together, lane.waiting = lane.waiting[:taken], lane.waiting[taken:]
        lane.size_bytes -= size_bytes
        return [entry for entry in together if not entry[3].cancelled()]

    async def _send(self, lane: _Lane, together: list[Entry]) -> None:
        message = together[0][0]
        _, _, queue, timeout_ms = lane.key
        try:
            if len(together) == 1:
                prepared = self._preparer.one(message)
                results = [send_result(prepared.msg_id, *await self._stored(prepared, queue, timeout_ms))]
            else:
                msg_ids = [msg_id for _, msg_id, _, _ in together]
                prepared = self._preparer.joined(message, [(msg_id, item) for _, msg_id, item, _ in together])
                results = send_results(msg_ids, *await self._stored(prepared, queue, timeout_ms))
        except (FlintError, ValueError) as failure:
            self._tell(together, failure)
        except asyncio.CancelledError:
            self._tell(together, RemotingConnectError("this client is closed"))
            raise
        else:
            for entry, result in zip(together, results, strict=True):
                if not entry[3].done():
                    entry[3].set_result(result)
        finally:
            lane.is_sending = False
            self._leave(lane)

    @staticmethod
    def _tell(together: list[Entry], failure: Exception) -> None:
        for _, _, _, result in together:
            if not result.done():
                result.set_exception(failure)

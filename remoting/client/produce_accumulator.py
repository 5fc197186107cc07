"""Joins the sends of many callers into batches, to save requests; each caller gets the result of its message.

::

    send ──▶ waiting messages ──linger time over / full / previous batch answered──▶ batch ──▶ a SendResult per message
             └ of one topic; or of one queue, if callers choose queues, directly or by a sharding key

See ``ProduceAccumulator`` of RocketMQ 5, and Kafka's ``linger.ms``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Final

import msgspec

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import (
    FlintError,
    InvalidArgumentError,
    RefusedError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
)
from flintmq.core.limits import BATCH_MAX_MESSAGES
from flintmq.core.record.batch import BatchItem
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.prepared import Prepared, Preparer
from flintmq.remoting.client.send_result import SendResult, send_results
from flintmq.remoting.client.sending import Sender
from flintmq.remoting.wire.codes import ResponseCode

LINGER_MAX_BYTES: Final = 256 * 1024
TOGETHER_S: Final = 0.01
"""Maximum difference in seconds between deadlines that count as equal. Because of this tolerance, few batches need a timer."""

_LaneKey = tuple[str, bool, MessageQueue | None, int]
"""Key of messages that may be sent together: topic, ``wait_store``, queue, and timeout in ms. The queue is None if the caller
chose no queue. The timeout is 0 if the caller chose a queue."""


class _Entry(msgspec.Struct, gc=False):
    """A message that waits to be sent in a batch, with the future of its send result."""

    message: Message
    timeout_ms: int
    deadline_s: float
    """Deadline of the send, as a time of the event loop's clock. After this time the message is not sent any more."""
    alone: bool
    """Whether the message must be sent by itself, because a batch cannot contain it."""
    stored: asyncio.Future[SendResult]

    is_sent: bool = False
    """Whether a request with the message was sent, so that it may be stored even if no answer arrives."""

    def expire(self) -> None:
        """Fail the send of a message with a timeout error, whose text says whether the message was sent to a broker."""
        topic = self.message.topic
        what = (
            f"a message of {topic} was sent and not answered" if self.is_sent else f"a message of {topic} was not sent"
        )
        self.fail(RemotingTimeoutError(f"{what} within {self.timeout_ms} ms"))

    def fail(self, failure: Exception) -> None:
        """Fail the send of a message with an error, unless the caller of the send has already given up."""
        if not self.stored.done():
            self.stored.set_exception(failure)


class _Lane(msgspec.Struct):
    """The messages for one topic or queue that wait for the next batch.

    If the messages are for one queue, their batches are sent one after the other.
    """

    key: _LaneKey
    entries: list[_Entry] = msgspec.field(default_factory=list)
    leaving: list[_Entry] = msgspec.field(default_factory=list)
    size_bytes: int = 0
    departure: asyncio.Handle | None = None
    departs_s: float = 0.0
    """The time, on the loop's clock, at which the next batch is sent."""
    is_leaving: bool = False
    expiry: asyncio.TimerHandle | None = None
    """Timer that fails messages whose deadlines have passed. It expires at the earliest deadline of the waiting messages, or
    earlier. None if the deadlines are equal, because the timeout of the send request then fails all messages in time."""


class ProduceAccumulator:
    """Joins the sends of one producer into batches. Used only on the event loop's thread.

    Batches without a chosen queue are sent independently of each other. Messages for one queue, chosen directly or by a
    sharding key, keep their order: a batch collects messages until the previous batch is answered, and is then sent.

    Args:
        sender: sends the batches.
        preparer: encodes the messages and batches.
        linger_ms: how long the first message of a batch waits for others.
        max_bytes: the maximum total size of the bodies in a batch.

    Raises:
        ValueError: ``linger_ms`` is negative.
    """

    def __init__(self, sender: Sender, preparer: Preparer, linger_ms: float, max_bytes: int = LINGER_MAX_BYTES) -> None:
        if linger_ms < 0:
            raise InvalidArgumentError(
                f"linger_ms is {linger_ms:g}, and must be 0 or more; None sends each message by itself"
            )
        self._sender = sender
        self._preparer = preparer
        self._linger_s = linger_ms / 1000
        self._linger_max_timeout_ms = 2 * linger_ms
        """Timeout, in ms, below which a message shortens the wait of its batch. A batch is sent when half of a message's
        timeout has passed, so that the other half is left for sending. Timeouts of twice the linger time or more therefore do
        not shorten the wait."""
        self._max_bytes = min(max_bytes, preparer.max_message_bytes)
        self._lanes: dict[_LaneKey, _Lane] = {}
        self._unrouted: dict[str, list[tuple[str, _Entry]]] = {}
        """Messages with sharding keys that wait for their topic's route, in order, keyed by topic."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False
        """Whether the producer is closed, so that further messages are refused."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        """Return the total number of waiting batches, of topics that wait for a route, and of running tasks.

        The number is 0 if no caller of :meth:`add` waits for a result.
        """
        return len(self._lanes) + len(self._unrouted) + len(self._tasks)

    def add(
        self, message: Message, queue: MessageQueue | None, sharding_key: str | None, timeout_ms: int
    ) -> asyncio.Future[SendResult] | None:
        """Add a message to a batch, and return the future of its result; None if the caller must send the message by itself.

        If the caller cancels the future before the batch is sent, the message is not sent.

        Raises:
            RemotingConnectError: the producer is closed.
            RefusedError: the topic has no writable queue.
        """
        alone = not self._preparer.goes_in_batch(message)
        if alone and queue is None and sharding_key is None:
            return None
        if len(message.body) > self._preparer.max_message_bytes:
            return None  # A message that is too long goes into no batch. The caller sends it alone, and gets the error.
        if self.is_closed:
            raise RemotingConnectError("this producer is closed")
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        entry = _Entry(message, timeout_ms, loop.time() + timeout_ms / 1000, alone, loop.create_future())
        if sharding_key is not None:
            topic = message.topic
            route = None if topic in self._unrouted else self._sender.client.routes.fresh(topic)
            if route is None:
                self._put_later(topic, sharding_key, entry)
                return entry.stored
            queue = route.queue_by_key(sharding_key)
        self._put(entry, queue)
        return entry.stored

    async def close(self) -> None:
        """Refuse further messages, send the messages that wait for a batch, and wait until all batches are answered."""
        self.is_closed = True
        try:
            while len(self):
                for lane in list(self._lanes.values()):
                    self._leave(lane)
                await asyncio.gather(*self._tasks, return_exceptions=True)
                # Since Python 3.12 gather() does not suspend if all tasks are finished. The sleep lets their callbacks run.
                await asyncio.sleep(0)
        finally:
            for task in self._tasks:
                task.cancel()

    # --- internals ---

    def _put(self, entry: _Entry, queue: MessageQueue | None) -> None:
        message = entry.message
        key = (message.topic, message.wait_store, queue, entry.timeout_ms if queue is None else 0)
        lane = self._lanes.get(key)
        length_bytes = len(message.body)
        if lane is not None and (
            lane.size_bytes + length_bytes > self._max_bytes or len(lane.entries) >= BATCH_MAX_MESSAGES
        ):
            self._leave(lane)
            # If the caller chose no queue, the full batch is sent at once, and the message starts a new batch.
            # If the caller chose a queue, the message is sent after the queue's earlier batches, to keep the queue's order.
            lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        if lane.expiry is not None:
            if entry.deadline_s < lane.expiry.when():
                self._expire_at(lane, entry.deadline_s)
        elif lane.is_leaving or (lane.entries and abs(entry.deadline_s - lane.entries[0].deadline_s) > TOGETHER_S):
            waiting = (*lane.leaving, *lane.entries, entry)
            self._expire_at(lane, min(one.deadline_s for one in waiting))
        lane.entries.append(entry)
        lane.size_bytes += length_bytes
        if not lane.is_leaving and (lane.departure is None or entry.timeout_ms < self._linger_max_timeout_ms):
            self._depart(lane, entry)

    def _depart(self, lane: _Lane, entry: _Entry) -> None:
        """Schedule the time at which the collected messages of a topic or queue are sent as batches.

        The messages are sent after the linger time, or earlier, so that half of each message's timeout is left for sending.
        """
        loop = entry.stored.get_loop()
        if self._linger_s > 0:
            departs_s = min(loop.time() + self._linger_s, entry.deadline_s - entry.timeout_ms / 2_000)
            if lane.departure is None or departs_s < lane.departs_s:
                if lane.departure is not None:
                    lane.departure.cancel()
                lane.departure, lane.departs_s = loop.call_at(departs_s, self._leave, lane), departs_s
        else:
            lane.departure = loop.call_soon(self._leave, lane)

    def _expire_at(self, lane: _Lane, deadline_s: float) -> None:
        if lane.expiry is not None:
            lane.expiry.cancel()
        lane.expiry = asyncio.get_running_loop().call_at(deadline_s, self._expire, lane)

    def _expire(self, lane: _Lane) -> None:
        """Fail those messages of a topic or queue whose deadlines have passed. The other messages continue to wait."""
        lane.expiry = None
        now_s = asyncio.get_running_loop().time()
        waiting = [entry for entry in (*lane.leaving, *lane.entries) if not entry.stored.done()]
        for entry in waiting:
            if entry.deadline_s <= now_s:
                entry.expire()
        left = [entry.deadline_s for entry in waiting if entry.deadline_s > now_s]
        if left:
            self._expire_at(lane, min(left))

    def _put_later(self, topic: str, sharding_key: str, entry: _Entry) -> None:
        """Add a message to a batch once the route of the message's topic is known, in the order of the calls."""
        waiting = self._unrouted.setdefault(topic, [])
        waiting.append((sharding_key, entry))
        expiry = entry.stored.get_loop().call_at(entry.deadline_s, entry.expire)
        entry.stored.add_done_callback(lambda _: expiry.cancel())
        if len(waiting) > 1:
            return

        def ended(task: asyncio.Task[None]) -> None:
            if self._unrouted.get(topic) is waiting:
                del self._unrouted[topic]
            self._ended(task, [entry for _, entry in waiting])

        self._start(self._put_when_routed(topic, waiting), ended)

    async def _put_when_routed(self, topic: str, waiting: list[tuple[str, _Entry]]) -> None:
        try:
            route = await self._sender.route(topic, waiting[0][1].timeout_ms)
            for sharding_key, entry in waiting:
                if not entry.stored.done():
                    self._put(entry, route.queue_by_key(sharding_key))
            waiting.clear()
        except Exception as failure:  # Hooks can raise exceptions of any type, so all types are caught.
            for _, entry in waiting:
                entry.fail(_copy(failure))
        # The wait for the topic's route has ended, so the topic is removed from the waiting messages in ``_unrouted``.
        # If only the callback ended() removed the topic, messages sent in the meantime would still wait, and never be sent.
        self._unrouted.pop(topic)

    def _leave(self, lane: _Lane) -> None:
        if lane.departure is not None:
            lane.departure.cancel()
            lane.departure = None
        if lane.is_leaving:
            return
        lane.is_leaving = True
        if lane.key[2] is None:
            self._forget(lane)  # If no queue was chosen, the next message starts a new batch.

        def ended(task: asyncio.Task[None]) -> None:
            self._forget(lane)
            if lane.expiry is not None:
                lane.expiry.cancel()
            self._ended(task, [*lane.leaving, *lane.entries])

        self._start(self._send_all(lane), ended)

    def _start(self, work: Coroutine[None, None, None], ended: Callable[[asyncio.Task[None]], None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(ended)

    def _ended(self, task: asyncio.Task[None], entries: Sequence[_Entry]) -> None:
        """Fail the messages that have no result because the task that sends them was cancelled or failed."""
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        for entry in entries:
            if not entry.stored.done():
                entry.fail(
                    RemotingError(f"the producer was closed before a message was stored: {failure or 'cancelled'}")
                )

    async def _send_all(self, lane: _Lane) -> None:
        """Send the collected messages of a topic or queue, including messages that are added while this method sends."""
        while lane.entries:
            lane.leaving, lane.entries, lane.size_bytes = lane.entries, [], 0
            for prepared, entries in self._parts(lane.leaving):
                await self._send(prepared, entries, lane.key[2])
        # _forget() removes the finished batch of a topic or queue from ``_lanes``, the table of batches that accept messages.
        # The callback of this task would remove the batch too late: a message added before the callback would never be sent.
        self._forget(lane)

    def _forget(self, lane: _Lane) -> None:
        if self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def _parts(self, entries: Sequence[_Entry]) -> Iterator[tuple[Prepared, list[_Entry]]]:
        """Encode waiting messages in as few batches as possible, without changing their order. Yield each batch together with
        the entries of its messages, which contain the futures of the send results.

        A batch is encoded only when the caller requests the next batch. A message is left out if its sender has given up or its
        deadline has passed when its batch is made.
        """
        items: list[tuple[str, BatchItem]] = []
        part: list[_Entry] = []
        body_bytes = part_bytes = 0
        for entry in entries:
            item = self._item(entry)
            if item is None:
                continue
            length_bytes, size_bytes = len(entry.message.body), item[1].size_bytes
            if part and (
                entry.alone
                or part[0].alone
                or entry.timeout_ms != part[0].timeout_ms
                or body_bytes + length_bytes > self._max_bytes
                or part_bytes + size_bytes > self._preparer.max_message_bytes
                or len(part) == BATCH_MAX_MESSAGES
            ):
                yield self._joined(part, items), part
                items, part, body_bytes, part_bytes = [], [], 0, 0
            items.append(item)
            part.append(entry)
            body_bytes += length_bytes
            part_bytes += size_bytes
        if part:
            yield self._joined(part, items), part

    def _item(self, entry: _Entry) -> tuple[str, BatchItem] | None:
        """Return a message's UNIQ_KEY and batch item; None if the message is not to be sent.

        A message is not sent if its caller has given up, its deadline has passed, or it is invalid.
        """
        if entry.stored.done():
            return None
        if entry.deadline_s <= entry.stored.get_loop().time():
            entry.expire()
            return None
        try:
            return self._preparer.item(entry.message)
        except ValueError as failure:
            entry.fail(failure)
            return None

    def _joined(self, part: Sequence[_Entry], items: Sequence[tuple[str, BatchItem]]) -> Prepared:
        if len(part) == 1:
            return self._preparer.one(part[0].message)
        return self._preparer.joined([entry.message for entry in part], items)

    async def _send(self, prepared: Prepared, entries: Sequence[_Entry], queue: MessageQueue | None) -> None:
        deadline_s, last_s = entries[0].deadline_s, entries[-1].deadline_s
        if last_s - deadline_s > TOGETHER_S:
            # The request may take until the deadline of the batch's last message.
            # If a message's deadline is earlier than the request's, a timer reports the timeout to the message's sender.
            deadline_s = last_s
        left_ms = (deadline_s - asyncio.get_running_loop().time()) * 1000
        for entry in entries:
            entry.is_sent = True
        try:
            stored = await self._sender.stored(prepared, queue, left_ms)
            results = send_results(prepared.msg_id.split(","), *stored)
        except RefusedError as refused:
            if refused.code != ResponseCode.MESSAGE_ILLEGAL or len(entries) == 1:
                for entry in entries:
                    entry.fail(_copy(refused))
                return
            # The broker stored no message of the refused batch.
            # A single message may be the reason why the broker refused the batch, so each message of the batch is sent alone.
            for entry in entries:
                if not entry.stored.done():
                    await self._send(self._preparer.one(entry.message), [entry], queue)
        except Exception as failure:  # Hooks can raise exceptions of any type. Each caller gets the exception.
            for entry in entries:
                entry.fail(_copy(failure))
        else:
            for entry, result in zip(entries, results, strict=True):
                if not entry.stored.done():
                    entry.stored.set_result(result)


def _copy(failure: Exception) -> Exception:
    """Return a copy of an error, because an exception that is raised in several tasks collects all tracebacks.

    An exception that is not a ``FlintError`` is returned unchanged, because it cannot be copied.
    """
    if not isinstance(failure, FlintError):
        # A hook's exception can have any constructor, so it cannot be copied, and all waiting tasks raise the same exception.
        return failure
    copied: FlintError = type(failure).__new__(type(failure), *failure.args)
    copied.__dict__.update(failure.__dict__)
    copied.__cause__ = failure.__cause__
    return copied

"""Gathers the sends of many callers into batches: fewer requests, and each caller learns of its own message.

::

    send ──▶ lane ──lingered / full / the batch before is answered──▶ one batch ──▶ SendResult for each
             └ one for each topic; one for each queue where the caller names it, by itself or by a key

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
"""Messages whose deadlines differ by no more than this share the earliest one, so that few batches need a timer."""

_LaneKey = tuple[str, bool, MessageQueue | None, int]
"""Topic, wait_store, the queue where the caller names it, and elsewhere the timeout, so that those who want the same meet."""


class _Entry(msgspec.Struct, gc=False):
    """A message that somebody waits for."""

    message: Message
    timeout_ms: int
    deadline_s: float
    """The loop's time after which it is not sent any more."""
    alone: bool
    """Whether it cannot be in a batch."""
    stored: asyncio.Future[SendResult]

    is_sent: bool = False
    """Whether it is on its way, or was stored already, so that it is not known what becomes of it."""

    def expire(self) -> None:
        """Tell the caller that the message was not sent, or not answered, in its time."""
        topic = self.message.topic
        what = f"a message of {topic} was sent and not answered" if self.is_sent else f"{topic} was not sent to"
        self.fail(RemotingTimeoutError(f"{what} within {self.timeout_ms} ms"))

    def fail(self, failure: Exception) -> None:
        """Raise an error for the caller, unless it has given up."""
        if not self.stored.done():
            self.stored.set_exception(failure)


class _Lane(msgspec.Struct):
    """Messages that leave together, and, with a queue, after those before them."""

    key: _LaneKey
    entries: list[_Entry] = msgspec.field(default_factory=list)
    leaving: list[_Entry] = msgspec.field(default_factory=list)
    size_bytes: int = 0
    departure: asyncio.Handle | None = None
    departs_s: float = 0.0
    """The loop's time of the departure."""
    is_leaving: bool = False
    expiry: asyncio.TimerHandle | None = None
    """At the earliest deadline of its messages, or before; none while the send that is next ends all of them in time."""


class ProduceAccumulator:
    """Gathers sends of one producer. Loop thread only.

    Messages for any queue leave in batches that do not wait for each other. Those for one queue, named or chosen by a key, keep
    their order: the next batch leaves when the one before is answered, and gathers meanwhile.

    Args:
        sender: sends the batches.
        preparer: makes them.
        linger_ms: how long the first message of a batch waits for others.
        max_bytes: a batch's bodies get no longer.

    Raises:
        ValueError: ``linger_ms`` is negative.
    """

    def __init__(self, sender: Sender, preparer: Preparer, linger_ms: float, max_bytes: int = LINGER_MAX_BYTES) -> None:
        if linger_ms < 0:
            raise InvalidArgumentError(
                f"linger_ms is {linger_ms:g}: 0 gathers what is sent at the same time, None gathers nothing"
            )
        self._sender = sender
        self._preparer = preparer
        self._linger_s = linger_ms / 1000
        self._linger_max_timeout_ms = 2 * linger_ms
        """A message with less time shortens the linger."""
        self._max_bytes = min(max_bytes, preparer.max_message_bytes)
        self._lanes: dict[_LaneKey, _Lane] = {}
        self._unrouted: dict[str, list[tuple[str, _Entry]]] = {}
        """Topic → messages with keys, in order, while its queues are asked for."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False
        """Whether messages are refused."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        """Return how many lanes, routes and batches are under way: 0 when nobody waits."""
        return len(self._lanes) + len(self._unrouted) + len(self._tasks)

    def add(
        self, message: Message, queue: MessageQueue | None, sharding_key: str | None, timeout_ms: int
    ) -> asyncio.Future[SendResult] | None:
        """Return the promise of what becomes of a message; None for one that is to be sent by itself, at once.

        A caller that gives up before the batch leaves, takes its message out of it.

        Raises:
            RemotingConnectError: the producer is closed.
            RefusedError: the topic has no queue to write to.
        """
        alone = not self._preparer.goes_in_batch(message)
        if alone and queue is None and sharding_key is None:
            return None
        if len(message.body) > self._preparer.max_message_bytes:
            return None  # to be refused
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
        """Send what has been gathered, and wait until all of it is answered; what comes from now on is refused."""
        self.is_closed = True
        try:
            while len(self):
                for lane in list(self._lanes.values()):
                    self._leave(lane)
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await asyncio.sleep(
                    0
                )  # gathering what is done does not wait since 3.12; what it leaves behind is told now
        finally:
            for task in self._tasks:
                task.cancel()

    # --- inside ---

    def _put(self, entry: _Entry, queue: MessageQueue | None) -> None:
        message = entry.message
        key = (message.topic, message.wait_store, queue, entry.timeout_ms if queue is None else 0)
        lane = self._lanes.get(key)
        length_bytes = len(message.body)
        if lane is not None and (
            lane.size_bytes + length_bytes > self._max_bytes or len(lane.entries) >= BATCH_MAX_MESSAGES
        ):
            self._leave(lane)
            lane = self._lanes.get(key)  # the same where order counts: what it holds becomes several batches
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
        """Have a lane leave when it has lingered, or before, so that half of a message's time is left to send it."""
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
        """Tell those whose time is over while others of their lane, who have more time, wait or are under way."""
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
        """Put a message when its topic's queues are known; who comes next must not overtake it."""
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
        except Exception as failure:  # of a hook, too
            for _, entry in waiting:
                entry.fail(_copy(failure))
        self._unrouted.pop(topic)  # now, not when the task has ended: a message that comes until then finds the route

    def _leave(self, lane: _Lane) -> None:
        if lane.departure is not None:
            lane.departure.cancel()
            lane.departure = None
        if lane.is_leaving:
            return
        lane.is_leaving = True
        if lane.key[2] is None:
            self._forget(lane)  # the next message begins another one

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
        """Tell those whom nothing was told, because the work was cancelled, before it began or in the midst."""
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        for entry in entries:
            if not entry.stored.done():
                entry.fail(
                    RemotingError(f"the producer was closed before a message was stored: {failure or 'cancelled'}")
                )

    async def _send_all(self, lane: _Lane) -> None:
        """Send what a lane holds, and what comes meanwhile."""
        while lane.entries:
            lane.leaving, lane.entries, lane.size_bytes = lane.entries, [], 0
            for prepared, entries in self._parts(lane.leaving):
                await self._send(prepared, entries, lane.key[2])
        self._forget(lane)  # now, not when the task has ended: a message that comes until then belongs to another lane

    def _forget(self, lane: _Lane) -> None:
        if self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def _parts(self, entries: Sequence[_Entry]) -> Iterator[tuple[Prepared, list[_Entry]]]:
        """Yield sends of as few batches as hold the messages, in order, each with its messages.

        Each is made when it is asked for: what is given up until then is left out.
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
        """Return a message's id and its form in a batch; None where nobody waits for it any more."""
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
            deadline_s = last_s  # the timer of the lane tells the others
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
            for entry in entries:  # nothing is stored, and perhaps for one of them only: each is told of its own
                if not entry.stored.done():
                    await self._send(self._preparer.one(entry.message), [entry], queue)
        except Exception as failure:  # of a hook, too: each caller is told of it
            for entry in entries:
                entry.fail(_copy(failure))
        else:
            for entry, result in zip(entries, results, strict=True):
                if not entry.stored.done():
                    entry.stored.set_result(result)


def _copy(failure: Exception) -> Exception:
    """Return the same error for another caller: an exception that several tasks raise gathers all their tracebacks."""
    if not isinstance(failure, FlintError):
        return failure  # of a hook: nothing is known of how such an exception is made
    copied: FlintError = type(failure).__new__(type(failure), *failure.args)
    copied.__dict__.update(failure.__dict__)
    copied.__cause__ = failure.__cause__
    return copied

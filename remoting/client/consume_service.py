"""Pulls the messages of the queues that a member holds, and hands them to its listener, concurrently or in order.

See ``PullMessageService``, ``ConsumeMessageConcurrentlyService`` and ``ConsumeMessageOrderlyService`` of RocketMQ.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
from msgspec.structs import replace

from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.errors import FlintError
from flintmq.core.record.properties import RETRY_TOPIC
from flintmq.remoting.client.broker_api import BrokerApi, PullStatus
from flintmq.remoting.client.consumer_settings import CLUSTERING, ConsumeResult, ConsumerSettings, Listener
from flintmq.remoting.client.instance import ClientInstance, log
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.wire.bodies import ProcessQueueInfo

StartTask = Callable[[Coroutine[Any, Any, None], str], None]
"""Start work that ends with the consumer, under a name."""


@attrs.define
class Counts:
    """Counters of one topic since the start of the consumer."""

    pulls: int = 0
    pulled: int = 0
    """Messages that pulls brought."""
    pull_time_s: float = 0.0
    consumed: int = 0
    failed: int = 0
    consume_time_s: float = 0.0


@attrs.frozen(kw_only=True)
class Membership:
    """A member of a group, as the parts of a consumer share it. Loop thread only."""

    group: str
    settings: ConsumerSettings
    client: ClientInstance
    api: BrokerApi
    subscriptions: dict[str, SubscriptionData] = attrs.field(factory=dict)
    """By topic."""
    counts: defaultdict[str, Counts] = attrs.field(factory=lambda: defaultdict(Counts))
    """By topic."""

    @property
    def is_clustering(self) -> bool:
        """Return whether the members share the queues."""
        return self.settings.message_model == CLUSTERING


class ProcessQueue:
    """The messages of one queue that were pulled and are not consumed yet. Loop thread only.

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
        self._room = asyncio.Event()
        self._room.set()

    @property
    def commit_offset(self) -> int:
        """Return the queue offset below which everything is consumed."""
        return min(self._waiting, default=self.pull_queue_offset)

    def put(self, messages: Iterable[MessageExt]) -> None:
        """Hold messages that were pulled."""
        self._waiting.update((message.queue_offset, message) for message in messages)
        if len(self._waiting) >= self._max_messages:
            self._room.clear()

    def done(self, message: MessageExt) -> None:
        """Release a message that is consumed, or was sent back."""
        self._waiting.pop(message.queue_offset, None)
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
            cached_msg_size_mib=sum(len(message.body) for message in self._waiting.values()) >> 20,
            commit_consumer_offset=self.commit_offset,
            dropped=self.dropped,
            last_consume_timestamp_ms=self.last_consume_timestamp_ms,
            last_pull_timestamp_ms=self.last_pull_timestamp_ms,
            locked=locked,
        )


class ConsumeService:
    """Pulls and consumes the messages of one member, one task a queue. Loop thread only.

    Args:
        member: the member of the group.
        listener: consumes messages; None hands them to :meth:`messages`.
        start_task: starts the workers.
    """

    def __init__(self, member: Membership, listener: Listener | None, start_task: StartTask) -> None:
        self._member = member
        self._settings = member.settings
        self._listener = listener
        self._start_task = start_task
        self._work: asyncio.Queue[tuple[ProcessQueue, MessageExt]] = asyncio.Queue(maxsize=1)
        self._hand_over: asyncio.Queue[tuple[MessageExt, asyncio.Future[None]] | None] = asyncio.Queue()
        self._in_hand: tuple[MessageExt, asyncio.Future[None]] | None = None
        self._iteration_ended = False
        self._threads: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Start the workers; orderly messages are consumed by the tasks that pull them."""
        self._iteration_ended = False
        if not self._settings.orderly:
            for number in range(self._settings.concurrency if self._listener is not None else 1):
                self._start_task(self._worker(), f"worker-{number}")

    def end_iteration(self) -> None:
        """Let go of the messages that were handed to an iteration, and end it: who waits for a message gets None."""
        self._iteration_ended = True
        handed = [self._in_hand]
        while not self._hand_over.empty():
            handed.append(self._hand_over.get_nowait())
        for one in filter(None, handed):
            one[1].cancel()
        self._in_hand = None
        self._hand_over.put_nowait(None)

    def close(self) -> None:
        """Hand no more messages to the threads of a plain function; those that it consumes now are finished."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    async def run(self, held: ProcessQueue) -> None:
        """Pull and consume until the queue is given up, or its topic is not subscribed to any more."""
        while not held.dropped:
            await held.has_room()
            subscription = self._member.subscriptions.get(held.queue.topic)
            if subscription is None:
                return
            held.pulling = True
            try:
                messages = await self._pull(held, subscription)
            except (FlintError, ValueError) as failure:  # ValueError: an answer that does not decode
                log.warning("pulling %s failed: %s", held.queue, failure)
                await asyncio.sleep(self._settings.error_delay_s)
                continue
            finally:
                held.pulling = False
            await self._consume_all(held, messages)

    async def _consume_all(self, held: ProcessQueue, messages: Iterable[MessageExt]) -> None:
        for message in messages:
            if held.dropped:
                return
            if self._settings.orderly:
                await self._consume_orderly(held, message)
            else:
                await self._work.put((held, message))  # when a worker is free to take it

    async def _pull(self, held: ProcessQueue, subscription: SubscriptionData) -> tuple[MessageExt, ...]:
        """Pull once, and enter the messages among those that are held."""
        clock = self._member.client.clock
        held.last_pull_timestamp_ms = clock.now_ms()
        begin_s = clock.monotonic_s()
        asked = held.pull_queue_offset
        result = await self._member.api.pull(
            held.queue,
            asked,
            subscription=subscription,
            max_messages=self._settings.pull_batch_size,
            suspend_ms=self._settings.suspend_ms,
        )
        held.pull_queue_offset = result.next_begin_queue_offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning("offset %d of %s is illegal: going on at %d", asked, held.queue, held.pull_queue_offset)
        held.put(result.messages)
        counts = self._member.counts[held.queue.topic]
        counts.pulls += 1
        counts.pulled += len(result.messages)
        counts.pull_time_s += clock.monotonic_s() - begin_s
        return result.messages

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
        if self._listener is not None:
            raise TypeError("a consumer with a listener hands its messages to the listener")
        if self._in_hand is not None:
            message, consumed = self._in_hand
            if not consumed.done():  # else its queue was given up meanwhile
                if again:
                    return message
                consumed.set_result(None)
        self._in_hand = None
        while True:
            handed = await self._hand_over.get()
            if handed is not None and not handed[1].done():
                self._in_hand = handed
                return handed[0]
            if handed is None and self._iteration_ended:
                self._hand_over.put_nowait(None)  # for who else waits
                return None

    async def consume(self, message: MessageExt) -> ConsumeResult:
        """Hand one message to the listener, with its topic before any retry. Raises what the listener raises."""
        original = message.properties.get(RETRY_TOPIC)
        if original and message.topic == RETRY_PREFIX + self._member.group:
            message = replace(message, topic=original)
        listener = self._listener or self._wait_for_iterator
        if inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(type(listener).__call__):
            outcome = listener(message)
        else:
            outcome = await self._in_thread(listener, message)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        return outcome or ConsumeResult.SUCCESS

    async def _in_thread(self, listener: Listener, message: MessageExt) -> Any:
        """Call a plain function in one of as many threads as messages are consumed at a time: the loop's own are few."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._settings.concurrency, f"{self._member.group}-listener")
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        try:
            consumed = loop.run_in_executor(self._threads, lambda: context.run(listener, message))
        except RuntimeError as ending:  # the interpreter ends: no thread begins any more
            log.info("%s is left to others, this process ends: %s", message.msg_id, ending)
            consumed = loop.create_future()  # until this consumer is cancelled
        return await consumed

    async def _wait_for_iterator(self, message: MessageExt) -> None:
        consumed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._iteration_ended:
            consumed.cancel()  # and so the task that pulls, or consumes: nobody takes the message
        else:
            self._hand_over.put_nowait((message, consumed))
        await consumed

    async def _succeeds(self, held: ProcessQueue, message: MessageExt) -> bool:
        clock, counts = self._member.client.clock, self._member.counts[held.queue.topic]
        held.last_consume_timestamp_ms = clock.now_ms()
        begin_s = clock.monotonic_s()
        try:
            succeeded = await self.consume(message) is ConsumeResult.SUCCESS
        except Exception:  # a failure of the listener means: again later
            log.exception("consuming %s of %s failed", message.msg_id, held.queue)
            succeeded = False
        counts.consume_time_s += clock.monotonic_s() - begin_s
        counts.consumed += succeeded
        counts.failed += not succeeded
        return succeeded

    async def _worker(self) -> None:
        while True:
            held, message = await self._work.get()
            if not held.dropped:
                await self._consume_concurrently(held, message)

    async def _consume_concurrently(self, held: ProcessQueue, message: MessageExt) -> None:
        if not await self._succeeds(held, message) and self._member.is_clustering:
            limit = self._settings.max_reconsume_times
            try:
                await self._member.api.send_back(message, self._settings.delay_level, 16 if limit is None else limit)
            except FlintError as failure:
                log.warning("%s was not sent back, it is tried again here: %s", message.msg_id, failure)
                self._start_task(self._try_later(held, message), "retry")
                return
        held.done(message)

    async def _try_later(self, held: ProcessQueue, message: MessageExt) -> None:
        await asyncio.sleep(self._settings.error_delay_s)
        await self._work.put((held, message))

    async def _consume_orderly(self, held: ProcessQueue, message: MessageExt) -> None:
        limit = self._settings.max_reconsume_times
        while not held.dropped:
            if await self._succeeds(held, message) or not self._member.is_clustering:
                held.done(message)
                return
            if limit is not None and message.reconsume_times >= limit:
                try:
                    await self._member.api.send_back(message, -1, limit)
                except FlintError as failure:
                    log.warning("%s was not made a dead letter: %s", message.msg_id, failure)
                else:
                    held.done(message)
                    return
            message = replace(message, reconsume_times=message.reconsume_times + 1)
            await asyncio.sleep(self._settings.retry_delay_s)

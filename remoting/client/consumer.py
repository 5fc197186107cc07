"""Consuming as a member of a group: queues are shared out, messages come by themselves.

::

    rebalance ──queue gained──▶ load its offset ──▶ pull ◀──▶ listener ──consumed──▶ commit every 5 s
        ▲      ──queue lost───▶ commit, unlock
        └── every 20 s, and when a broker says that members came or went
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import inspect
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from flintmq.core.broker.message_queue import MessageQueue
from flintmq.core.broker.subscription import TAG, SubscriptionData, build_subscription
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.errors import FlintError, RefusedError
from flintmq.core.record.properties import RETRY_TOPIC
from flintmq.remoting.client.broker_api import BrokerApi, PullStatus
from flintmq.remoting.client.consumer_requests import ConsumerRequests
from flintmq.remoting.client.instance import ClientInstance, log, repeat
from flintmq.remoting.client.instance_user import InstanceUser
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.offset_store import BrokerOffsetStore, FileOffsetStore, OffsetStore
from flintmq.remoting.client.process_queue import ProcessQueue
from flintmq.remoting.client.rebalance import AllocateStrategy, allocate_averagely
from flintmq.remoting.client.unique_id import make_client_id
from flintmq.remoting.wire.bodies import CheckClientRequestBody, ConsumerData
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request

CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"
FROM_LAST: Final = "CONSUME_FROM_LAST_OFFSET"
FROM_FIRST: Final = "CONSUME_FROM_FIRST_OFFSET"
FROM_TIMESTAMP: Final = "CONSUME_FROM_TIMESTAMP"


@attrs.define
class Counts:
    """What was done for one topic."""

    pulls: int = 0
    pulled: int = 0
    """Messages that pulls brought."""
    pull_time_s: float = 0.0
    consumed: int = 0
    failed: int = 0
    consume_time_s: float = 0.0


class ConsumeResult(enum.Enum):
    """What a listener says."""

    SUCCESS = "success"
    LATER = "later"
    """Again later; raising says the same."""


Listener = Callable[[MessageExt], "ConsumeResult | Awaitable[ConsumeResult | None] | None"]
"""Consumes one message. A coroutine function runs on the loop, any other function in a thread."""


@attrs.frozen(kw_only=True)
class ConsumerSettings:
    """How a :class:`Consumer` works."""

    message_model: Literal["CLUSTERING", "BROADCASTING"] = "CLUSTERING"
    """CLUSTERING: members share the queues. BROADCASTING: each gets everything, and nothing comes again."""
    consume_from: Literal["CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"] = FROM_LAST
    """Where a queue is begun that the group has no offset of."""
    consume_from_timestamp_ms: int = 0
    orderly: bool = False
    """One message of a queue at a time, in order, under the queue's lock; a failure holds up its queue."""
    concurrency: int = 20
    """Messages consumed at a time, over all queues; orderly: one per queue."""
    max_reconsume_times: int | None = None
    """Tries before a message becomes a dead letter. None: 16, and without end when orderly."""
    delay_level: int = 0
    """When a failed message comes again; 0: later with each try."""
    pull_batch_size: int = 32
    max_cached_messages: int = 1_000
    """Per queue; then pulling pauses."""
    suspend_ms: int = 15_000
    """How long a broker may hold a pull."""
    rebalance_interval_s: float = 20.0
    commit_interval_s: float = 5.0
    lock_interval_s: float = 20.0
    """Brokers forget a lock after 60 s."""
    error_delay_s: float = 3.0
    """Pause after a pull that failed."""
    retry_delay_s: float = 1.0
    """Pause before an orderly message is tried again."""
    offset_folder: Path = attrs.field(factory=lambda: Path.home() / ".rocketmq_offsets")
    """BROADCASTING keeps offsets there, in ``<client id>/<group>/offsets.json``."""
    allocate: AllocateStrategy = allocate_averagely


class Consumer(InstanceUser):
    """A member of a consumer group. Loop thread only; use it in an ``async with`` statement.

    With a listener, messages are handed to it. Without one, iterate: a message counts as consumed when the next one is
    asked for, so that what a loop leaves by an exception comes again::

        async with Consumer("group", "127.0.0.1:9876") as consumer:
            await consumer.subscribe("Topic", "TagA || TagB")
            async for message in consumer:
                ...

    Args:
        group: the consumer group.
        name_servers: ``host:port;host:port`` or a sequence; or hand over a ``client``.
        listener: consumes messages.
        settings: how; the defaults are RocketMQ's.
        client: an instance shared with others (not with another member of the group); not closed with this consumer.
        offset_store: where offsets are kept; by default as the message model wants it.
        instance_options: for :class:`ClientInstance`.
    """

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str] = (),
        listener: Listener | None = None,
        *,
        settings: ConsumerSettings | None = None,
        client: ClientInstance | None = None,
        offset_store: OffsetStore | None = None,
        **instance_options: Any,
    ) -> None:
        self.group = group
        self.settings = settings or ConsumerSettings()
        if self.settings.message_model == BROADCASTING:  # its offsets are found again by this name
            instance_options.setdefault("client_id", make_client_id(instance_name="DEFAULT"))
        super().__init__(name_servers, client, instance_options)
        self.api = BrokerApi(self.client, group)
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.process_queues: dict[MessageQueue, ProcessQueue] = {}
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)
        """Per topic, since the start."""
        self.started_at_ms = 0
        self._listener = listener
        self._offsets = offset_store or self._default_offset_store()
        self._work: asyncio.Queue[tuple[ProcessQueue, MessageExt]] = asyncio.Queue(maxsize=1)
        self._hand_over: asyncio.Queue[tuple[MessageExt, asyncio.Future[None]]] = asyncio.Queue(maxsize=1)
        self._rebalance_lock = asyncio.Lock()
        self._members_changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False
        self._announced: tuple[object, ...] = ()

    # --- life ---

    async def start(self) -> None:
        """Joins the group and begins to consume."""
        if self._started:
            return
        self._started = True
        self.started_at_ms = self.client.clock.now_ms()
        ConsumerRequests(self).register()
        if self.is_clustering:
            await self.subscribe(RETRY_PREFIX + self.group)
        self.client.consumers[self.group] = self._describe
        self.client.start_heartbeats()
        settings = self.settings
        workers = settings.concurrency if self._listener is not None else 1
        if not settings.orderly:
            for number in range(workers):
                self._start(self._worker(), f"worker-{number}")
        self._start(repeat(settings.commit_interval_s, self.commit), "commit")
        if settings.orderly and self.is_clustering:
            self._start(repeat(settings.lock_interval_s, self.renew_locks), "locks")
        self._start(self._rebalances(), "rebalance")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self.client.start_task(work, f"{self.group}-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stops consuming, commits, leaves the group and closes the connections. Idempotent.

        What is being consumed concurrently is abandoned and comes again; an orderly message is finished first.
        """
        if self._started:
            self._started = False
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(self._drop(held) for held in list(self.process_queues.values())))
            self.client.consumers.pop(self.group, None)
            self.client.forget_group(self.group)
            await self.client.unregister(consumer_group=self.group)
        await super().close()

    async def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """From now on messages of the topic are wanted that fit the expression (``*``, ``A || B``, or SQL92).

        Raises:
            RefusedError: the expression does not parse; SQL92 is checked by a broker.
        """
        subscription = build_subscription(topic, expression, expression_type, self.client.clock.now_ms())
        if not subscription.is_tag_type:
            await self._check(subscription)
        self.subscriptions[topic] = subscription
        self.rebalance_soon()

    async def unsubscribe(self, topic: str) -> None:
        """Messages of the topic are not wanted any more."""
        self.subscriptions.pop(topic, None)
        for held in [held for queue, held in self.process_queues.items() if queue.topic == topic]:
            await self._drop(held)

    @property
    def is_clustering(self) -> bool:
        return self.settings.message_model == CLUSTERING

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        if self._listener is not None:
            raise TypeError("a consumer with a listener hands its messages to the listener")
        while True:
            message, consumed = await self._hand_over.get()
            yield message
            if not consumed.done():
                consumed.set_result(None)

    # --- whose queue is it ---

    def rebalance_soon(self) -> None:
        """Wakes the rebalance."""
        self._members_changed.set()

    async def rebalance(self) -> None:
        """Computes which queues are this member's, begins those it gained and gives up those it lost."""
        async with self._rebalance_lock:
            await self._know_routes()
            announcement = (self.client.routes.broker_addresses(), tuple(self.subscriptions.values()))
            if announcement != self._announced:  # brokers must know a member before they count it
                await self.client.send_heartbeats()
                self._announced = announcement
            for topic in list(self.subscriptions):
                try:
                    assigned = await self._assigned(topic)
                    await self._update(topic, assigned)
                except FlintError as failure:  # the assignment stays as it is
                    log.info("no rebalance of %s for %s: %s", topic, self.group, failure)

    async def _know_routes(self) -> None:
        for topic in list(self.subscriptions):
            try:
                await self.client.routes.route(topic)
            except FlintError as failure:
                log.info("no route of %s yet: %s", topic, failure)

    async def _assigned(self, topic: str) -> list[MessageQueue]:
        queues = (await self.client.routes.route(topic)).read_queues
        if not self.is_clustering:
            return list(queues)
        return self.settings.allocate(self.client.client_id, await self.api.members(topic), queues)

    async def _update(self, topic: str, assigned: Sequence[MessageQueue]) -> None:
        wanted = set(assigned)
        for queue in [queue for queue in self.process_queues if queue.topic == topic and queue not in wanted]:
            await self._drop(self.process_queues[queue])
        gained = [queue for queue in assigned if queue not in self.process_queues]
        if gained and self.settings.orderly and self.is_clustering:
            locked = await self.api.lock(gained)
            gained = [queue for queue in gained if queue in locked]
        for queue in gained:
            held = ProcessQueue(queue, await self._first_offset(queue), self.settings.max_cached_messages)
            self.process_queues[queue] = held
            held.task = self.client.start_task(self._pulls(held), f"pull-{queue}")

    async def _first_offset(self, queue: MessageQueue) -> int:
        stored = await self._offsets.load(queue)
        if stored is not None:
            return stored
        if queue.topic.startswith(RETRY_PREFIX) or self.settings.consume_from == FROM_FIRST:
            return 0
        if self.settings.consume_from == FROM_TIMESTAMP:
            return await self.api.search_offset(queue, self.settings.consume_from_timestamp_ms)
        return await self.api.max_offset(queue)

    async def _drop(self, held: ProcessQueue, *, save: bool = True) -> None:
        """Gives a queue up: no message of it is consumed from now on."""
        held.dropped = True
        self.process_queues.pop(held.queue, None)
        if held.task is not None:
            if held.pulling or not self.settings.orderly:
                held.task.cancel()
            await asyncio.gather(held.task, return_exceptions=True)
        if save:
            try:
                await self._save([held])
            except (FlintError, OSError) as failure:
                log.warning("%s is given up, its offset was not stored: %s", held.queue, failure)
        if self.settings.orderly and self.is_clustering:
            try:
                await self.api.unlock([held.queue])
            except FlintError as failure:
                log.warning("%s is given up, it was not unlocked: %s", held.queue, failure)

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Goes on elsewhere in queues that are this member's; what was pulled of them is forgotten."""
        async with self._rebalance_lock:
            mine = {queue: offset for queue, offset in offsets.items() if queue in self.process_queues}
            for queue in mine:
                await self._drop(self.process_queues[queue], save=False)
            await self._offsets.save(mine)
        self.rebalance_soon()

    async def renew_locks(self) -> None:
        """Keeps this member's locks; a queue whose lock is lost is given up until the next rebalance."""
        queues = list(self.process_queues)
        if not queues:
            return
        locked = await self.api.lock(queues)
        for queue in queues:
            if queue not in locked and queue in self.process_queues:
                await self._drop(self.process_queues[queue], save=False)
                self.rebalance_soon()

    # --- pulling ---

    async def _pulls(self, held: ProcessQueue) -> None:
        while not held.dropped:
            await held.has_room()
            subscription = self.subscriptions.get(held.queue.topic)
            if subscription is None:
                return
            held.pulling = True
            try:
                messages = await self._pull(held, subscription)
            except (FlintError, ValueError) as failure:  # ValueError: an answer that does not decode
                log.warning("pulling %s failed: %s", held.queue, failure)
                await asyncio.sleep(self.settings.error_delay_s)
                continue
            finally:
                held.pulling = False
            await self._consume_pulled(held, messages)

    async def _pull(self, held: ProcessQueue, subscription: SubscriptionData) -> tuple[MessageExt, ...]:
        """Takes what the next pull brings."""
        held.last_pull_timestamp_ms = self.client.clock.now_ms()
        begin_s = self.client.clock.monotonic_s()
        result = await self.api.pull(
            held.queue,
            held.pull_queue_offset,
            subscription=subscription,
            max_messages=self.settings.pull_batch_size,
            suspend_ms=self.settings.suspend_ms,
        )
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "offset %d of %s is illegal: going on at %d",
                held.pull_queue_offset,
                held.queue,
                result.next_begin_queue_offset,
            )
        held.pull_queue_offset = result.next_begin_queue_offset
        held.put(result.messages)
        counts = self.counts[held.queue.topic]
        counts.pulls += 1
        counts.pulled += len(result.messages)
        counts.pull_time_s += self.client.clock.monotonic_s() - begin_s
        return result.messages

    async def _consume_pulled(self, held: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        for message in messages:
            if held.dropped:
                return
            if self.settings.orderly:
                await self._consume_orderly(held, message)
            else:
                await self._work.put((held, message))

    # --- consuming ---

    async def consume(self, message: MessageExt) -> ConsumeResult:
        """Hands one message to the listener, with its topic before any retry. Raises what the listener raises."""
        original = message.properties.get(RETRY_TOPIC)
        if original and message.topic == RETRY_PREFIX + self.group:
            message = attrs.evolve(message, topic=original)
        listener = self._listener or self._wait_for_iterator
        if inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(type(listener).__call__):
            outcome = listener(message)
        else:
            outcome = await asyncio.to_thread(listener, message)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        return outcome or ConsumeResult.SUCCESS

    async def _wait_for_iterator(self, message: MessageExt) -> None:
        consumed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._hand_over.put((message, consumed))
        await consumed

    async def _succeeds(self, held: ProcessQueue, message: MessageExt) -> bool:
        held.last_consume_timestamp_ms = self.client.clock.now_ms()
        counts = self.counts[held.queue.topic]
        begin_s = self.client.clock.monotonic_s()
        try:
            succeeded = await self.consume(message) is ConsumeResult.SUCCESS
        except Exception:  # the listener's own failure means: again later
            log.exception("consuming %s of %s failed", message.msg_id, held.queue)
            succeeded = False
        counts.consume_time_s += self.client.clock.monotonic_s() - begin_s
        counts.consumed += succeeded
        counts.failed += not succeeded
        return succeeded

    async def _worker(self) -> None:
        while True:
            held, message = await self._work.get()
            if not held.dropped:
                await self._consume_concurrently(held, message)

    async def _consume_concurrently(self, held: ProcessQueue, message: MessageExt) -> None:
        if await self._succeeds(held, message) or not self.is_clustering:
            held.done(message)
            return
        limit = self.settings.max_reconsume_times
        try:
            await self.api.send_back(message, self.settings.delay_level, 16 if limit is None else limit)
        except FlintError as failure:
            log.warning("%s was not sent back, it is tried again here: %s", message.msg_id, failure)
            self._start(self._try_later(held, message), "retry")
            return
        held.done(message)

    async def _try_later(self, held: ProcessQueue, message: MessageExt) -> None:
        await asyncio.sleep(self.settings.error_delay_s)
        await self._work.put((held, message))

    async def _consume_orderly(self, held: ProcessQueue, message: MessageExt) -> None:
        limit = self.settings.max_reconsume_times
        while not held.dropped:
            if await self._succeeds(held, message):
                break
            if not self.is_clustering:
                break
            if limit is not None and message.reconsume_times >= limit:
                try:
                    await self.api.send_back(message, -1, limit)
                    break
                except FlintError as failure:
                    log.warning("%s was not made a dead letter: %s", message.msg_id, failure)
            message = attrs.evolve(message, reconsume_times=message.reconsume_times + 1)
            await asyncio.sleep(self.settings.retry_delay_s)
        else:
            return
        held.done(message)

    # --- offsets ---

    async def commit(self) -> None:
        """Stores how far each queue has been consumed. Raises ``FlintError``."""
        await self._save(list(self.process_queues.values()))

    async def _save(self, helds: Sequence[ProcessQueue]) -> None:
        moved = {held.queue: held.commit_offset for held in helds if held.commit_offset != held.saved_offset}
        if not moved:
            return
        await self._offsets.save(moved)
        for held in helds:
            held.saved_offset = moved.get(held.queue, held.saved_offset)

    # --- inside ---

    async def _rebalances(self) -> None:
        while True:
            self._members_changed.clear()
            try:
                await self.rebalance()
            except FlintError as failure:
                log.warning("rebalance of %s failed: %s", self.group, failure)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.rebalance_interval_s):
                    await self._members_changed.wait()

    def _default_offset_store(self) -> OffsetStore:
        if self.is_clustering:
            return BrokerOffsetStore(self.api)
        return FileOffsetStore(self.settings.offset_folder / self.client.client_id / self.group / "offsets.json")

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            consume_from_where=self.settings.consume_from,
            consume_type="CONSUME_PASSIVELY",
            group_name=self.group,
            message_model=self.settings.message_model,
            subscription_data_set=list(self.subscriptions.values()),
        )

    async def _check(self, subscription: SubscriptionData) -> None:
        route = await self.client.routes.route(subscription.topic)
        body = CheckClientRequestBody(self.client.client_id, self.group, None, subscription)
        for broker_name in route.broker_addrs:
            command = request(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())
            await self.client.ask(route.address(broker_name), command)
            return
        raise RefusedError(17, f"topic {subscription.topic} has no broker", reason="route.no-broker")

"""Consuming by hand: which queues, from where, how much, and what is committed are the caller's business.

Either every pull is asked for with its queue and offset (``pull``), or queues are assigned, and ``poll`` hands out what comes
of any of them, as RocketMQ's ``DefaultLitePullConsumer`` does::

    assign ──▶ position of each queue ◀── seek, seek_to_time
                  │ poll: one pull a queue, held by its broker until a message comes
                  ▼
              messages, then commit: the positions behind them
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Unpack

from flintmq.core.broker.subscription import TAG, SubscriptionData, build_subscription
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import InvalidArgumentError, RemotingConnectError
from flintmq.remoting.client.broker_api import BrokerApi, PullResult, PullStatus, QueueOffsets
from flintmq.remoting.client.codec import Codec, having
from flintmq.remoting.client.consume_from import FROM_FIRST, FROM_LAST, FROM_TIMESTAMP, ConsumeFrom, Where, begin_of
from flintmq.remoting.client.instance import ClientInstance, InstanceOptions, InstanceUser, log
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.route import NameServers

POLL_TIMEOUT_MS: Final = 5_000
"""RocketMQ's ``pollTimeoutMillis``."""
POLL_SUSPEND_MS: Final = 15_000
"""How long a broker may hold a pull of a poll; one that outlasts the poll is the next one's."""
PULL_BATCH_SIZE: Final = 32


class PullConsumer(QueueOffsets, InstanceUser):
    """Pulls messages on demand, without being a member of its group. Loop thread only; use ``async with``.

    ::

        async with PullConsumer("billing", "127.0.0.1:9876") as consumer:
            await consumer.assign("Orders", consume_from="first")
            while messages := await consumer.poll():
                ...
                await consumer.commit()

    Every method raises ``RemotingError`` when no server answers and ``RefusedError`` when a request is refused.

    Args:
        group: whose offsets are read and stored.
        codec: makes what messages then have as ``value`` of their bodies, such as
            :class:`~flintmq.remoting.client.codec.JsonCodec`.
        name_servers, client, instance_options: see :class:`~flintmq.remoting.client.instance.InstanceUser`.
    """

    def __init__(
        self,
        group: str,
        name_servers: NameServers = (),
        *,
        client: ClientInstance | None = None,
        codec: Codec | None = None,
        **instance_options: Unpack[InstanceOptions],
    ) -> None:
        super().__init__(name_servers, client=client, **instance_options)
        self.group = group
        self._codec = codec
        self._api = BrokerApi(self.client, group)
        self._assigned: dict[MessageQueue, _AssignedQueue] = {}
        self._moves = asyncio.Lock()
        """Held by calls that change the assigned queues or positions: they take effect in the order of the calls."""
        self._ending: set[asyncio.Task[PullResult]] = set()
        """Pulls that were cancelled and have not ended yet."""
        self._is_closed = False

    async def start(self) -> None:
        """Allow polls again after :meth:`close`."""
        async with self._changes:
            self._open()
            self._is_closed = False

    async def close(self) -> None:
        """End the pulls that are under way and close the connections. Idempotent; nothing is committed.

        A poll, ``assign`` or ``seek`` that is under way raises ``RemotingConnectError``.
        """
        async with self._changes:
            self._is_closed = True
            self._replace({})
            if self._ending:
                await asyncio.wait(self._ending)
            await self._shut()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read."""
        return (await self.client.routes.route(topic)).read_queues

    async def pull(
        self,
        queue: MessageQueue,
        queue_offset: int,
        *,
        max_messages: int = PULL_BATCH_SIZE,
        suspend_ms: int = 0,
        expression: str = "*",
        expression_type: str = TAG,
    ) -> PullResult:
        """Messages of a queue from an offset on; ``suspend_ms`` lets the broker wait for some. See :class:`BrokerApi`."""
        subscription = build_subscription(queue.topic, expression, expression_type)
        result = await self._api.pull(
            queue, queue_offset, subscription=subscription, max_messages=max_messages, suspend_ms=suspend_ms
        )
        if self._codec is not None:
            having(self._codec, result.messages)
        return result

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset; None when there is none.

        Brokers also answer 0 where there is none, if the queue still has its first message (RocketMQ's rule): such a group
        begins at the first message, whatever it asks for.
        """
        return await self._api.committed(queue)

    async def commit(self, queue: MessageQueue | None = None, consumer_offset: int | None = None) -> None:
        """Store the group's offset: of the next message it wants.

        Args:
            queue: None: every assigned one.
            consumer_offset: None: the position of the queue, behind the last message that was polled of it.

        Raises:
            ValueError: an offset without a queue; or the queue is not assigned, and there is no offset.
        """
        if queue is None:
            if consumer_offset is not None:
                raise InvalidArgumentError("an offset is that of a queue: commit(queue, consumer_offset)")
            await self._api.commit_all(self.positions, wait=True)
        elif consumer_offset is None:
            await self._api.commit(queue, self._of(queue).position)
        else:
            await self._api.commit(queue, consumer_offset)

    # --- assigned queues ---

    @property
    def positions(self) -> Mapping[MessageQueue, int]:
        """The assigned queues, each with the queue offset of the next message that :meth:`poll` returns of it."""
        return {queue: one.position for queue, one in self._assigned.items()}

    async def assign(
        self,
        queues: str | Sequence[MessageQueue],
        expression: str = "*",
        expression_type: str = TAG,
        *,
        consume_from: ConsumeFrom = FROM_LAST,
    ) -> None:
        """Choose the queues that :meth:`poll` reads, in place of those before; nobody else of the group is asked.

        A queue that was assigned before keeps its position, another one begins at the group's offset.

        Args:
            queues: queues; or a topic: those that it has now.
            expression, expression_type: which of their messages (``*``, ``A || B``, or SQL92).
            consume_from: where a queue begins for which the group has no offset: ``"last"``, behind its last message,
                ``"first"``, or a time (see :class:`ConsumerSettings`).

        Raises:
            RefusedError: the expression does not parse.
            InvalidArgumentError: ``consume_from`` is no such place.
        """
        where, timestamp_ms = begin_of(consume_from)
        if consume_from == FROM_TIMESTAMP:
            raise InvalidArgumentError(f"consume_from is {FROM_TIMESTAMP}, and must be the time itself")
        async with self._moves:
            wanted = await self.queues(queues) if isinstance(queues, str) else tuple(queues)
            subscriptions = {
                queue.topic: build_subscription(queue.topic, expression, expression_type) for queue in wanted
            }
            begins = {
                queue: await self._first_offset(queue, where, timestamp_ms)
                for queue in wanted
                if queue not in self._assigned
            }
            self._check_open()
            # A poll may have moved a queue meanwhile: the position of a queue that stays is read now, without a wait.
            self._replace(
                {
                    queue: _AssignedQueue(
                        self._api,
                        queue,
                        subscriptions[queue.topic],
                        begins[queue] if queue in begins else self._assigned[queue].position,
                        self._ending,
                    )
                    for queue in wanted
                }
            )

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Have :meth:`poll` go on at an offset of an assigned queue, also a poll that is under way.

        Raises:
            ValueError: the queue is not assigned, or has no such offset: the message names those it has.
        """
        async with self._moves:
            self._of(queue)
            first, behind_last = await self.min_offset(queue), await self.max_offset(queue)
            if not first <= queue_offset <= behind_last:
                raise InvalidArgumentError(f"{queue} has the offsets {first} to {behind_last}, not {queue_offset}")
            self._move({queue: queue_offset})

    async def seek_to_time(self, timestamp_ms: int, queue: MessageQueue | None = None) -> None:
        """Have :meth:`poll` go on in each queue at the message stored nearest to a time, be it a little older. All queues
        move, or none does.

        Args:
            timestamp_ms: milliseconds since 1970.
            queue: None: every assigned one.

        Raises:
            ValueError: the queue is not assigned.
        """
        async with self._moves:
            chosen = list(self._assigned) if queue is None else [self._of(queue).queue]
            self._move({each: await self.search_offset(each, timestamp_ms) for each in chosen})

    async def poll(self, timeout_ms: int = POLL_TIMEOUT_MS, *, max_messages: int = PULL_BATCH_SIZE) -> list[MessageExt]:
        """Return the next messages of the assigned queues, those of one queue in order; empty when none came in time.

        Args:
            timeout_ms: how long to wait for a message; 0: return what has come already, and ask for more meanwhile.
            max_messages: at most.

        Raises:
            ValueError: no queue is assigned; or fewer than one message is asked for.
            RemotingError, RefusedError: a pull failed, and no other queue has messages. The next poll tries again.
            RemotingConnectError: the consumer is closed.
        """
        if max_messages < 1:
            raise InvalidArgumentError(f"a poll returns one message or more, not {max_messages}: change max_messages")
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        while True:
            messages, failure = self._take(max_messages)
            if messages:
                if failure is not None:
                    log.warning(
                        "client.pull_failed", "a pull failed, the next poll tries again: %(error)s", error=failure
                    )
                if self._codec is not None:
                    having(self._codec, messages)
                return messages
            if failure is not None:
                raise failure
            self._check_open()
            if not self._assigned:
                raise InvalidArgumentError("no queue is assigned: call assign(topic) first")
            left_s = deadline_s - loop.time()
            pulls = [one.pulling() for one in self._assigned.values()]
            if left_s <= 0:
                return []
            # A change of the assigned queues or of a position cancels pulls, which ends this wait, too.
            await asyncio.wait(pulls, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    # --- inside ---

    def _replace(self, assigned: dict[MessageQueue, _AssignedQueue]) -> None:
        """Read these queues from now on. Nothing else can run meanwhile."""
        for one in self._assigned.values():
            one.stop()
        self._assigned = assigned

    def _move(self, positions: Mapping[MessageQueue, int]) -> None:
        """Move assigned queues to positions, all at once. Raises ``ValueError`` if one is not assigned any more."""
        self._check_open()
        for one, queue_offset in [(self._of(queue), queue_offset) for queue, queue_offset in positions.items()]:
            one.seek(queue_offset)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RemotingConnectError(f"the pull consumer of {self.group} is closed")

    def _take(self, max_messages: int) -> tuple[list[MessageExt], Exception | None]:
        """Return messages that have come, and what a pull raised. Queues take turns: the one served last comes last."""
        messages: list[MessageExt] = []
        failure: Exception | None = None
        for queue, one in list(self._assigned.items()):
            if len(messages) == max_messages:
                break
            failure = one.receive() or failure
            taken = one.take(max_messages - len(messages))
            if taken:
                messages += taken
                self._assigned[queue] = self._assigned.pop(queue)
        return messages, failure

    def _of(self, queue: MessageQueue) -> _AssignedQueue:
        if queue not in self._assigned:
            raise InvalidArgumentError(f"{queue} is not assigned: call assign first")
        return self._assigned[queue]

    async def _first_offset(self, queue: MessageQueue, where: Where, timestamp_ms: int) -> int:
        stored = await self.committed(queue)
        if stored is not None:
            return stored
        if where == FROM_TIMESTAMP:
            return await self.search_offset(queue, timestamp_ms)
        return await (self.min_offset(queue) if where == FROM_FIRST else self.max_offset(queue))


class _AssignedQueue:
    """A queue that polls read: what came of it and was not handed out yet, and at most one pull under way."""

    def __init__(
        self,
        api: BrokerApi,
        queue: MessageQueue,
        subscription: SubscriptionData,
        pull_queue_offset: int,
        ending: set[asyncio.Task[PullResult]],
    ) -> None:
        self.queue = queue
        self._api = api
        self._subscription = subscription
        self._pull_queue_offset = pull_queue_offset
        self._messages: deque[MessageExt] = deque()
        self._pull: asyncio.Task[PullResult] | None = None
        self._ending = ending

    @property
    def position(self) -> int:
        """The queue offset of the next message to hand out."""
        return self._messages[0].queue_offset if self._messages else self._pull_queue_offset

    def pulling(self) -> asyncio.Task[PullResult]:
        """Return the pull that is under way, begun here where there is none."""
        if self._pull is None:
            work = self._api.pull(
                self.queue, self._pull_queue_offset, subscription=self._subscription, suspend_ms=POLL_SUSPEND_MS
            )
            self._pull = asyncio.create_task(work, name=f"poll-{self.queue}")
        return self._pull

    def receive(self) -> Exception | None:
        """Keep what the pull has brought, if it is done; return what it raised."""
        if self._pull is None or not self._pull.done():
            return None
        pull, self._pull = self._pull, None
        try:
            result = pull.result()
        except Exception as failure:  # of a hook, too: the messages of other queues are handed out
            return failure
        if result.status is PullStatus.OFFSET_ILLEGAL:
            at, there = self._pull_queue_offset, result.next_begin_queue_offset
            log.warning(
                "client.offset_illegal",
                "offset %(asked_offset)d of %(queue)s is illegal: going on at %(now_offset)d",
                asked_offset=at,
                queue=self.queue,
                now_offset=there,
            )
        self._pull_queue_offset = result.next_begin_queue_offset
        self._messages.extend(result.messages)
        return None

    def take(self, max_messages: int) -> list[MessageExt]:
        """Return the next messages, at most so many, and move the position behind them."""
        return [self._messages.popleft() for _ in range(min(max_messages, len(self._messages)))]

    def seek(self, queue_offset: int) -> None:
        """Drop the messages that have come, and continue at an offset."""
        self.stop()
        self._messages.clear()
        self._pull_queue_offset = queue_offset

    def stop(self) -> None:
        """Cancel the pull that is under way; its messages are pulled again."""
        pull, self._pull = self._pull, None
        if pull is not None:
            self._ending.add(pull)
            pull.add_done_callback(self._ended)
            pull.cancel()

    def _ended(self, pull: asyncio.Task[PullResult]) -> None:
        self._ending.discard(pull)
        if not pull.cancelled():
            pull.exception()  # nobody waits for this pull: its failure concerns nobody

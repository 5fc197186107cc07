"""The pull consumer: the caller chooses the queues and offsets, asks for messages, and commits.

``pull`` reads one queue from an offset. Alternatively, ``assign`` selects queues, and ``poll`` returns the next messages of any
of them, as RocketMQ's ``DefaultLitePullConsumer`` does::

    assign ──▶ position of each queue ◀── seek, seek_to_time
                  │ poll: one pull per queue, held by its broker until a message arrives
                  ▼
              messages, then commit stores the positions just past them
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
"""Default timeout of a poll in ms, which is RocketMQ's ``pollTimeoutMillis``."""
POLL_SUSPEND_MS: Final = 15_000
"""Time in ms for which a broker may hold the pulls of a poll. If the poll ends earlier, its pulls continue, and the next poll
uses their results."""
PULL_BATCH_SIZE: Final = 32


class PullConsumer(QueueOffsets, InstanceUser):
    """Pulls messages on demand, without being a member of its group.

    Used only on the event loop's thread, usually in an ``async with`` statement.

    ::

        async with PullConsumer("billing", "127.0.0.1:9876") as consumer:
            await consumer.assign("Orders", consume_from="first")
            while messages := await consumer.poll():
                ...
                await consumer.commit()

    Every method raises ``RemotingError`` when no server answers and ``RefusedError`` when a request is refused.

    Args:
        group: the consumer group whose committed offsets are read and stored.
        codec: decodes bodies for ``message.value``, such as :class:`~flintmq.remoting.client.codec.JsonCodec`.
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
        """Lock for calls that change the assigned queues or positions. It makes concurrent calls take effect in the order in
        which they were made."""
        self._ending: set[asyncio.Task[PullResult]] = set()
        """Pulls that were cancelled and have not ended yet."""
        self._is_closed = False

    async def start(self) -> None:
        """Allow the consumer to poll messages again after :meth:`close`."""
        async with self._changes:
            self._open()
            self._is_closed = False

    async def close(self) -> None:
        """Cancel running pulls and close the connections, without a commit. Idempotent.

        If a ``poll``, ``assign`` or ``seek`` is running when the consumer is closed, it raises ``RemotingConnectError``.
        """
        async with self._changes:
            self._is_closed = True
            self._replace({})
            if self._ending:
                await asyncio.wait(self._ending)
            await self._shut()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic."""
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
        """Return a broker's answer to one pull of a queue, with the messages from a queue offset on.

        Args:
            queue: the queue to read; it does not need to be assigned.
            queue_offset: the queue offset of the first message.
            max_messages: the maximum number of messages.
            suspend_ms: how long the broker waits for a message if the queue has no message from the offset on; 0: the broker
                answers at once.
            expression, expression_type: select the messages (``*``, ``A || B``, or SQL92).
        """
        subscription = build_subscription(queue.topic, expression, expression_type)
        result = await self._api.pull(
            queue, queue_offset, subscription=subscription, max_messages=max_messages, suspend_ms=suspend_ms
        )
        if self._codec is not None:
            having(self._codec, result.messages)
        return result

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset of a queue, or None if none is stored.

        A broker answers 0 for a group without a stored offset if the queue still has its first message (RocketMQ's rule). The
        group then begins at the first message, whatever its ``consume_from``.
        """
        return await self._api.committed(queue)

    async def commit(self, queue: MessageQueue | None = None, consumer_offset: int | None = None) -> None:
        """Store the group's offset of a queue: the queue offset of the next message to consume.

        Args:
            queue: the queue; None: every assigned queue.
            consumer_offset: the offset; None: the queue's position, just past the last message that was polled from it.

        Raises:
            ValueError: ``consumer_offset`` is given without ``queue``; or only ``queue`` is given, and this consumer is not
                assigned the queue.
        """
        if queue is None:
            if consumer_offset is not None:
                raise InvalidArgumentError("an offset needs its queue: call commit(queue, consumer_offset)")
            await self._api.commit_all(self.positions, wait=True)
        elif consumer_offset is None:
            await self._api.commit(queue, self._of(queue).position)
        else:
            await self._api.commit(queue, consumer_offset)

    # --- the assigned queues and their positions ---

    @property
    def positions(self) -> Mapping[MessageQueue, int]:
        """The assigned queues, each with the queue offset of the next message that :meth:`poll` returns from it."""
        return {queue: one.position for queue, one in self._assigned.items()}

    async def assign(
        self,
        queues: str | Sequence[MessageQueue],
        expression: str = "*",
        expression_type: str = TAG,
        *,
        consume_from: ConsumeFrom = FROM_LAST,
    ) -> None:
        """Set the queues that :meth:`poll` reads, in place of the queues assigned before.

        The queues that other consumers of the group read have no influence on the assignment.

        A queue that was already assigned keeps its position. Any other queue begins at the group's committed offset.

        Args:
            queues: the queues; a topic name stands for the queues that the topic has now.
            expression, expression_type: select the messages (``*``, ``A || B``, or SQL92).
            consume_from: the start of a queue for which the group has no offset: ``"last"`` (after its last message),
                ``"first"``, or a time (see :class:`ConsumerSettings`).

        Raises:
            RefusedError: the expression does not parse.
            InvalidArgumentError: ``consume_from`` is invalid.
        """
        where, timestamp_ms = begin_of(consume_from)
        if consume_from == FROM_TIMESTAMP:
            raise InvalidArgumentError(
                f"consume_from is {FROM_TIMESTAMP} without a time: give the time as consume_from"
            )
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
            # Positions of queues that stay assigned are read after the last await, because polls may change them during awaits.
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
        """Set the position of an assigned queue. Later polls, and a :meth:`poll` that is running, continue at this position.

        Raises:
            ValueError: the queue is not assigned, or the offset is outside the queue's range, which the error's text states.
        """
        async with self._moves:
            self._of(queue)
            first, behind_last = await self.min_offset(queue), await self.max_offset(queue)
            if not first <= queue_offset <= behind_last:
                raise InvalidArgumentError(f"{queue} has the offsets {first} to {behind_last}, not {queue_offset}")
            self._move({queue: queue_offset})

    async def seek_to_time(self, timestamp_ms: int, queue: MessageQueue | None = None) -> None:
        """Set the positions of assigned queues to the messages stored nearest to a time.

        The message found in a queue can be a little older than the time. If the search fails for one queue, no position is
        changed.

        Args:
            timestamp_ms: milliseconds since 1970.
            queue: the queue whose position is set; None: every assigned queue.

        Raises:
            ValueError: the queue is not assigned.
        """
        async with self._moves:
            chosen = list(self._assigned) if queue is None else [self._of(queue).queue]
            self._move({each: await self.search_offset(each, timestamp_ms) for each in chosen})

    async def poll(self, timeout_ms: int = POLL_TIMEOUT_MS, *, max_messages: int = PULL_BATCH_SIZE) -> list[MessageExt]:
        """Return the next messages of the assigned queues, in order within each queue; empty if none arrives in time.

        Args:
            timeout_ms: how long to wait for a message; 0: return the messages that have arrived, and start the next pulls.
            max_messages: the maximum number of messages.

        Raises:
            ValueError: no queue is assigned, or ``max_messages`` is less than 1.
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
            # asyncio.wait() returns early if the assigned queues or a position changes, because the change cancels the pulls.
            await asyncio.wait(pulls, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    # --- internals ---

    def _replace(self, assigned: dict[MessageQueue, _AssignedQueue]) -> None:
        """Replace the assigned queues, and stop the pulls of the queues assigned before. No other task runs before this method
        returns."""
        for one in self._assigned.values():
            one.stop()
        self._assigned = assigned

    def _move(self, positions: Mapping[MessageQueue, int]) -> None:
        """Set the positions of assigned queues. Raises ``ValueError``, and changes nothing, if a queue is not assigned."""
        self._check_open()
        for one, queue_offset in [(self._of(queue), queue_offset) for queue, queue_offset in positions.items()]:
            one.seek(queue_offset)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RemotingConnectError(f"the pull consumer of {self.group} is closed")

    def _take(self, max_messages: int) -> tuple[list[MessageExt], Exception | None]:
        """Return messages that have arrived from assigned queues, and the exception of a failed pull, if any.

        Queues are served in turn: a queue that gave messages moves to the end of the order.
        """
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
    """An assigned queue: its messages that were pulled and not yet returned by a poll, and at most one running pull."""

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
        """The queue offset of the next message that a poll returns from this queue."""
        return self._messages[0].queue_offset if self._messages else self._pull_queue_offset

    def pulling(self) -> asyncio.Task[PullResult]:
        """Return the task of this queue's running pull; start a pull if none is running."""
        if self._pull is None:
            work = self._api.pull(
                self.queue, self._pull_queue_offset, subscription=self._subscription, suspend_ms=POLL_SUSPEND_MS
            )
            self._pull = asyncio.create_task(work, name=f"poll-{self.queue}")
        return self._pull

    def receive(self) -> Exception | None:
        """Store the messages of this queue's pull if the pull is done; return the pull's exception if it failed, else None."""
        if self._pull is None or not self._pull.done():
            return None
        pull, self._pull = self._pull, None
        try:
            result = pull.result()
        except Exception as failure:
            # The exception is returned and not raised, so that the poll still returns messages of other queues.
            return failure
        if result.status is PullStatus.OFFSET_ILLEGAL:
            at, there = self._pull_queue_offset, result.next_begin_queue_offset
            log.warning(
                "client.offset_illegal",
                "offset %(asked_offset)d of %(queue)s is illegal: pulling continues at %(now_offset)d",
                asked_offset=at,
                queue=self.queue,
                now_offset=there,
            )
        self._pull_queue_offset = result.next_begin_queue_offset
        self._messages.extend(result.messages)
        return None

    def take(self, max_messages: int) -> list[MessageExt]:
        """Return this queue's next messages, at most ``max_messages``, and move the queue's position past them."""
        return [self._messages.popleft() for _ in range(min(max_messages, len(self._messages)))]

    def seek(self, queue_offset: int) -> None:
        """Drop this queue's messages that no poll has returned yet, and continue at a queue offset."""
        self.stop()
        self._messages.clear()
        self._pull_queue_offset = queue_offset

    def stop(self) -> None:
        """Cancel this queue's running pull; the messages of the cancelled pull are pulled again later."""
        pull, self._pull = self._pull, None
        if pull is not None:
            self._ending.add(pull)
            pull.add_done_callback(self._ended)
            pull.cancel()

    def _ended(self, pull: asyncio.Task[PullResult]) -> None:
        self._ending.discard(pull)
        if not pull.cancelled():
            # A pull may end with an exception although the pull was cancelled.
            # No caller waits for a cancelled pull, so exception() is called to keep asyncio from logging the pull's exception.
            pull.exception()

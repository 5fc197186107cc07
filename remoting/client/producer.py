"""The producer: sends messages one by one, in batches, as requests that wait for a reply, and without waiting at all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Unpack

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError, RemotingError, RemotingTimeoutError
from flintmq.remoting.client.instance import ClientInstance, InstanceOptions, InstanceUser
from flintmq.remoting.client.message import Message, MessageExt
from flintmq.remoting.client.prepared import MESSAGE_MAX_BYTES, Preparer
from flintmq.remoting.client.produce_accumulator import LINGER_MAX_BYTES, ProduceAccumulator
from flintmq.remoting.client.request_reply import make_reply
from flintmq.remoting.client.route import NEW_TOPIC_QUEUES, NameServers
from flintmq.remoting.client.send_result import PartlySentError, SendResult
from flintmq.remoting.client.sending import LatencyBackoff, Sender
from flintmq.remoting.client.trace import Tracer
from flintmq.remoting.client.unique_id import UniqueIdMaker

SEND_TIMEOUT_MS: Final = 3_000


class ProducerOptions(InstanceOptions, total=False):
    """The keyword arguments of :class:`Producer`, for the type annotations of functions that pass them on."""

    client: ClientInstance | None
    retries: int
    compress_over_bytes: int | None
    max_message_bytes: int
    default_topic_queue_nums: int
    latency_backoff: bool
    retry_when_not_durable: bool
    trace: str | bool
    linger_ms: float | None
    linger_max_bytes: int


class Producer(InstanceUser):
    """Sends messages, each to the next queue of its topic.

    Used only on the event loop's thread, usually in an ``async with`` statement.

    Args:
        group: the producer group.
        retries: the number of further attempts at other brokers if a send fails. A retry can store a message twice.
        compress_over_bytes: bodies of at least this size are compressed; None: never.
        max_message_bytes: the maximum size of a body; the client refuses a longer body.
        default_topic_queue_nums: the number of queues to request if a send creates the topic.
        latency_backoff: whether to avoid a slow or failed broker for 30 s to 10 min if the topic has queues at other brokers
            (``sendLatencyFaultEnable`` of the Java client).
        retry_when_not_durable: whether to try another broker if a broker has stored a message but not made it durable in time
            (``retryAnotherBrokerWhenNotStoreOK``). The message is then stored twice.
        trace: True writes a trace record of each message to RocketMQ's trace topic; a string names another topic.
        linger_ms: how long a send waits for other messages to its topic, to send them in one request. 0 waits for sends that
            begin in the same iteration of the event loop; None sends each message by itself. Messages that cannot be in a
            batch (delayed, compressed, replies) are always sent by themselves.
        linger_max_bytes: the maximum total size of the bodies in such a batch; a full batch is sent at once.
        name_servers, client, instance_options: see :class:`~flintmq.remoting.client.instance.InstanceUser`.
    """

    def __init__(
        self,
        group: str,
        name_servers: NameServers = (),
        *,
        client: ClientInstance | None = None,
        retries: int = 2,
        compress_over_bytes: int | None = None,
        max_message_bytes: int = MESSAGE_MAX_BYTES,
        default_topic_queue_nums: int = NEW_TOPIC_QUEUES,
        latency_backoff: bool = False,
        retry_when_not_durable: bool = False,
        trace: str | bool = False,
        linger_ms: float | None = None,
        linger_max_bytes: int = LINGER_MAX_BYTES,
        **instance_options: Unpack[InstanceOptions],
    ) -> None:
        super().__init__(name_servers, client=client, **instance_options)
        self.group = group
        self._is_member = False
        self._preparer = Preparer(compress_over_bytes, max_message_bytes, UniqueIdMaker(clock=self.client.clock))
        backoff = LatencyBackoff(self.client.clock) if latency_backoff else None
        self._tracer = Tracer(self.client, group, trace) if trace else None
        self._sender = Sender(
            self.client,
            group,
            retries,
            default_topic_queue_nums,
            backoff,
            retry_when_not_durable=retry_when_not_durable,
            on_stored=self._tracer.sent if self._tracer is not None else None,
        )
        self._gatherer = (
            None if linger_ms is None else ProduceAccumulator(self._sender, self._preparer, linger_ms, linger_max_bytes)
        )

    async def start(self) -> None:
        """Start the heartbeats, by which brokers find the producer for transaction checks and replies.

        Sends without transactions or replies also work without a start. After :meth:`close` the producer can be started again.

        Raises:
            RemotingConnectError: the shared ``client`` is closed.
        """
        async with self._changes:
            self._open()
            if self._gatherer is not None:
                self._gatherer.is_closed = False
            if self._tracer is not None:
                self._tracer.begin()
            if not self._is_member:
                self._is_member = True
                self.client.producers[self.group] += 1
                self.client.producer_groups.add(self.group)
                self.client.requests.forget_announced()
            self.client.start_heartbeats()

    async def close(self) -> None:
        """Send the messages that wait for a batch, leave the group and close the connections. Idempotent."""
        async with self._changes:
            if self._gatherer is not None:
                await self._gatherer.close()
            if self._tracer is not None:
                await self._tracer.close()
            if self._is_member:
                self._is_member = False
                self.client.producers[self.group] -= 1
                if not self.client.producers[self.group]:
                    self.client.producer_groups.discard(self.group)
                    await self.client.unregister(producer_group=self.group)
            await self._shut()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the writable queues of a topic. Raises the exceptions of :meth:`send`."""
        return (await self._sender.route(topic)).write_queues

    async def send(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        *,
        sharding_key: str | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> SendResult:
        """Send a message and wait until it is stored.

        Args:
            message: the message to send.
            queue: the queue to send to; no other queue is tried. None: the topic's next queue.
            sharding_key: chooses the queue instead of ``queue``. Messages with the same key go to the same queue, in the order
                of their sends. The Java client chooses the same queue for a key (SelectMessageQueueByHash).
            timeout_ms: the limit for all steps: the name server, connections, retries, and the wait of ``linger_ms``.

        Raises:
            ValueError: the message is too long, or both ``queue`` and ``sharding_key`` are given.
            RefusedError: the broker or the name server refuses the message.
            RemotingError: a timeout or a lost connection; the message may or may not be stored.
        """
        if self._gatherer is not None and (queue is None or sharding_key is None):
            gathered = self._gatherer.add(message, queue, sharding_key, timeout_ms)
            if gathered is not None:
                return await gathered
        return await self._sender.send(self._preparer.one(message), queue, timeout_ms, sharding_key)

    async def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        *,
        sharding_key: str | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> SendResult:
        """Send messages of one topic to one queue as a batch: all are stored, or none.

        The arguments and exceptions are those of :meth:`send`.
        """
        return await self._sender.send(self._preparer.batch(messages), queue, timeout_ms, sharding_key)

    async def send_all(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        *,
        sharding_key: str | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> list[SendResult]:
        """Send any number of messages of one topic, in order, in as few batches as the limits of a batch allow.

        Args:
            messages: the messages to send, in order. Each must be allowed in a batch.
            queue, sharding_key: as for :meth:`send`. If neither is given, each batch goes to the topic's next queue.
            timeout_ms: the limit for each batch.

        Returns:
            A list with the send result of each batch, in the order of the batches; empty if ``messages`` is empty.

        Raises:
            PartlySentError: a batch failed after earlier batches were stored; ``stored_messages`` is the number of messages in
                the stored batches.
            ValueError, RefusedError, RemotingError: for the same reasons as in :meth:`send`; no batch was stored before the
                failure.
        """
        results: list[SendResult] = []
        stored_messages = 0
        # batches() returns a list and not a generator, so all messages are checked before the first batch is sent.
        for prepared in self._preparer.batches(messages):
            try:
                results.append(await self._sender.send(prepared, queue, timeout_ms, sharding_key))
            except (RefusedError, RemotingError) as failure:
                if not results:
                    raise
                raise PartlySentError(prepared.topic, results, stored_messages) from failure
            stored_messages += prepared.messages
        return results

    async def request(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        *,
        sharding_key: str | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> MessageExt:
        """Send a message, wait until a consumer replies, and return the reply. The producer must be started.

        Args:
            message: the request.
            queue, sharding_key: as for :meth:`send`.
            timeout_ms: the limit for all steps: sending, consuming and replying.

        Raises:
            RemotingTimeoutError: no reply came in time. The message may have been consumed, or may still be consumed.
            UnreadableError: the reply cannot be read.
            ValueError, RefusedError, RemotingError: for the same reasons as in :meth:`send`.
        """
        requests = self.client.requests
        asked, reply = requests.stamped(message, timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                left_ms = await self._introduce(message.topic, timeout_ms)
                await self._sender.send(self._preparer.one(asked), queue, left_ms, sharding_key)
                return await reply
        except TimeoutError as failure:
            raise RemotingTimeoutError(f"no reply to a request to {message.topic} within {timeout_ms} ms") from failure
        finally:
            requests.forget(asked)

    async def reply(
        self,
        request: MessageExt,
        body: bytes,
        properties: Mapping[str, str] | None = None,
        *,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> SendResult:
        """Reply to a consumed request.

        The reply is sent to the broker that delivered the request, because the requester is connected to this broker.

        Raises:
            ValueError: ``request`` is an ordinary message, whose sender does not wait for a reply.
            RefusedError: the sender of the request has disconnected, or did not accept the reply.
            RemotingError: for the same reasons as in :meth:`send`.
        """
        message = make_reply(request, body, properties)
        begin_s = self.client.clock.monotonic_s()
        route = await self._sender.route(message.topic, timeout_ms)
        queues = [queue for queue in route.write_queues if queue.broker_name == request.broker_name]
        left_ms = max(1, timeout_ms - int((self.client.clock.monotonic_s() - begin_s) * 1000))
        return await self.send(message, queues[0] if queues else None, timeout_ms=left_ms)

    async def send_oneway(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        *,
        sharding_key: str | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> None:
        """Send a message without waiting for an answer; the message may be lost.

        Args:
            message, queue, sharding_key: as for :meth:`send`.
            timeout_ms: the limit for all steps: the route, the connection, and the write of the message to the connection.

        Raises:
            ValueError, RefusedError, RemotingError: for the same reasons as in :meth:`send`. A broker's refusal raises
                no exception, because the broker does not answer.
        """
        prepared, clock = self._preparer.one(message), self.client.clock
        begin_s = clock.monotonic_s()
        if sharding_key is None:
            route = await self._sender.route(prepared.topic, timeout_ms)
            queue = queue or self._sender.next_queue(route)
        else:
            route, queue = await self._sender.chosen(prepared.topic, queue, sharding_key, timeout_ms)
        left_ms = max(1.0, timeout_ms - (clock.monotonic_s() - begin_s) * 1000)
        try:
            await self.client.remoting.invoke_oneway(
                route.address(queue.broker_name), self._sender.command(prepared, queue), left_ms
            )
        except RemotingError:
            self.client.routes.doubt(prepared.topic)
            raise

    async def _introduce(self, topic: str, timeout_ms: float) -> float:
        """Send heartbeats to a topic's brokers, and return the remaining milliseconds of a timeout, at least 1.

        After a heartbeat, a broker can forward replies to this client, and can ask it about transactions of its group.
        """
        clock = self.client.clock
        deadline_s = clock.monotonic_s() + timeout_ms / 1000
        route = await self._sender.route(topic, timeout_ms)
        # announce() gets the brokers' addresses, because it could not find the route of a topic that does not exist yet.
        addresses = [route.address(name) for name in route.broker_addrs]
        await self.client.requests.announce(addresses, (deadline_s - clock.monotonic_s()) * 1000)
        return max(1.0, (deadline_s - clock.monotonic_s()) * 1000)

"""Sending messages."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from flintmq.config.rocketmq.system_topics import AUTO_CREATE_TOPIC
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError, RemotingError, RemotingTimeoutError
from flintmq.remoting.client.instance import ClientInstance, InstanceUser
from flintmq.remoting.client.linger import Gatherer
from flintmq.remoting.client.message import Message, MessageExt
from flintmq.remoting.client.prepared import MESSAGE_MAX_BYTES, Prepared, Preparer
from flintmq.remoting.client.request_reply import make_reply
from flintmq.remoting.client.route import TopicRoute, make_topic_route
from flintmq.remoting.client.send_result import STORED, PartlySentError, SendResult, send_result
from flintmq.remoting.wire.codes import ResponseCode
from flintmq.remoting.wire.command import RemotingCommand, request
from flintmq.remoting.wire.header_codec import encode_header
from flintmq.remoting.wire.headers_message import BORN_TIMESTAMP, PROPERTIES, SendMessageRequestHeaderV2

RETRY_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""Refusals after which another broker is tried (docs/internals/protocol.md, Response codes)."""
SEND_TIMEOUT_MS: Final = 3_000
_FIELDS_MAX: Final = 4_096


class Producer(InstanceUser):
    """Sends messages, each to the next queue of its topic. Loop thread only; use it in an ``async with`` statement.

    Args:
        group: the producer group.
        retries: further brokers to try when a send fails. With retries a message may be stored more than once.
        compress_over_bytes: bodies at least this long are compressed; None: never.
        max_message_bytes: longer bodies are refused here.
        default_topic_queue_nums: queues asked for when sending creates the topic.
        linger_ms: how long a send waits for others to its topic, to go with them in one request; 0: for those that begin in
            the same turn of the event loop; None: each goes by itself. Messages that a batch cannot hold (delayed,
            compressed, replies) always do.
        name_servers, client, instance_options: see :class:`~flintmq.remoting.client.instance.InstanceUser`.
    """

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str] = (),
        *,
        client: ClientInstance | None = None,
        retries: int = 2,
        compress_over_bytes: int | None = None,
        max_message_bytes: int = MESSAGE_MAX_BYTES,
        default_topic_queue_nums: int = 4,
        linger_ms: float | None = None,
        **instance_options: Any,
    ) -> None:
        super().__init__(name_servers, client=client, **instance_options)
        self.group = group
        self._retries = retries
        self._preparer = Preparer(compress_over_bytes, max_message_bytes)
        self._gatherer = None if linger_ms is None else Gatherer(self._stored, self._preparer, linger_ms)
        self._default_topic_queue_nums = default_topic_queue_nums
        self._fields: dict[MessageQueue, dict[str, str]] = {}
        """The extFields of a plain send to a queue: only its time and its properties differ."""
        self._turn = itertools.count(random.getrandbits(16))

    async def start(self) -> None:
        """Start the heartbeats. Sending works before, but transactions and replies find the producer only after."""
        self.client.producer_groups.add(self.group)
        self.client.start_heartbeats()

    async def close(self) -> None:
        """Send what was gathered, leave the group and close the connections. Idempotent."""
        if self._gatherer is not None:
            await self._gatherer.close()
        if self.group in self.client.producer_groups:
            self.client.producer_groups.discard(self.group)
            await self.client.unregister(producer_group=self.group)
        await super().close()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be written to. Raises as :meth:`send`."""
        return (await self._route(topic)).write_queues

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
            message: what to send.
            queue: where to; then nothing else is tried. None: the topic's next queue.
            sharding_key: chooses the queue in its place: messages with one key go to one queue, in the order of their sends,
                and to the queue that the Java client chooses for the key (SelectMessageQueueByHash).
            timeout_ms: for everything, retries included.

        Raises:
            ValueError: the message is too long; or there are both, a queue and a sharding key.
            RefusedError: the broker, or the name server, refuses it.
            RemotingError: it is not known whether the message was stored (timeout, lost connection).
        """
        if sharding_key is not None:
            queue = await self._chosen(message.topic, queue, sharding_key)
        if self._gatherer is not None and self._preparer.goes_in_batch(message):
            return await self._gatherer.add(message, queue, timeout_ms)
        return await self._send(self._preparer.one(message), queue, timeout_ms)

    async def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        *,
        sharding_key: str | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> SendResult:
        """Send messages of one topic to one queue, stored together or not at all. Raises as :meth:`send`."""
        prepared = self._preparer.batch(messages)
        return await self._send(prepared, await self._chosen(prepared.topic, queue, sharding_key), timeout_ms)

    async def send_all(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        *,
        sharding_key: str | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> list[SendResult]:
        """Send any number of messages of one topic, one after the other in as few batches as the limits of a batch allow.

        Args:
            messages: what to send, in order. Each must be one that a batch can hold.
            queue, sharding_key: as for :meth:`send`. With neither, each batch goes to the topic's next queue.
            timeout_ms: for each batch.

        Returns:
            A result for each batch, none where there are no messages.

        Raises:
            PartlySentError: a batch failed after others were stored; it says how many messages are stored for certain.
            ValueError, RefusedError, RemotingError: as :meth:`send`; nothing was stored before.
        """
        results: list[SendResult] = []
        stored_messages = 0
        for prepared in self._preparer.batches(messages):  # a list: none is sent before all are checked
            try:
                target = await self._chosen(prepared.topic, queue, sharding_key)
                results.append(await self._send(prepared, target, timeout_ms))
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
        """Send a message and wait until one of its consumers has replied; the producer must be started.

        Args:
            message: what to ask.
            queue, sharding_key: as for :meth:`send`.
            timeout_ms: for everything: sending, consuming, replying.

        Raises:
            RemotingTimeoutError: no reply came in time. The message may have been consumed, or may be yet.
            ValueError, RefusedError, RemotingError: as :meth:`send`.
        """
        clock = self.client.clock
        deadline_s = clock.monotonic_s() + timeout_ms / 1000
        requests = self.client.requests
        asked, reply = requests.stamped(message, timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                route = await self._route(message.topic)
                await requests.announce(route.address(name) for name in route.broker_addrs)
                target = await self._chosen(message.topic, queue, sharding_key)
                left_ms = max(1, int((deadline_s - clock.monotonic_s()) * 1000))
                await self._send(self._preparer.one(asked), target, left_ms)
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
        """Answer a request that was consumed; at the broker the request came from, which knows the requester.

        Raises:
            ValueError: the message is not a request.
            RefusedError: the requester is not connected any more, or did not take the reply.
            RemotingError: as :meth:`send`.
        """
        message = make_reply(request, body, properties)
        queues = [queue for queue in await self.queues(message.topic) if queue.broker_name == request.broker_name]
        return await self.send(message, queues[0] if queues else None, timeout_ms=timeout_ms)

    async def send_oneway(
        self, message: Message, queue: MessageQueue | None = None, *, sharding_key: str | None = None
    ) -> None:
        """Send a message and do not wait for an answer: it may be lost. Raises as :meth:`send`, short of the answer."""
        prepared = self._preparer.one(message)
        route = await self._route(prepared.topic)
        queue = await self._chosen(prepared.topic, queue, sharding_key) or self._next_queue(route, None)
        await self.client.remoting.invoke_oneway(route.address(queue.broker_name), self._command(prepared, queue))

    # --- inside ---

    async def _send(self, prepared: Prepared, queue: MessageQueue | None, timeout_ms: int) -> SendResult:
        return send_result(prepared.msg_id, *await self._stored(prepared, queue, timeout_ms))

    async def _stored(
        self, prepared: Prepared, queue: MessageQueue | None, timeout_ms: int
    ) -> tuple[MessageQueue, RemotingCommand]:
        """Send a request, again and again where that helps; return the queue that it went to, and the broker's answer."""
        clock = self.client.clock
        deadline_s = clock.monotonic_s() + timeout_ms / 1000
        route = await self._route(prepared.topic)
        failed_broker: str | None = None
        failure: RefusedError | RemotingError | None = None
        for _ in range(1 if queue else 1 + self._retries):
            left_ms = (deadline_s - clock.monotonic_s()) * 1000
            if left_ms <= 0:
                break
            target = queue or self._next_queue(route, failed_broker)
            try:
                address = route.address(target.broker_name)
                return target, await self.client.ask(address, self._command(prepared, target), left_ms, *STORED)
            except RefusedError as refused:
                if refused.code not in RETRY_CODES:
                    raise
                failure = refused
            except RemotingError as lost:
                failure = lost
            failed_broker = target.broker_name
        raise failure or RemotingTimeoutError(f"topic {prepared.topic} was not sent to within {timeout_ms} ms")

    def _command(self, prepared: Prepared, queue: MessageQueue) -> RemotingCommand:
        is_plain = not (prepared.sys_flag or prepared.flag or prepared.batch)
        fields = self._fields.get(queue) if is_plain else None
        if fields is None:
            header = SendMessageRequestHeaderV2(
                producer_group=self.group,
                topic=prepared.topic,
                default_topic=AUTO_CREATE_TOPIC,
                default_topic_queue_nums=self._default_topic_queue_nums,
                queue_id=queue.queue_id,
                sys_flag=prepared.sys_flag,
                born_timestamp_ms=self.client.clock.now_ms(),
                flag=prepared.flag,
                properties=prepared.properties,
                batch=prepared.batch,
                broker_name=queue.broker_name,
            )
            fields = encode_header(header)
            if is_plain:
                if len(self._fields) >= _FIELDS_MAX:
                    self._fields.clear()
                self._fields[queue] = fields
        fields = {**fields, BORN_TIMESTAMP: str(self.client.clock.now_ms()), PROPERTIES: prepared.properties}
        return request(prepared.code, fields, prepared.body)

    async def _route(self, topic: str) -> TopicRoute:
        """Return the topic's route; that of the auto-create topic, with queues of this one, while it does not exist."""
        try:
            return await self.client.routes.route(topic)
        except RefusedError as refused:
            if refused.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            try:
                data = await self.client.routes.fetch(AUTO_CREATE_TOPIC)
            except RefusedError:
                raise refused from None
        narrowed = []
        for queues in data.queue_datas:
            queue_nums = min(queues.write_queue_nums, self._default_topic_queue_nums)
            narrowed.append(replace(queues, write_queue_nums=queue_nums, read_queue_nums=queue_nums))
        return make_topic_route(topic, replace(data, queue_datas=narrowed))

    def _next_queue(self, route: TopicRoute, failed_broker: str | None) -> MessageQueue:
        """Return the next queue in turn; one at another broker than the one that just failed, if there is any."""
        every = route.queues_to_write()
        queues = [queue for queue in every if queue.broker_name != failed_broker] or every
        return queues[next(self._turn) % len(queues)]

    async def _chosen(self, topic: str, queue: MessageQueue | None, sharding_key: str | None) -> MessageQueue | None:
        """Return the queue that the caller names, by itself or by a key; None where any will do."""
        if sharding_key is None:
            return queue
        if queue is not None:
            raise ValueError("name a queue or a sharding key, not both: the key chooses the queue")
        return (await self._route(topic)).queue_by_key(sharding_key)

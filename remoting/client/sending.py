"""Sends encoded (prepared) messages: chooses the queue, retries at another broker if useful, and returns the result."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

import attrs
from msgspec.structs import replace

from flintmq.config.rocketmq.system_topics import AUTO_CREATE_TOPIC
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import InvalidArgumentError, RefusedError, RemotingError, RemotingTimeoutError
from flintmq.core.io import chance
from flintmq.core.io.clock import Clock
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.prepared import Prepared
from flintmq.remoting.client.route import NEW_TOPIC_QUEUES, TopicRoute, make_topic_route
from flintmq.remoting.client.send_result import STORED, SendResult, send_result
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
"""Response codes of a broker after which the producer tries another broker (docs/internals/protocol.md, Response codes)."""
_FIELDS_MAX: Final = 4_096


_BACKOFFS_MS: Final = ((15_000, 600_000), (3_000, 180_000), (2_000, 120_000), (1_000, 60_000), (550, 30_000))
"""Pairs of a latency and the time for which a broker with at least this latency is avoided, both in ms.

The latencies are ``latencyMax``, and the times ``notAvailableDuration``, of RocketMQ's ``MQFaultStrategy``."""
_FAILURE_MS: Final = 30_000
"""The latency, in ms, that is recorded for a failed request."""


class LatencyBackoff:
    """Avoids a broker for some time after it was slow or failed (``MQFaultStrategy`` of RocketMQ).

    Used only on the event loop's thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at_s: dict[str, float] = {}

    def answered(self, broker_name: str, latency_ms: float) -> None:
        """Record the latency of a broker's answer, and avoid the broker for some time if it was slow."""
        duration_ms = next((duration_ms for limit_ms, duration_ms in _BACKOFFS_MS if latency_ms >= limit_ms), 0)
        if duration_ms:
            self._free_at_s[broker_name] = self._clock.monotonic_s() + duration_ms / 1000
        else:
            self._free_at_s.pop(broker_name, None)

    def failed(self, broker_name: str) -> None:
        """Record that a broker did not answer, or could not store a message, and avoid the broker for some time."""
        self.answered(broker_name, _FAILURE_MS)

    def choose(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Return the queues of the brokers that are not avoided.

        If all brokers are avoided, return the queues of the broker that is avoided for the shortest remaining time.
        """
        if not self._free_at_s:
            return queues
        now_s, free_at_s = self._clock.monotonic_s(), self._free_at_s
        free = [queue for queue in queues if free_at_s.get(queue.broker_name, now_s) <= now_s]
        first_name = min((queue.broker_name for queue in queues), key=lambda name: free_at_s.get(name, now_s))
        return free or [queue for queue in queues if queue.broker_name == first_name]


@attrs.frozen
class Sender:
    """Sends the encoded (prepared) messages of one producer group. Used only on the event loop's thread."""

    client: ClientInstance
    group: str
    retries: int = 2
    """Number of further attempts at other brokers after a send has failed."""
    default_topic_queue_nums: int = NEW_TOPIC_QUEUES
    """Number of queues that a new topic gets if a send creates the topic."""
    backoff: LatencyBackoff | None = None
    retry_when_not_durable: bool = False
    """Whether the producer sends a message to another broker if a broker has stored it, but not as durably as requested."""
    on_stored: Callable[[Prepared, MessageQueue, str, RemotingCommand, int], None] | None = None
    """Function that is called after each send whose messages a broker has stored. Its arguments are the send, its queue, the
    broker's address, the answer, and the start time in ms since 1970."""
    _fields: dict[MessageQueue, dict[str, str]] = attrs.field(factory=dict, init=False)
    """Cached extFields of send requests, keyed by queue. They are used for single messages without flags. The requests for such
    messages to one queue differ only in the time and the properties."""
    _turn: itertools.count[int] = attrs.field(factory=lambda: itertools.count(chance.bits(16)), init=False)

    async def send(
        self, prepared: Prepared, queue: MessageQueue | None, timeout_ms: float, sharding_key: str | None = None
    ) -> SendResult:
        """Send encoded (prepared) messages to a queue, and return the result.

        If the caller names the queue, or a sharding key selects it, the send is not retried. Otherwise the messages are sent to
        the next queue of the topic, with retries at other brokers.

        See :meth:`Producer.send <flintmq.remoting.client.producer.Producer.send>`, which raises the same exceptions.
        """
        return send_result(prepared.msg_id, *await self.stored(prepared, queue, timeout_ms, sharding_key))

    async def stored(
        self, prepared: Prepared, queue: MessageQueue | None, timeout_ms: float, sharding_key: str | None = None
    ) -> tuple[MessageQueue, RemotingCommand]:
        """Send prepared messages as :meth:`send` does; return the queue that stored the messages, and the broker's answer."""
        clock = self.client.clock
        deadline_s = clock.monotonic_s() + timeout_ms / 1000
        topic = prepared.topic
        if sharding_key is None:
            route = self.client.routes.fresh(topic) or await self.route(topic, timeout_ms)
        else:
            route, queue = await self.chosen(topic, queue, sharding_key, timeout_ms)
        failed_broker: str | None = None
        failure: RefusedError | RemotingError | None = None
        stored: tuple[MessageQueue, RemotingCommand] | None = None
        for attempt in range(1 if queue else 1 + self.retries):
            left_ms = (deadline_s - clock.monotonic_s()) * 1000
            if left_ms <= 0:
                break
            target = queue or self.next_queue(route, failed_broker)
            try:
                stored = target, await self._ask(route, prepared, target, left_ms)
            except RefusedError as refused:
                if refused.code not in RETRY_CODES:
                    if stored is None:
                        raise
                    break
                failure = refused
            except RemotingError as lost:
                failure = lost
                self.client.routes.doubt(topic)
                if queue is None and attempt < self.retries:
                    route = await self._route_again(route, deadline_s)
            else:
                if not self._tries_elsewhere(stored, route) or queue or attempt == self.retries:
                    return stored
            failed_broker = target.broker_name
        if stored is not None:
            return stored
        raise failure or RemotingTimeoutError(f"a message of {topic} was not sent within {timeout_ms:g} ms")

    async def _route_again(self, route: TopicRoute, deadline_s: float) -> TopicRoute:
        """Fetch a topic's route again for the next attempt of a send, and return the fetched route; return ``route`` if the
        fetch fails.

        The previous attempt may have failed because a broker has a new address.
        """
        left_ms = (deadline_s - self.client.clock.monotonic_s()) * 1000
        if left_ms <= 0:
            return route
        try:
            return await self.client.routes.route(route.topic, timeout_ms=left_ms)
        except (RefusedError, RemotingError):
            return route

    def _tries_elsewhere(self, stored: tuple[MessageQueue, RemotingCommand], route: TopicRoute) -> bool:
        queue, answer = stored
        return (
            self.retry_when_not_durable
            and answer.code != ResponseCode.SUCCESS
            and any(other.broker_name != queue.broker_name for other in route.write_queues)
        )

    async def _ask(
        self, route: TopicRoute, prepared: Prepared, queue: MessageQueue, timeout_ms: float
    ) -> RemotingCommand:
        """Send prepared messages to the broker of a queue once; record the broker's latency, and return its answer."""
        backoff, clock = self.backoff, self.client.clock
        begin_s, begin_ms = clock.monotonic_s(), clock.now_ms()
        try:
            address = route.address(queue.broker_name)
            answer = await self.client.ask(address, self.command(prepared, queue), timeout_ms, *STORED)
        except (RefusedError, RemotingError) as failure:
            if backoff is not None and (not isinstance(failure, RefusedError) or failure.code in RETRY_CODES):
                backoff.failed(queue.broker_name)
            raise
        if self.on_stored is not None:
            self.on_stored(prepared, queue, address, answer, begin_ms)
        if backoff is not None:
            backoff.answered(queue.broker_name, (clock.monotonic_s() - begin_s) * 1000)
        return answer

    def command(self, prepared: Prepared, queue: MessageQueue) -> RemotingCommand:
        """Return the wire request that sends prepared messages to a queue."""
        is_plain = not (prepared.sys_flag or prepared.flag or prepared.batch)
        fields = self._fields.get(queue) if is_plain else None
        if fields is None:
            header = SendMessageRequestHeaderV2(
                producer_group=self.client.namespace.wrap(self.group),
                topic=self.client.namespace.wrap(prepared.topic),
                default_topic=AUTO_CREATE_TOPIC,
                default_topic_queue_nums=self.default_topic_queue_nums,
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

    async def route(self, topic: str, timeout_ms: float | None = None) -> TopicRoute:
        """Return the route of a topic. For a topic that does not exist yet, derive it from the auto-create topic's route.

        Args:
            topic: the topic.
            timeout_ms: the limit for all requests together; None: the default timeout for each name server.
        """
        clock = self.client.clock
        deadline_s = clock.monotonic_s() + (timeout_ms or 0.0) / 1000
        try:
            return await self.client.routes.route(topic, timeout_ms=timeout_ms)
        except RefusedError as refused:
            if refused.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            if timeout_ms is not None:
                timeout_ms = max(1.0, (deadline_s - clock.monotonic_s()) * 1000)
            try:
                data = await self.client.routes.fetch(AUTO_CREATE_TOPIC, timeout_ms=timeout_ms)
            except RefusedError:
                raise refused from None
        narrowed = []
        for queues in data.queue_datas:
            queue_nums = min(queues.write_queue_nums, self.default_topic_queue_nums)
            narrowed.append(replace(queues, write_queue_nums=queue_nums, read_queue_nums=queue_nums))
        return make_topic_route(topic, replace(data, queue_datas=narrowed))

    def next_queue(self, route: TopicRoute, failed_broker: str | None = None) -> MessageQueue:
        """Return the topic's next writable queue in turn, if possible at another broker than ``failed_broker``."""
        queues: Sequence[MessageQueue] = route.queues_to_write()
        if failed_broker is not None:
            queues = [queue for queue in queues if queue.broker_name != failed_broker] or queues
        if self.backoff is not None:
            queues = self.backoff.choose(queues)
        return queues[next(self._turn) % len(queues)]

    async def chosen(
        self, topic: str, queue: MessageQueue | None, sharding_key: str, timeout_ms: float
    ) -> tuple[TopicRoute, MessageQueue]:
        """Return a topic's route, and the queue in it that a sharding key selects.

        Raises ``ValueError`` if ``queue`` is not None, because only one of ``queue`` and ``sharding_key`` may be given.
        """
        if queue is not None:
            raise InvalidArgumentError("name a queue or a sharding key, not both: the key chooses the queue")
        route = await self.route(topic, timeout_ms)
        return route, route.queue_by_key(sharding_key)

"""Sends what is prepared: chooses its queue, tries another broker when that may help, returns what was stored."""

from __future__ import annotations

import itertools
import random
from typing import Final

import attrs
from msgspec.structs import replace

from flintmq.config.rocketmq.system_topics import AUTO_CREATE_TOPIC
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError, RemotingError, RemotingTimeoutError
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.prepared import Prepared
from flintmq.remoting.client.route import TopicRoute, make_topic_route
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
"""Refusals after which another broker is tried (docs/internals/protocol.md, Response codes)."""
_FIELDS_MAX: Final = 4_096


@attrs.frozen
class Sender:
    """Sends for one producer group. Loop thread only."""

    client: ClientInstance
    group: str
    retries: int = 2
    """Further brokers to try when a send fails."""
    default_topic_queue_nums: int = 4
    """Queues asked for when sending creates the topic."""
    _fields: dict[MessageQueue, dict[str, str]] = attrs.field(factory=dict, init=False)
    """The extFields of a plain send to a queue: only its time and its properties differ."""
    _turn: itertools.count[int] = attrs.field(factory=lambda: itertools.count(random.getrandbits(16)), init=False)

    async def send(self, prepared: Prepared, queue: MessageQueue | None, timeout_ms: int) -> SendResult:
        """Send to a queue, and to nothing else; without one to the topic's next, and elsewhere where that fails. See
        :meth:`Producer.send <flintmq.remoting.client.producer.Producer.send>`, which raises the same."""
        return send_result(prepared.msg_id, *await self.stored(prepared, queue, timeout_ms))

    async def stored(
        self, prepared: Prepared, queue: MessageQueue | None, timeout_ms: int
    ) -> tuple[MessageQueue, RemotingCommand]:
        """Send a request, again and again where that helps; return the queue that it went to, and the broker's answer."""
        clock = self.client.clock
        deadline_s = clock.monotonic_s() + timeout_ms / 1000
        route = await self.route(prepared.topic)
        failed_broker: str | None = None
        failure: RefusedError | RemotingError | None = None
        for _ in range(1 if queue else 1 + self.retries):
            left_ms = (deadline_s - clock.monotonic_s()) * 1000
            if left_ms <= 0:
                break
            target = queue or self.next_queue(route, failed_broker)
            try:
                address = route.address(target.broker_name)
                return target, await self.client.ask(address, self.command(prepared, target), left_ms, *STORED)
            except RefusedError as refused:
                if refused.code not in RETRY_CODES:
                    raise
                failure = refused
            except RemotingError as lost:
                failure = lost
            failed_broker = target.broker_name
        raise failure or RemotingTimeoutError(f"topic {prepared.topic} was not sent to within {timeout_ms} ms")

    def command(self, prepared: Prepared, queue: MessageQueue) -> RemotingCommand:
        """Return the request that sends to a queue."""
        is_plain = not (prepared.sys_flag or prepared.flag or prepared.batch)
        fields = self._fields.get(queue) if is_plain else None
        if fields is None:
            header = SendMessageRequestHeaderV2(
                producer_group=self.group,
                topic=prepared.topic,
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

    async def route(self, topic: str) -> TopicRoute:
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
            queue_nums = min(queues.write_queue_nums, self.default_topic_queue_nums)
            narrowed.append(replace(queues, write_queue_nums=queue_nums, read_queue_nums=queue_nums))
        return make_topic_route(topic, replace(data, queue_datas=narrowed))

    def next_queue(self, route: TopicRoute, failed_broker: str | None = None) -> MessageQueue:
        """Return the next queue in turn; one at another broker than the one that just failed, if there is any."""
        every = route.queues_to_write()
        queues = [queue for queue in every if queue.broker_name != failed_broker] or every
        return queues[next(self._turn) % len(queues)]

    async def chosen(self, topic: str, queue: MessageQueue | None, sharding_key: str | None) -> MessageQueue | None:
        """Return the queue that the caller names, by itself or by a key; None where any will do."""
        if sharding_key is None:
            return queue
        if queue is not None:
            raise ValueError("name a queue or a sharding key, not both: the key chooses the queue")
        return (await self.route(topic)).queue_by_key(sharding_key)

"""A consumer's requests to brokers about queues: pulls, offsets, locks, and messages to send back."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
from msgspec.structs import replace

from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import FlintError, RemotingError
from flintmq.core.io.threads import background
from flintmq.core.record.record import RecordError
from flintmq.remoting.client.instance import REQUEST_TIMEOUT_MS, ClientInstance
from flintmq.remoting.client.message import (
    NO_ROOM,
    UNKNOWN_PLACE,
    UNPACKED_AT_ONCE_MAX_BYTES,
    MessageExt,
    Unpacking,
    keep_packed,
    messages_apart,
    messages_of,
)
from flintmq.remoting.client.route import MASTER_ID
from flintmq.remoting.wire.bodies import ConsumerIdList, LockBatchRequestBody, LockBatchResponseBody
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import request
from flintmq.remoting.wire.header_codec import CommandHeader, decode_header
from flintmq.remoting.wire.headers_message import (
    ConsumerGroupRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueueOffsetResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

FLAG_SUSPEND: Final = 2
FLAG_SUBSCRIPTION: Final = 4


class PullStatus(enum.Enum):
    """The status of a broker's answer to a pull, such as whether messages were found."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED
    """Result of a pull at an offset outside the queue. The next pull must be at ``next_begin_queue_offset``."""


_PULL_CODES: Final = tuple(int(status.value) for status in PullStatus)


@attrs.frozen(kw_only=True)
class _Pulled:
    status: PullStatus
    next_begin_queue_offset: int
    """The queue offset at which to pull next."""
    min_queue_offset: int
    max_queue_offset: int
    """The queue offset that the queue's next message will get."""
    suggested_broker_id: int
    """The id of the broker, master or slave, to pull from next."""


@attrs.frozen(kw_only=True)
class PullResult(_Pulled):
    """A broker's answer to a pull, with its messages decoded."""

    messages: tuple[MessageExt, ...]


@attrs.frozen(kw_only=True)
class PulledRecords(_Pulled):
    """A broker's answer to a pull, with its messages as stored records."""

    records: bytes
    """The stored records in queue order. Brokers filter tags by hash only, so some records may have a tag that does not
    match."""


class QueueOffsets:
    """Requests about the offsets of queues; a base class of consumers and the admin client. Used only on the event loop's
    thread.

    Every method raises ``RemotingError`` if the broker does not answer, and ``RefusedError`` if it refuses the request.
    """

    client: ClientInstance

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset that the next message stored in a queue will get."""
        return await self._end_offset(queue, RequestCode.GET_MAX_OFFSET)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the first message that a queue still has."""
        return await self._end_offset(queue, RequestCode.GET_MIN_OFFSET)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the message stored nearest to a time (ms since 1970), before or after it.

        For a time in the future, the result is the queue offset of the last message.
        """
        header = SearchOffsetRequestHeader(
            topic=self._wrap(queue.topic),
            queue_id=queue.queue_id,
            timestamp_ms=timestamp_ms,
            broker_name=queue.broker_name,
        )
        return await self._queue_offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def _end_offset(self, queue: MessageQueue, code: int) -> int:
        topic = self._wrap(queue.topic)
        header = QueueRequestHeader(topic=topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
        return await self._queue_offset(queue, code, header)

    async def _queue_offset(self, queue: MessageQueue, code: int, header: CommandHeader) -> int:
        answer = await self.client.ask(await self._address(queue), request(code, header))
        return decode_header(QueueOffsetResponseHeader, answer.ext_fields).queue_offset

    def _wrap(self, resource: str) -> str:
        """Return the name of a topic or group with the client's namespace."""
        return self.client.namespace.wrap(resource)

    async def _address(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        return (await self.client.routes.route(queue.topic)).address(queue.broker_name, broker_id)


class BrokerApi(QueueOffsets):
    """Sends the requests of a consumer group to brokers: pulls, offsets, locks, and messages sent back. Used only on the event
    loop's thread."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        self.client = client
        self.group = group
        self._suggested_broker_ids: dict[MessageQueue, int] = {}

    async def pull(
        self,
        queue: MessageQueue,
        queue_offset: int,
        *,
        subscription: SubscriptionData,
        max_messages: int = 32,
        suspend_ms: int = 0,
    ) -> PullResult:
        """Pull messages of a queue from an offset on. A message that cannot be read has its stored bytes and a ``body_error``.

        Args:
            queue: the queue to pull from.
            queue_offset: the queue offset of the first message.
            subscription: selects the messages; it is sent with the request.
            max_messages: the maximum number of messages.
            suspend_ms: how long the broker waits for a message if the queue has no message from the offset on; 0: the broker
                answers at once.
        """
        found = await self.pull_records(
            queue, queue_offset, subscription=subscription, max_messages=max_messages, suspend_ms=suspend_ms
        )
        try:
            messages, is_cut = await self._unpacked(found.records, queue.broker_name)
        except RecordError:
            found, messages = await self._pulled_apart(queue, queue_offset, subscription, max_messages, found)
            is_cut = False
        if is_cut:
            found, messages = _as_far_as_there_is_room(found, messages)
        if self.client.namespace.name:
            messages = list(map(self.client.namespace.unwrap_message, messages))
        return PullResult(
            status=found.status,
            messages=tuple(message for message in messages if _matches(message, subscription)),
            next_begin_queue_offset=found.next_begin_queue_offset,
            min_queue_offset=found.min_queue_offset,
            max_queue_offset=found.max_queue_offset,
            suggested_broker_id=found.suggested_broker_id,
        )

    async def _unpacked(self, records: bytes, broker_name: str) -> tuple[list[MessageExt], bool]:
        """Return the messages in a broker's answer to a pull, and whether their bodies exceed the size limit.

        Raises ``RecordError`` for a damaged record.

        Bodies that would block the event loop are decompressed on a thread.
        """
        if self.client.bodies_stay_packed:
            return messages_of(records, broker_name, keep_packed), False
        unpack = Unpacking(UNPACKED_AT_ONCE_MAX_BYTES)
        messages = messages_of(records, broker_name, unpack)
        if unpack.is_full:
            unpack = Unpacking()
            messages = await background(messages_of, records, broker_name, unpack)
        return messages, unpack.is_full

    async def _pulled_apart(
        self,
        queue: MessageQueue,
        queue_offset: int,
        subscription: SubscriptionData,
        max_messages: int,
        found: PulledRecords,
    ) -> tuple[PulledRecords, list[MessageExt]]:
        """Decode each record in a pull's answer, of which at least one record is damaged. Return a pair: the answer, and a list
        of the messages before the first record that cannot be decoded.

        The returned answer is changed so that the next pull begins at this record. If this record is the first in the answer,
        it is pulled again without other records, because only such an answer shows its queue offset. The list then contains
        only this record, as a message with a ``body_error``.
        """
        is_packed = self.client.bodies_stay_packed
        messages = messages_apart(found.records, queue.broker_name, keep_packed if is_packed else Unpacking())
        if any(message.body_error == NO_ROOM for message in messages):
            found, messages = _as_far_as_there_is_room(found, messages)
        at = next((at for at, one in enumerate(messages) if one.queue_offset == UNKNOWN_PLACE), None)
        if at is None:
            return found, messages
        behind = messages[at - 1].queue_offset + 1 if at else queue_offset
        if queue_offset < behind <= found.next_begin_queue_offset:
            return attrs.evolve(found, next_begin_queue_offset=behind), messages[:at]
        if max_messages > 1:
            found = await self.pull_records(queue, queue_offset, subscription=subscription, max_messages=1)
            return await self._pulled_apart(queue, queue_offset, subscription, 1, found)
        place = found.next_begin_queue_offset - 1
        topic, body = self._wrap(queue.topic), found.records
        return found, [replace(messages[at], topic=topic, body=body, queue_id=queue.queue_id, queue_offset=place)]

    async def pull_records(
        self,
        queue: MessageQueue,
        queue_offset: int,
        *,
        subscription: SubscriptionData,
        max_messages: int = 32,
        suspend_ms: int = 0,
        timeout_ms: int = 10_000,
    ) -> PulledRecords:
        """Pull stored records without decoding them; see :meth:`pull`.

        Args:
            queue, queue_offset, subscription, max_messages, suspend_ms: as for :meth:`pull`.
            timeout_ms: the limit for the answer, or twice ``suspend_ms`` if that is longer.
        """
        header = PullMessageRequestHeader(
            consumer_group=self._wrap(self.group),
            topic=self._wrap(queue.topic),
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            max_msg_nums=max_messages,
            sys_flag=FLAG_SUBSCRIPTION | (FLAG_SUSPEND if suspend_ms else 0),
            commit_consumer_offset=0,
            suspend_timeout_ms=suspend_ms,
            subscription=subscription.sub_string,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        address = await self._address(queue, self._suggested_broker_ids.get(queue, MASTER_ID))
        pull = request(RequestCode.PULL_MESSAGE, header)
        try:
            answer = await self.client.ask(address, pull, max(timeout_ms, 2 * suspend_ms), *_PULL_CODES)
        except RemotingError:
            self._suggested_broker_ids.pop(queue, None)
            raise
        found = decode_header(PullMessageResponseHeader, answer.ext_fields)
        self._suggested_broker_ids[queue] = found.suggest_which_broker_id
        status = PullStatus(answer.code)
        return PulledRecords(
            status=status,
            records=answer.body if status is PullStatus.FOUND else b"",
            next_begin_queue_offset=found.next_begin_queue_offset,
            min_queue_offset=found.min_queue_offset,
            max_queue_offset=found.max_queue_offset,
            suggested_broker_id=found.suggest_which_broker_id,
        )

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset of a queue, or None if none is stored.

        For a group without a stored offset, a broker still answers 0 if the queue still has its first message (RocketMQ's
        rule). The group then begins at the first message, whatever its ``consume_from``.
        """
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._wrap(self.group),
            topic=self._wrap(queue.topic),
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
        )
        answer = await self.client.ask(
            await self._address(queue),
            request(RequestCode.QUERY_CONSUMER_OFFSET, header),
            REQUEST_TIMEOUT_MS,
            ResponseCode.QUERY_NOT_FOUND,
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return decode_header(QueryConsumerOffsetResponseHeader, answer.ext_fields).consumer_offset

    async def commit(self, queue: MessageQueue, consumer_offset: int, *, wait: bool = True) -> None:
        """Store the group's offset of a queue: the queue offset of the next message to consume.

        Without ``wait`` the request is one-way, and a failure at the broker is not noticed.
        """
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._wrap(self.group),
            topic=self._wrap(queue.topic),
            queue_id=queue.queue_id,
            commit_consumer_offset=consumer_offset,
            broker_name=queue.broker_name,
        )
        command = request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        if wait:
            await self.client.ask(await self._address(queue), command)
        else:
            await self.client.remoting.invoke_oneway(await self._address(queue), command)

    async def members(self, topic: str) -> list[str]:
        """Return the client ids of the group's members, from the first of the topic's brokers that answers."""
        route = await self.client.routes.route(topic)
        command = request(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader(consumer_group=self._wrap(self.group))
        )
        failure: RemotingError | None = None
        # Brokers that did not answer the latest heartbeat are asked last, because each of them can use up the whole timeout.
        for address in sorted(map(route.address, route.broker_addrs), key=self.client.is_silent):
            try:
                answer = await self.client.ask(address, command)
            except RemotingError as error:
                failure = error
                continue
            return ConsumerIdList.decode(answer.body).consumer_id_list
        raise failure or RemotingError(f"topic {topic} has no broker to ask for the members of {self.group}")

    async def lock(self, queues: Sequence[MessageQueue]) -> tuple[set[MessageQueue], dict[str, FlintError]]:
        """Lock queues for this client, for about 60 s.

        Returns:
            The queues that were locked, and the failures of brokers that did not answer or refused, keyed by broker name.
        """
        locked: set[MessageQueue] = set()
        failures: dict[str, FlintError] = {}
        for mine, body in self._by_broker(queues):
            try:
                answer = await self.client.ask(await self._address(mine), request(RequestCode.LOCK_BATCH_MQ, body=body))
            except FlintError as failure:
                failures[mine.broker_name] = failure
                continue
            locked.update(
                map(self.client.namespace.unwrap_queue, LockBatchResponseBody.decode(answer.body).lock_ok_mq_set)
            )
        return locked, failures

    async def commit_all(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        """Store the group's offset of each queue, see :meth:`commit`.

        If a broker does not answer, the offsets of its remaining queues are skipped, and the offsets of other brokers' queues
        are still stored. The first error is raised at the end.
        """
        first: FlintError | None = None
        away: set[str] = set()
        for queue, consumer_offset in offsets.items():
            if queue.broker_name in away:
                continue
            try:
                await self.commit(queue, consumer_offset, wait=wait)
            except FlintError as failure:
                first = first or failure
                if isinstance(failure, RemotingError):
                    away.add(queue.broker_name)
        if first is not None:
            raise first

    async def unlock(self, queues: Sequence[MessageQueue]) -> None:
        """Release the locks of queues, by one-way requests, so that a failure at the broker is not noticed."""
        for mine, body in self._by_broker(queues):
            unlock = request(RequestCode.UNLOCK_BATCH_MQ, body=body)
            await self.client.remoting.invoke_oneway(await self._address(mine), unlock)

    def _by_broker(self, queues: Sequence[MessageQueue]) -> Iterator[tuple[MessageQueue, bytes]]:
        """Group queues by broker. For each broker, yield the broker's first queue, and the body of a request that locks or
        unlocks all of the broker's queues in ``queues``."""
        for broker_name in sorted({queue.broker_name for queue in queues}):
            mine = [queue for queue in queues if queue.broker_name == broker_name]
            wrapped = list(map(self.client.namespace.wrap_queue, mine))
            yield mine[0], LockBatchRequestBody(self.client.client_id, self._wrap(self.group), wrapped).encode()

    async def send_back(self, message: MessageExt, delay_level: int, max_reconsume_times: int) -> None:
        """Send a message back to its broker, to be delivered again later.

        Args:
            message: the message.
            delay_level: the delay level of the redelivery; 0: the level rises with each attempt; negative: the message becomes
                a dead letter.
            max_reconsume_times: the number of redeliveries after which the message becomes a dead letter.
        """
        header = ConsumerSendMsgBackRequestHeader(
            commit_log_offset_bytes=message.commit_log_offset_bytes,
            group=self._wrap(self.group),
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=self._wrap(message.topic),
            max_reconsume_times=max_reconsume_times,
            broker_name=message.broker_name,
        )
        await self.client.ask(
            await self._address(message.queue), request(RequestCode.CONSUMER_SEND_MSG_BACK, header), 5_000
        )


def _as_far_as_there_is_room(
    found: PulledRecords, messages: list[MessageExt]
) -> tuple[PulledRecords, list[MessageExt]]:
    """Cut a pull's answer before the first message whose body exceeded the size limit.

    The next pull begins with that message.
    """
    at = next(at for at, one in enumerate(messages) if one.body_error == NO_ROOM)
    return attrs.evolve(found, next_begin_queue_offset=messages[at].queue_offset), messages[:at]


def _matches(message: MessageExt, subscription: SubscriptionData) -> bool:
    """Return whether a message matches the subscription's tags.

    The client compares the tags, because brokers compare only their hashes, and different tags can have the same hash.

    A record that cannot be decoded always matches, because its tags are not known.
    """
    return (
        not subscription.is_tag_type
        or not subscription.tags_set
        or message.tags in subscription.tags_set
        or bool(message.body_error and not message.properties_bytes)
    )

"""The bodies of requests and answers, as structs. The fields of each struct have the order in which fastjson writes them.

See docs/internals/protocol.md, JSON bodies.
"""

from __future__ import annotations

import re
from typing import Final, Self

import msgspec
from msgspec import field

from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_config import MessageQueue, TopicConfigSerializeWrapper
from flintmq.core.io.typed_json import Int, Long
from flintmq.remoting.wire.json_body import Body, ConsumeFromWhere, ConsumeType, MessageModel, PlainBody


class KVTable(PlainBody):
    table: dict[str, str] = field(default_factory=dict)


class TopicList(Body):
    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list)


class GroupList(PlainBody):
    group_list: list[str] = field(default_factory=list)


class ConsumerIdList(PlainBody):
    """The body of the answer to GET_CONSUMER_LIST_BY_GROUP: the client ids of a consumer group's members."""

    consumer_id_list: list[str] = field(default_factory=list)


# --- clients ---


class ProducerData(PlainBody):
    group_name: str = ""


class ConsumerData(Body):
    consume_from_where: ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
    consume_type: ConsumeType = "CONSUME_PASSIVELY"
    group_name: str = ""
    message_model: MessageModel = "CLUSTERING"
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(Body):
    client_id: str = field(name="clientID", default="")
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    producer_data_set: list[ProducerData] = field(default_factory=list)


class CheckClientRequestBody(Body):
    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class Connection(PlainBody):
    client_addr: str = ""
    client_id: str = ""
    language: str = "OTHER"
    version: Int = 0


class ConsumerConnection(Body):
    connection_set: list[Connection] = field(default_factory=list)
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)


class ProducerInfo(PlainBody):
    client_id: str = ""
    language: str = "OTHER"
    last_update_timestamp_ms: Long = field(name="lastUpdateTimestamp", default=0)
    remote_ip: str = field(name="remoteIP", default="")
    """Address of the producer's client, as ``/ip:port``."""
    version: Int = 0


class ProducerTableInfo(PlainBody):
    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


class LockBatchRequestBody(PlainBody):
    """The body of the requests LOCK_BATCH_MQ and UNLOCK_BATCH_MQ, which lock and unlock queues for an orderly consumer."""

    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = field(default_factory=list)


UnlockBatchRequestBody = LockBatchRequestBody


class LockBatchResponseBody(PlainBody):
    lock_ok_mq_set: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)


# --- registration ---


class RegisterBrokerBody(PlainBody):
    """The body of the request REGISTER_BROKER: the broker's topics and filter servers.

    :func:`~flintmq.remoting.wire.headers_route.encode_register_broker_body` can also write the body in its compressed form.
    """

    filter_server_list: list[str] = field(default_factory=list)
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(default_factory=TopicConfigSerializeWrapper)


# --- bodies with offsets and statistics ---


class TopicOffset(PlainBody):
    last_update_timestamp_ms: Long = field(name="lastUpdateTimestamp", default=0)
    max_queue_offset: Long = field(name="maxOffset", default=0)
    min_queue_offset: Long = field(name="minOffset", default=0)


class TopicStatsTable(Body):
    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)


class OffsetWrapper(PlainBody):
    broker_queue_offset: Long = field(name="brokerOffset", default=0)
    consumer_offset: Long = 0
    last_timestamp_ms: Long = field(name="lastTimestamp", default=0)


class ConsumeStats(Body):
    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)


class ConsumeStatsList(Body):
    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    total_diff: Long = 0

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the decoded body of an answer about all groups' offsets, like :func:`decode_body`.

        Keys that are queues are first rewritten as strings, so that the fast JSON reader accepts the body. A body with
        thousands of queues is then decoded in a tenth of the time.
        """
        plain = _QUEUE_KEY.sub(rb'"\2 \3 \1":', data)
        try:
            found = msgspec.json.decode(plain, type=_PlainConsumeStatsList)
        except (msgspec.MsgspecError, UnicodeError):
            return super().decode(data)
        groups = [
            {group: [ConsumeStats(one.consume_tps, _with_queues(one.offset_table)) for one in stats]}
            for entry in found.consume_stats_list
            for group, stats in entry.items()
        ]
        return cls(found.broker_addr, groups, found.total_diff)


_QUEUE_KEY: Final = re.compile(rb'\{"brokerName":"([^"\\]+)","queueId":(\d+),"topic":"([^"\\ ]+)"\}:')
"""Pattern of a queue that is the key of a JSON map, in the form in which RocketMQ and FlintMQ write it. The pattern does not
match within a JSON string, because quotes are escaped in strings."""


class _PlainConsumeStats(Body):
    consume_tps: float = 0.0
    offset_table: dict[str, OffsetWrapper] = field(default_factory=dict)
    """Offsets of a consumer group, keyed by queue. Each key is a text ``queueId topic brokerName``, separated by blanks."""


class _PlainConsumeStatsList(Body):
    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[_PlainConsumeStats]]] = field(default_factory=list)
    total_diff: int = 0


def _with_queues(table: dict[str, OffsetWrapper]) -> dict[MessageQueue, OffsetWrapper]:
    found = {}
    for key, figures in table.items():
        queue_id, topic, broker_name = key.split(" ", 2)
        found[MessageQueue(broker_name, int(queue_id), topic)] = figures
    return found


class ResetOffsetBody(Body):
    offset_table: dict[MessageQueue, Long] = field(default_factory=dict)


class MessageQueueOffset(PlainBody):
    """One queue with its new consumer offset in a :class:`ResetOffsetBodyForC`."""

    broker_name: str = ""
    queue_offset: Long = field(name="offset", default=0)
    queue_id: Int = 0
    topic: str = ""


class ResetOffsetBodyForC(PlainBody):
    """The body of request 220, which resets consumer offsets, for C++ clients. Other clients get a :class:`ResetOffsetBody`."""

    offset_table: list[MessageQueueOffset] = field(default_factory=list)


class GetConsumerStatusBody(Body):
    consumer_table: dict[str, dict[MessageQueue, Long]] = field(default_factory=dict)
    message_queue_table: dict[MessageQueue, Long] = field(default_factory=dict)


class CorrectionOffsets(Body):
    correction_offsets: dict[Int, Long] = field(default_factory=dict)


class QueueTimeSpan(PlainBody):
    consume_time_stamp_ms: Long = field(name="consumeTimeStamp", default=0)
    consume_time_stamp_text: str = field(name="consumeTimeStampStr", default="")
    """Time of ``consume_time_stamp_ms`` as text, ``yyyy-MM-dd#HH:mm:ss:SSS`` in local time. The other fields ``…_text`` have
    the same format."""
    delay_time_ms: Long = field(name="delayTime", default=0)
    max_time_stamp_ms: Long = field(name="maxTimeStamp", default=0)
    max_time_stamp_text: str = field(name="maxTimeStampStr", default="")
    message_queue: MessageQueue = MessageQueue("", 0, "")
    min_time_stamp_ms: Long = field(name="minTimeStamp", default=0)
    min_time_stamp_text: str = field(name="minTimeStampStr", default="")


class BrokerStatsItem(PlainBody):
    avgpt: float = 0.0
    sum: Long = 0
    tps: float = 0.0


class BrokerStatsData(PlainBody):
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)


class ConsumeQueueData(Body):
    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset_bytes: Long = field(name="physicOffset", default=0)
    physic_size_bytes: Int = field(name="physicSize", default=0)
    tags_code: Long = 0


class QueryConsumeQueueResponseBody(Body):
    filter_data: str | None = None
    max_queue_index: Long = 0
    min_queue_index: Long = 0
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    subscription_data: SubscriptionData | None = None


# --- answers of clients to requests of the broker ---


class ProcessQueueInfo(PlainBody):
    cached_msg_count: Int = 0
    cached_msg_max_queue_offset: Long = field(name="cachedMsgMaxOffset", default=0)
    cached_msg_min_queue_offset: Long = field(name="cachedMsgMinOffset", default=0)
    cached_msg_size_mib: Int = field(name="cachedMsgSizeInMiB", default=0)
    commit_consumer_offset: Long = field(name="commitOffset", default=0)
    dropped: bool = field(name="droped", default=False)
    last_consume_timestamp_ms: Long = field(name="lastConsumeTimestamp", default=0)
    last_lock_timestamp_ms: Long = field(name="lastLockTimestamp", default=0)
    last_pull_timestamp_ms: Long = field(name="lastPullTimestamp", default=0)
    locked: bool = False
    transaction_msg_count: Int = 0
    transaction_msg_max_queue_offset: Long = field(name="transactionMsgMaxOffset", default=0)
    transaction_msg_min_queue_offset: Long = field(name="transactionMsgMinOffset", default=0)
    try_unlock_times: Long = 0


class ConsumeStatus(PlainBody):
    consume_failed_msgs: Long = 0
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_rt_ms: float = field(name="consumeRT", default=0.0)
    pull_rt_ms: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)


class ConsumerRunningInfo(Body):
    jstack: str | None = None
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)


class ConsumeMessageDirectlyResult(Body):
    auto_commit: bool = True
    consume_result: str | None = None
    """Result of the consumer's listener: ``CR_SUCCESS``, ``CR_LATER``, ``CR_ROLLBACK``, ``CR_COMMIT``, ``CR_THROW_EXCEPTION``
    or ``CR_RETURN_NULL``."""
    order: bool = False
    remark: str | None = None
    spent_time_ms: Long = field(name="spentTimeMills", default=0)


class OffsetTable:
    """Builds the JSON of a map from queues to their offsets, ``{{"brokerName":"a","queueId":0,"topic":"T"}:{...},...}``.

    See docs/internals/protocol.md, JSON dialect.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, queue: MessageQueue, figures: OffsetWrapper | TopicOffset) -> None:
        """Add a queue with its offsets to the end of the map from queues to offsets."""
        self._parts.append(b"%b:%b" % (msgspec.json.encode(queue), msgspec.json.encode(figures)))

    def json(self) -> bytes:
        """Return the map from queues to their offsets as JSON."""
        return b"{%b}" % b",".join(self._parts)


def topic_stats(table: OffsetTable) -> bytes:
    """Return a :class:`TopicStatsTable` as JSON, from the offsets of the topic's queues."""
    return b'{"offsetTable":%b}' % table.json()


def consume_stats(consume_tps: float, table: OffsetTable) -> bytes:
    """Return a :class:`ConsumeStats` as JSON.

    Args:
        consume_tps: messages per second that the group consumes.
        table: the offsets of the queues.
    """
    return b'{"consumeTps":%b,"offsetTable":%b}' % (msgspec.json.encode(consume_tps), table.json())


def consume_stats_list(address: str, groups: list[tuple[str, list[bytes]]], total_diff: int) -> bytes:
    """Return a :class:`ConsumeStatsList` as JSON.

    Args:
        address: the address of the broker, as ``host:port``.
        groups: names of groups, each with the :func:`consume_stats` of its topics.
        total_diff: number of messages that all groups together have not consumed.
    """
    each = b",".join(b"{%b:[%b]}" % (msgspec.json.encode(group), b",".join(stats)) for group, stats in groups)
    return b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d}' % (
        msgspec.json.encode(address),
        each,
        total_diff,
    )

"""The bodies of requests and answers. Fields are in the order fastjson writes them.

See docs/internals/protocol.md, JSON bodies.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec
from msgspec import field

from flintmq.core.broker.topic_config import TopicFilterType
from flintmq.core.io.typed_json import Int, Long
from flintmq.remoting.wire.json_body import Body

ConsumeFromWhere = Literal[
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
]
ConsumeType = Literal["CONSUME_ACTIVELY", "CONSUME_PASSIVELY"]
MessageModel = Literal["BROADCASTING", "CLUSTERING"]


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic on one broker. May be a key."""

    broker_name: str
    queue_id: Int
    topic: str


class DataVersion(Body):
    """A version of a configuration table: two are equal when both numbers are."""

    PLAIN: ClassVar[bool] = True
    counter: Long = 0
    timestamp_ms: Long = field(name="timestamp", default=0)


class KVTable(Body):
    PLAIN: ClassVar[bool] = True
    table: dict[str, str] = field(default_factory=dict)


class TopicList(Body):
    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list)


class GroupList(Body):
    PLAIN: ClassVar[bool] = True
    group_list: list[str] = field(default_factory=list)


class ConsumerIdList(Body):
    """The answer to GET_CONSUMER_LIST_BY_GROUP."""

    PLAIN: ClassVar[bool] = True
    consumer_id_list: list[str] = field(default_factory=list)


# --- routes ---


class BrokerData(Body):
    broker_addrs: dict[Long, str] = field(default_factory=dict)
    """Address by broker id; 0 is the master."""
    broker_name: str = ""
    cluster: str = ""


class QueueData(Body):
    PLAIN: ClassVar[bool] = True
    broker_name: str = ""
    perm: Int = 0
    read_queue_nums: Int = 0
    topic_sys_flag: Int = 0
    write_queue_nums: Int = 0


class TopicRouteData(Body):
    """Who holds a topic."""

    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    """``broker-a:4;broker-b:4`` for ordered topics."""
    queue_datas: list[QueueData] = field(default_factory=list)


class ClusterInfo(Body):
    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


# --- clients ---


class SubscriptionData(Body):
    PLAIN: ClassVar[bool] = True
    class_filter_mode: bool = False
    code_set: list[Int] = field(default_factory=list)
    expression_type: str = "TAG"
    sub_string: str = "*"
    sub_version: Long = 0
    """When the client subscribed, ms: the newer one of a group wins."""
    tags_set: list[str] = field(default_factory=list)
    topic: str = ""


class ProducerData(Body):
    PLAIN: ClassVar[bool] = True
    group_name: str = ""


class ConsumerData(Body):
    PLAIN: ClassVar[bool] = True
    consume_from_where: ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
    consume_type: ConsumeType = "CONSUME_PASSIVELY"
    group_name: str = ""
    message_model: MessageModel = "CLUSTERING"
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(Body):
    PLAIN: ClassVar[bool] = True
    client_id: str = field(name="clientID", default="")
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    producer_data_set: list[ProducerData] = field(default_factory=list)


class CheckClientRequestBody(Body):
    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class Connection(Body):
    PLAIN: ClassVar[bool] = True
    client_addr: str = ""
    client_id: str = ""
    language: str = "OTHER"
    version: Int = 0


class ConsumerConnection(Body):
    PLAIN: ClassVar[bool] = True
    connection_set: list[Connection] = field(default_factory=list)
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)


class ProducerConnection(Body):
    PLAIN: ClassVar[bool] = True
    connection_set: list[Connection] = field(default_factory=list)


class ProducerInfo(Body):
    PLAIN: ClassVar[bool] = True
    client_id: str = ""
    language: str = "OTHER"
    last_update_timestamp_ms: Long = field(name="lastUpdateTimestamp", default=0)
    remote_ip: str = field(name="remoteIP", default="")
    """``/ip:port``."""
    version: Int = 0


class ProducerTableInfo(Body):
    PLAIN: ClassVar[bool] = True
    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


class LockBatchRequestBody(Body):
    """Of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    PLAIN: ClassVar[bool] = True
    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = field(default_factory=list)


UnlockBatchRequestBody = LockBatchRequestBody


class LockBatchResponseBody(Body):
    PLAIN: ClassVar[bool] = True
    lock_ok_mq_set: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)


# --- topics and groups ---


class TopicConfig(Body):
    PLAIN: ClassVar[bool] = True
    order: bool = False
    perm: Int = 6
    read_queue_nums: Int = 16
    topic_filter_type: TopicFilterType = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: Int = 0
    write_queue_nums: Int = 16


class TopicConfigSerializeWrapper(Body):
    PLAIN: ClassVar[bool] = True
    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)


class RegisterBrokerBody(Body):
    """What a broker registers; see ``register_broker_body`` for its compressed form."""

    PLAIN: ClassVar[bool] = True
    filter_server_list: list[str] = field(default_factory=list)
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(default_factory=TopicConfigSerializeWrapper)


class SubscriptionGroupConfig(Body):
    PLAIN: ClassVar[bool] = True
    broker_id: Long = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    group_name: str = ""
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int = 16
    retry_queue_nums: Int = 1
    which_broker_when_consume_slowly: Long = 1


class SubscriptionGroupWrapper(Body):
    PLAIN: ClassVar[bool] = True
    data_version: DataVersion = field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)


# --- offsets and statistics ---


class TopicOffset(Body):
    PLAIN: ClassVar[bool] = True
    last_update_timestamp_ms: Long = field(name="lastUpdateTimestamp", default=0)
    max_queue_offset: Long = field(name="maxOffset", default=0)
    min_queue_offset: Long = field(name="minOffset", default=0)


class TopicStatsTable(Body):
    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)


class OffsetWrapper(Body):
    PLAIN: ClassVar[bool] = True
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


class ResetOffsetBody(Body):
    offset_table: dict[MessageQueue, Long] = field(default_factory=dict)


class MessageQueueOffset(Body):
    """One entry of :class:`ResetOffsetBodyForC`."""

    PLAIN: ClassVar[bool] = True
    broker_name: str = ""
    queue_offset: Long = field(name="offset", default=0)
    queue_id: Int = 0
    topic: str = ""


class ResetOffsetBodyForC(Body):
    """What C++ clients are sent in place of :class:`ResetOffsetBody`."""

    PLAIN: ClassVar[bool] = True
    offset_table: list[MessageQueueOffset] = field(default_factory=list)


class GetConsumerStatusBody(Body):
    consumer_table: dict[str, dict[MessageQueue, Long]] = field(default_factory=dict)
    message_queue_table: dict[MessageQueue, Long] = field(default_factory=dict)


class ConsumerOffsetSerializeWrapper(Body):
    """The content of consumerOffset.json: ``topic@group`` → queue id → consumer offset."""

    offset_table: dict[str, dict[Int, Long]] = field(default_factory=dict)


class DelayOffsetSerializeWrapper(Body):
    """The content of delayOffset.json: delay level → queue offset."""

    offset_table: dict[Int, Long] = field(default_factory=dict)


class CorrectionOffsets(Body):
    correction_offsets: dict[Int, Long] = field(default_factory=dict)


class QueueTimeSpan(Body):
    PLAIN: ClassVar[bool] = True
    consume_time_stamp_ms: Long = field(name="consumeTimeStamp", default=0)
    consume_time_stamp_text: str = field(name="consumeTimeStampStr", default="")
    """``yyyy-MM-dd#HH:mm:ss:SSS``, local time; likewise below."""
    delay_time_ms: Long = field(name="delayTime", default=0)
    max_time_stamp_ms: Long = field(name="maxTimeStamp", default=0)
    max_time_stamp_text: str = field(name="maxTimeStampStr", default="")
    message_queue: MessageQueue = MessageQueue("", 0, "")
    min_time_stamp_ms: Long = field(name="minTimeStamp", default=0)
    min_time_stamp_text: str = field(name="minTimeStampStr", default="")


class QueryConsumeTimeSpanBody(Body):
    PLAIN: ClassVar[bool] = True
    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


class BrokerStatsItem(Body):
    PLAIN: ClassVar[bool] = True
    avgpt: float = 0.0
    sum: Long = 0
    tps: float = 0.0


class BrokerStatsData(Body):
    PLAIN: ClassVar[bool] = True
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


class OffsetMovedEvent(Body):
    PLAIN: ClassVar[bool] = True
    consumer_group: str = ""
    message_queue: MessageQueue = MessageQueue("", 0, "")
    offset_new: Long = 0
    offset_request: Long = 0


# --- what clients answer ---


class ProcessQueueInfo(Body):
    PLAIN: ClassVar[bool] = True
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


class ConsumeStatus(Body):
    PLAIN: ClassVar[bool] = True
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
    """``CR_SUCCESS``, ``CR_LATER``, ``CR_ROLLBACK``, ``CR_COMMIT``, ``CR_THROW_EXCEPTION`` or ``CR_RETURN_NULL``."""
    order: bool = False
    remark: str | None = None
    spent_time_ms: Long = field(name="spentTimeMills", default=0)

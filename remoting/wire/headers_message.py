"""Headers of the client data plane: sending, pulling, offsets, groups, transactions.

See docs/internals/protocol.md, Request codes and Send.
"""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import field

from flintmq.remoting.wire.header_codec import CommandHeader, Int, Long


class SentRequestHeader(CommandHeader, kw_only=True):
    """The header fields that a producer sends with a message."""

    producer_group: str
    topic: str
    default_topic: str
    """Name of another topic, such as TBW102. If the topic of the message does not exist, the broker creates the topic
    with the settings of the topic that ``default_topic`` names."""
    default_topic_queue_nums: Int
    queue_id: Int
    """Id of the queue for the message. If it is negative, the broker chooses a writable queue."""
    sys_flag: Int
    born_timestamp_ms: Long = field(name="bornTimestamp")
    flag: Int
    properties: str = ""
    """Properties of the message. Each property is ``name 0x01 value 0x02``."""
    reconsume_times: Int = 0
    unit_mode: bool = False


class SendMessageRequestHeader(SentRequestHeader, kw_only=True):
    """The header of requests 10 and 324, which send a message. The fields have long names."""

    max_reconsume_times: Int | None = None
    batch: bool = False
    broker_name: str | None = field(name="bname", default=None)


class SendMessageRequestHeaderV2(SendMessageRequestHeader, kw_only=True):
    """The header of requests 310, 320 and 325, which send a message. The fields have names of one letter."""

    refuses_no_numbers: ClassVar[bool] = True

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int = field(name="d")
    queue_id: Int = field(name="e")
    sys_flag: Int = field(name="f")
    born_timestamp_ms: Long = field(name="g")
    flag: Int = field(name="h")
    properties: str = field(name="i", default="")
    reconsume_times: Int = field(name="j", default=0)
    unit_mode: bool = field(name="k", default=False)
    max_reconsume_times: Int | None = field(name="l", default=None)
    batch: bool = field(name="m", default=False)
    broker_name: str | None = field(name="n", default=None)


BORN_TIMESTAMP: Final = "g"
PROPERTIES: Final = "i"
"""Names of the two fields of :class:`SendMessageRequestHeaderV2` that differ between sends to the same queue."""


class SendMessageResponseHeader(CommandHeader, kw_only=True):
    """The header of the answer to every request that sends a message.

    ``MSG_REGION`` and ``TRACE_ON`` must always be present. See docs/internals/protocol.md, What an answer must have.
    """

    msg_id: str
    """The broker's message id (offsetMsgId); for a batch, the ids of all its messages, joined by commas."""
    queue_id: Int
    queue_offset: Long
    """Queue offset of the stored message; for a batch, the queue offset of its first message."""
    transaction_id: str | None = None
    region_id: str | None = field(name="MSG_REGION", default=None)
    trace_on: bool | None = field(name="TRACE_ON", default=None)


class ReplyMessageRequestHeader(SentRequestHeader, kw_only=True):
    """The header of request 326, by which the broker pushes a consumer's reply to the producer of the request."""

    born_host: str
    store_host: str
    store_timestamp_ms: Long = field(name="storeTimestamp")


class PullMessageRequestHeader(CommandHeader, kw_only=True):
    """The header of request 11, which pulls messages of a queue from a queue offset on."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    """Bits that describe the pull: 1 commits an offset, 2 may be held, 4 includes a subscription, 8 has a class filter, 16 is a
    lite pull."""
    commit_consumer_offset: Long = field(name="commitOffset")
    suspend_timeout_ms: Long = field(name="suspendTimeoutMillis")
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    """The type of the subscription's expression; None means TAG."""
    broker_name: str | None = field(name="bname", default=None)


class PullMessageResponseHeader(CommandHeader, kw_only=True):
    """The header of every answer to a pull request. All four fields are always present, whatever the answer's code is."""

    suggest_which_broker_id: Long
    next_begin_queue_offset: Long = field(name="nextBeginOffset")
    min_queue_offset: Long = field(name="minOffset")
    max_queue_offset: Long = field(name="maxOffset")


class QueryMessageRequestHeader(CommandHeader, kw_only=True):
    """The header of request 12, which finds messages by key and time."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp_ms: Long = field(name="beginTimestamp")
    end_timestamp_ms: Long = field(name="endTimestamp")
    unique_key_query: bool = field(name="_UNIQUE_KEY_QUERY", default=False)
    """Whether the query's ``key`` is a unique id of a message (UNIQ_KEY)."""


class QueryMessageResponseHeader(CommandHeader, kw_only=True):
    index_last_update_timestamp_ms: Long = field(name="indexLastUpdateTimestamp")
    index_last_update_commit_log_offset_bytes: Long = field(name="indexLastUpdatePhyoffset")


class QueryConsumerOffsetRequestHeader(CommandHeader, kw_only=True):
    """The header of request 14, which asks for the consumer offset of a group in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    broker_name: str | None = field(name="bname", default=None)


class QueryConsumerOffsetResponseHeader(CommandHeader, kw_only=True):
    consumer_offset: Long = field(name="offset")


class UpdateConsumerOffsetRequestHeader(CommandHeader, kw_only=True):
    """The header of request 15, which stores the consumer offset of a group in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_consumer_offset: Long = field(name="commitOffset")
    broker_name: str | None = field(name="bname", default=None)


class QueueRequestHeader(CommandHeader, kw_only=True):
    """The header of requests 30, 31 and 32, which ask for the end, the start and the first store time of a queue."""

    topic: str
    queue_id: Int
    broker_name: str | None = field(name="bname", default=None)


class QueueOffsetResponseHeader(CommandHeader, kw_only=True):
    """The header of answers to requests 29, 30 and 31, which ask for a queue offset."""

    queue_offset: Long = field(name="offset")


class GetEarliestMsgStoretimeResponseHeader(CommandHeader, kw_only=True):
    timestamp_ms: Long = field(name="timestamp")
    """Store time of the queue's earliest message in ms since 1970; -1 if the queue has no message."""


class SearchOffsetRequestHeader(CommandHeader, kw_only=True):
    """The header of request 29, which finds the queue offset of the message stored nearest to a time."""

    topic: str
    queue_id: Int
    timestamp_ms: Long = field(name="timestamp")
    broker_name: str | None = field(name="bname", default=None)


class ViewMessageRequestHeader(CommandHeader, kw_only=True):
    """The header of request 33, which reads the record at a physical offset of the commit log."""

    commit_log_offset_bytes: Long = field(name="offset")


class UnregisterClientRequestHeader(CommandHeader, kw_only=True):
    """The header of request 35, which unregisters a client from its groups."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerSendMsgBackRequestHeader(CommandHeader, kw_only=True):
    """The header of request 36, by which a consumer returns a message to the broker, for a later redelivery."""

    commit_log_offset_bytes: Long = field(name="offset")
    group: str
    delay_level: Int
    """Delay level of the redelivery. With 0 the level rises with each attempt. A negative level makes the message a dead letter
    at once."""
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    broker_name: str | None = field(name="bname", default=None)


class EndTransactionRequestHeader(CommandHeader, kw_only=True):
    """The header of request 37, which ends a transaction by a commit or a rollback."""

    producer_group: str
    tran_state_table_offset: Long
    """Queue offset of the half message."""
    commit_log_offset_bytes: Long = field(name="commitLogOffset")
    """Physical offset of the half message in the commit log."""
    commit_or_rollback: Int
    """The state of the transaction: 8 for commit, 12 for rollback, 0 if the state is not known yet."""
    from_transaction_check: bool = False
    msg_id: str = ""
    """Message id of the half message. RocketMQ's header requires the field, but its broker accepts requests without it."""
    transaction_id: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class CheckTransactionStateRequestHeader(CommandHeader, kw_only=True):
    """The header of request 39, which a broker sends to a producer to ask for the state of a transaction."""

    tran_state_table_offset: Long
    commit_log_offset_bytes: Long = field(name="commitLogOffset")
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ConsumerGroupRequestHeader(CommandHeader, kw_only=True):
    """The header of requests 38, 40 and 203, which concern the members of one consumer group."""

    consumer_group: str

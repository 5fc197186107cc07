"""Headers of requests that administer a broker, and of requests that a broker forwards to a client.

See docs/internals/protocol.md, Request codes.
"""

from __future__ import annotations

from msgspec import field

from flintmq.core.broker.topic_config import TopicFilterType
from flintmq.remoting.wire.header_codec import CommandHeader, Int, Long


class CreateTopicRequestHeader(CommandHeader, kw_only=True):
    """The header of request 17, which creates a topic or changes its settings."""

    topic: str
    default_topic: str = ""
    """Name of a default topic, which the broker does not use. RocketMQ's header requires this field and ``order``; in FlintMQ
    both fields are optional."""
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: TopicFilterType
    topic_sys_flag: Int = 0
    order: bool = False


class GetBrokerConfigResponseHeader(CommandHeader, kw_only=True):
    """The header of answers to request 26, which asks for a broker's settings. ``version`` is a DataVersion in JSON."""

    version: str


class CreateAccessConfigRequestHeader(CommandHeader, kw_only=True):
    """The header of request 50, which creates or changes an account."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    """The account's permissions in topics: ``name=PERM,name=PERM``."""
    group_perms: str | None = None


class DeleteAccessConfigRequestHeader(CommandHeader, kw_only=True):
    """The header of request 51, which deletes an account."""

    access_key: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(CommandHeader, kw_only=True):
    """The header of request 53, which sets the addresses from which requests are accepted."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponseHeader(CommandHeader, kw_only=True):
    """The header of the answer to request 52, which asks for the version of the accounts."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


class TopicRequestHeader(CommandHeader, kw_only=True):
    """The header of requests 202, 215, 300 and 351, which name one topic.

    Request 202 asks for the topic's offsets, 215 deletes the topic, 300 asks for the groups that use it, and 351 for its
    settings.
    """

    topic: str


class GetProducerConnectionListRequestHeader(CommandHeader, kw_only=True):
    """The header of request 204, which lists the connections of a producer group."""

    producer_group: str


class DeleteSubscriptionGroupRequestHeader(CommandHeader, kw_only=True):
    """The header of request 207, which deletes a consumer group."""

    group_name: str
    remove_offset: bool = False


class GetConsumeStatsRequestHeader(CommandHeader, kw_only=True):
    """The header of request 208, which asks for a consumer group's offsets.

    The offsets are those in one topic, or in all topics of the group if ``topic`` is empty.
    """

    consumer_group: str
    topic: str | None = None


class GroupRequestHeader(CommandHeader, kw_only=True):
    """The header of request 352, which asks for the settings of a consumer group."""

    group: str


class TopicGroupRequestHeader(CommandHeader, kw_only=True):
    """The header of request 303, which asks for the time span of a topic's messages and the delay of a consumer group."""

    topic: str
    group: str


class ResetOffsetRequestHeader(TopicGroupRequestHeader, kw_only=True):
    """The header of requests 220 and 222, which reset a consumer group's offsets to a time.

    The time -1 means the end of each queue.
    """

    timestamp_ms: Long = field(name="timestamp")
    is_force: bool


class GetConsumerStatusRequestHeader(TopicGroupRequestHeader, kw_only=True):
    """The header of requests 221 and 223, which ask for the offsets that a consumer group's members have in memory."""

    client_addr: str | None = None
    """Client id (not address) of the consumer whose offsets are requested; None for all consumers of the group."""


class GetConsumerRunningInfoRequestHeader(CommandHeader, kw_only=True):
    """The header of request 307, which asks a consumer for its running info."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequestHeader(CommandHeader, kw_only=True):
    """The header of request 309, which makes a given consumer process one message and returns the result."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


class QueryCorrectionOffsetRequestHeader(CommandHeader, kw_only=True):
    """The header of request 308, which asks for the smallest offsets of consumer groups in a topic."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


class CloneGroupOffsetRequestHeader(CommandHeader, kw_only=True):
    """The header of request 314, which copies the offsets of one consumer group to another."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ViewBrokerStatsDataRequestHeader(CommandHeader, kw_only=True):
    """The header of request 315, which reads a statistics counter over the last minute, the last hour and the last day."""

    stats_name: str
    stats_key: str


class GetBrokerConsumeStatsRequestHeader(CommandHeader, kw_only=True):
    """The header of request 317, which asks for the offsets and the lag of all consumer groups of a broker."""

    is_order: bool = False
    """Whether the answer contains only ordered topics. RocketMQ's header requires this field; in FlintMQ it is optional."""


class QueryConsumeQueueRequestHeader(CommandHeader, kw_only=True):
    """The header of request 321, which reads entries of a consume queue."""

    topic: str | None = None
    queue_id: Int = 0
    index: Long = 0
    count: Int = 0
    consumer_group: str | None = None


class ResumeCheckHalfMessageRequestHeader(CommandHeader, kw_only=True):
    """The header of request 323, which resets the number of checks of a half message.

    The field ``msgId`` is a broker's message id (offsetMsgId).
    """

    msg_id: str | None = None

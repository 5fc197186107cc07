"""Headers of administration on a broker, and of what a broker passes on to a client.

See docs/internals/protocol.md, Request codes.
"""

from __future__ import annotations

from msgspec import field

from flintmq.core.broker.topic_config import TopicFilterType
from flintmq.remoting.wire.header_codec import CommandHeader, Int, Long


class CreateTopicRequestHeader(CommandHeader, kw_only=True):
    """The header of request 17: create or change a topic."""

    topic: str
    default_topic: str = ""
    """Not needed, though RocketMQ calls it required; likewise ``order``."""
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: TopicFilterType
    topic_sys_flag: Int = 0
    order: bool = False


class GetBrokerConfigResponseHeader(CommandHeader, kw_only=True):
    """The header of answers to request 26; ``version`` is a DataVersion in JSON."""

    version: str


class CreateAccessConfigRequestHeader(CommandHeader, kw_only=True):
    """50."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    """``name=PERM,name=PERM``."""
    group_perms: str | None = None


class DeleteAccessConfigRequestHeader(CommandHeader, kw_only=True):
    """51."""

    access_key: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(CommandHeader, kw_only=True):
    """53."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponseHeader(CommandHeader, kw_only=True):
    """52."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


class TopicRequestHeader(CommandHeader, kw_only=True):
    """The header of requests 202, 215, 300 and 351, about one topic."""

    topic: str


class GetProducerConnectionListRequestHeader(CommandHeader, kw_only=True):
    """204."""

    producer_group: str


class DeleteSubscriptionGroupRequestHeader(CommandHeader, kw_only=True):
    """207."""

    group_name: str
    remove_offset: bool = False


class GetConsumeStatsRequestHeader(CommandHeader, kw_only=True):
    """The header of request 208: get a group's offsets in a topic, or in all its topics if ``topic`` is empty."""

    consumer_group: str
    topic: str | None = None


class GroupRequestHeader(CommandHeader, kw_only=True):
    """The header of request 352, about one group."""

    group: str


class TopicGroupRequestHeader(CommandHeader, kw_only=True):
    """303."""

    topic: str
    group: str


class ResetOffsetRequestHeader(TopicGroupRequestHeader, kw_only=True):
    """The header of requests 220 and 222: reset a group's offsets to a time; -1 is the end."""

    timestamp_ms: Long = field(name="timestamp")
    is_force: bool


class GetConsumerStatusRequestHeader(TopicGroupRequestHeader, kw_only=True):
    """221 and 223."""

    client_addr: str | None = None
    """A client id, despite the field's name; None: all clients."""


class GetConsumerRunningInfoRequestHeader(CommandHeader, kw_only=True):
    """307."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequestHeader(CommandHeader, kw_only=True):
    """309."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


class QueryCorrectionOffsetRequestHeader(CommandHeader, kw_only=True):
    """308."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


class CloneGroupOffsetRequestHeader(CommandHeader, kw_only=True):
    """314."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ViewBrokerStatsDataRequestHeader(CommandHeader, kw_only=True):
    """315."""

    stats_name: str
    stats_key: str


class GetBrokerConsumeStatsRequestHeader(CommandHeader, kw_only=True):
    """317."""

    is_order: bool = False
    """Not needed, though RocketMQ calls it required."""


class QueryConsumeQueueRequestHeader(CommandHeader, kw_only=True):
    """321."""

    topic: str | None = None
    queue_id: Int = 0
    index: Long = 0
    count: Int = 0
    consumer_group: str | None = None


class ResumeCheckHalfMessageRequestHeader(CommandHeader, kw_only=True):
    """The header of request 323; ``msgId`` is a broker's message id (offsetMsgId)."""

    msg_id: str | None = None

"""Immutable values that a :class:`~flintmq.programs.cluster_view.view.ClusterView` returns.

``None`` means unknown. Times are milliseconds since 1970, ages and durations are seconds. Names are text from clients; a
display must not interpret markup in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs
import msgspec

from flintmq.core.broker.conflicts import Conflict
from flintmq.remoting.wire.broker_report import BrokerReport

Kind = Literal["user", "retry", "dead_letter", "system"]
State = Literal["online", "offline", "broadcasting", "unknown"]
"""The state of a group: with members (``online``), without members (``offline``), with broadcasting members (``broadcasting``),
or ``unknown`` if no broker has been asked about the group yet."""


def as_json(value: Any) -> Any:
    """Return a value of this module as dicts, lists and scalars, for ``--json`` and for web pages."""
    return attrs.asdict(value, value_serializer=lambda _owner, _field, inner: plain(inner))


def plain(value: Any) -> Any:
    """Return a broker's answer as dicts, lists and scalars, keyed by the names of the Python attributes."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(inner) for name, inner in msgspec.structs.asdict(value).items()}
    if isinstance(value, (tuple, list)):
        return [plain(inner) for inner in value]
    return dict(value) if isinstance(value, Mapping) else value


@attrs.frozen(kw_only=True)
class Overview:
    """The figures of one cluster, or of all clusters that a name server lists."""

    name_servers: tuple[str, ...]
    clusters: tuple[str, ...]
    age_s: float | None
    """Age, in seconds, of the oldest figures of a broker that answers; None if no broker has answered."""
    brokers: int
    brokers_missing: int
    """Number of brokers that do not answer."""
    topics: int
    """Number of users' topics. Retry, dead-letter and system topics do not count."""
    groups: int
    put_per_s: float
    """Messages per second that were put at all masters."""
    get_per_s: float
    put_latency_99_ms: float | None
    """Latency of a put at the slowest broker, in ms: the 99th percentile of the last minute. None if no broker reports this
    figure or nothing was appended."""
    lag: int | None
    """Number of messages that groups have not consumed, summed over all groups."""
    groups_behind: int
    conflicts: int
    """Number of groups whose members' subscriptions or behavior conflict."""
    stuck: int
    """Number of groups with a stuck queue: messages wait in the queue, and the group's offset does not move."""
    alarms: tuple[PlacedAlarm, ...]
    errors: tuple[str, ...]
    """Texts of the errors of requests to brokers and name servers that failed."""
    offline_behind: tuple[tuple[str, int], ...] = ()
    """(group, number of waiting messages) of each group that has waiting messages and no members, largest lag first. An alarm
    reports such a group if its lag grows."""


@attrs.frozen(kw_only=True)
class PlacedAlarm:
    """An alarm and the broker that reports it."""

    id: str
    """Stable identifier of the alarm, such as ``disk.full``, for programs."""
    level: str
    """The alarm's level: ``warning`` or ``critical``."""
    subject: str
    """The group, topic or plugin that the alarm is about; empty if the alarm is about the broker."""
    message: str
    value: float
    unit: str
    limit: float
    """The limit that the alarm's value has exceeded."""
    key: str
    """Key of the setting that changes the alarm's limit; empty if no setting does."""
    broker: str
    address: str


@attrs.frozen(kw_only=True)
class Setting:
    """A setting of a broker, with its value and the value's origin."""

    name: str
    """The setting's name: FlintMQ's key for a FlintMQ broker, RocketMQ's name for another broker."""
    value: str
    origin: str
    """Origin of the setting's value, such as a file and line; empty if the broker does not report origins."""
    rocketmq: str = ""
    """RocketMQ's names for the setting, if the setting's name is FlintMQ's key."""


@attrs.frozen(kw_only=True)
class BrokerView:
    """The state of a master or slave, with its figures, alarms and settings."""

    cluster: str
    name: str
    broker_id: int
    """The broker's id; 0 is the master."""
    address: str
    error: str
    """Why the broker has no newer figures, in a sentence; empty if the broker answers."""
    age_s: float | None
    """Age of the broker's figures in seconds; None if the broker has not sent figures yet."""
    version: str
    is_flintmq: bool
    boot_timestamp_ms: int
    put_per_s: float | None
    """Messages per second that were put at the broker; None while the broker does not answer, because its last rate is
    outdated."""
    get_per_s: float | None
    put_today: int
    got_today: int
    put_latency_99_ms: float | None
    commit_log_bytes: int
    """Size of the messages in the commit log."""
    commit_log_min_offset_bytes: int
    commit_log_max_offset_bytes: int
    dispatch_behind_bytes: int
    disk_ratio: float
    """Used share of the disk with the commit log, from 0 to 1."""
    earliest_message_timestamp_ms: int
    replication: Mapping[str, Any]
    """The broker's state of replication with its ``role``; empty if the broker has no replication or does not report its
    state."""
    plugins: tuple[Mapping[str, Any], ...]
    """The plugins that the broker reports: plugins of third parties, and all plugins that failed."""
    alarms: tuple[PlacedAlarm, ...]
    figures: Mapping[str, str]
    """All runtime figures of the broker, keyed by name."""
    config: tuple[Setting, ...] | None
    """The broker's settings; None in a list of brokers, because only a broker's details contain settings."""
    report: BrokerReport | None = None
    """Report of the broker about its last start, and about the data that was removed from its store and is kept in the folder
    ``flint/quarantine``. None in a list of brokers, and for a broker that is not a FlintMQ broker."""


@attrs.frozen(kw_only=True)
class QueueView:
    """A queue of a topic at one broker."""

    broker: str
    queue_id: int
    min_queue_offset: int
    max_queue_offset: int
    """The queue offset that the queue's next message will have."""
    last_write_ms: int
    """Store time of the queue's last message, in ms since 1970; 0 if the queue has had no message."""


@attrs.frozen(kw_only=True)
class TopicView:
    """A topic, with figures from all brokers that have the topic."""

    name: str
    kind: Kind
    perm: str
    """The topic's permission as RocketMQ writes it, such as ``RW-``. Different permissions at several brokers are joined by
    ``/``."""
    read_queues: int
    write_queues: int
    brokers: tuple[str, ...]
    missing: tuple[str, ...]
    """The topic's brokers that do not answer. The topic's figures do not include these brokers."""
    put_per_s: float | None
    messages: int | None
    """Number of messages in the topic's queues."""
    last_write_ms: int | None
    groups: tuple[str, ...]
    """Groups that have offsets in the topic. In the topic's details, groups that only subscribe to the topic are included."""
    lag: int | None
    """Number of the topic's messages that groups have not consumed, summed over all groups."""
    age_s: float | None
    queues: tuple[QueueView, ...] | None
    """The topic's queues; None in a list of topics, because only a topic's details contain queues."""
    errors: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class StuckQueue:
    """A queue whose messages a group does not consume although the group has members online."""

    topic: str
    broker: str
    queue_id: int
    consumer_offset: int
    """The group's offset in the stuck queue. The offset has not moved for at least ``standing_s`` seconds."""
    lag: int
    standing_s: float
    client_id: str | None
    """Client id of the member that owns the stuck queue; None in a list of groups, or if the owner is unknown."""


@attrs.frozen(kw_only=True)
class GroupQueue:
    """A group's progress in one queue of a topic."""

    topic: str
    broker: str
    queue_id: int
    consumer_offset: int
    max_queue_offset: int
    lag: int
    last_timestamp_ms: int
    """Store time of the last message that the group consumed from the queue, in ms since 1970; 0 if the group has not consumed
    any message, or if the broker does not have the message."""
    client_id: str | None
    """Client id of the member that owns the queue; None if no member owns the queue or the owner is unknown (see
    ``Member.error``)."""


@attrs.frozen(kw_only=True)
class MemberSubscription:
    """The subscription of a group's member to a topic."""

    topic: str
    expression_type: str
    expression: str


@attrs.frozen(kw_only=True)
class Member:
    """A consumer that is a member of a group."""

    client_id: str
    address: str
    language: str
    version: str
    subscriptions: tuple[MemberSubscription, ...] | None
    """The member's subscriptions. If the member did not answer, the subscriptions and the member's figures are None."""
    queues: int | None
    lag: int | None
    """Number of unconsumed messages in the queues that the member owns; None if the member did not answer."""
    consume_ok_per_s: float | None
    consume_failed_per_s: float | None
    error: str
    """Why the member did not answer; empty if the member answered."""


@attrs.frozen(kw_only=True)
class GroupView:
    """A consumer group, with figures from all brokers that know the group."""

    name: str
    kind: Kind
    brokers: tuple[str, ...]
    missing: tuple[str, ...]
    """The group's brokers that do not answer. The group's figures do not include these brokers."""
    members: int | None
    """Number of the group's members that are online."""
    consume_type: str
    """How the group's members consume: ``CONSUME_PASSIVELY`` for push consumers. Empty if no member is online, or if
    unknown."""
    message_model: str
    """The group's message model, ``CLUSTERING`` or ``BROADCASTING``. Brokers keep no offsets for ``BROADCASTING`` groups."""
    topics: tuple[str, ...]
    """Topics in which the group has offsets, except for the group's retry topic."""
    lag: int | None
    retry_lag: int | None
    """Number of messages in the group's retry topic that wait to be consumed again; the group's lag includes them."""
    get_per_s: float | None
    conflict: str
    """How the behavior or subscriptions of the group's members conflict, in a sentence; empty if the members agree, or if
    unknown."""
    stuck: tuple[StuckQueue, ...]
    age_s: float | None
    queues: tuple[GroupQueue, ...] | None
    """The queues that the group consumes; None in a list of groups, because only a group's details contain queues."""
    member_list: tuple[Member, ...] | None
    conflicts: tuple[Conflict, ...] | None
    errors: tuple[str, ...] = ()
    state: State = "unknown"

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
"""The state of a group: it has members, has none, has broadcasting members, or was not asked about yet."""


def as_json(value: Any) -> Any:
    """Return a value of this module as dicts, lists and scalars, for ``--json`` and for web pages."""
    return attrs.asdict(value, value_serializer=lambda _owner, _field, inner: plain(inner))


def plain(value: Any) -> Any:
    """Return a broker's answer as dicts, lists and scalars, with the names of its fields here."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(inner) for name, inner in msgspec.structs.asdict(value).items()}
    if isinstance(value, (tuple, list)):
        return [plain(inner) for inner in value]
    return dict(value) if isinstance(value, Mapping) else value


@attrs.frozen(kw_only=True)
class Overview:
    """The figures of a cluster, or of all clusters of a name server."""

    name_servers: tuple[str, ...]
    clusters: tuple[str, ...]
    age_s: float | None
    """Age of the oldest brokers' figures in it; None if there are none."""
    brokers: int
    brokers_missing: int
    """Number of brokers that do not answer."""
    topics: int
    """Number of users' topics; ``groups`` is the number of users' groups."""
    groups: int
    put_per_s: float
    """Messages put per second; ``get_per_s`` counts consumed ones."""
    get_per_s: float
    put_latency_99_ms: float | None
    """The slowest broker's figure of the last minute; None if no broker reports it or nothing was appended."""
    lag: int | None
    """Messages that groups have not consumed, summed over all groups."""
    groups_behind: int
    conflicts: int
    """Number of groups with conflicting members."""
    stuck: int
    """Number of groups with a queue that does not move although messages wait."""
    alarms: tuple[PlacedAlarm, ...]
    errors: tuple[str, ...]
    """Error texts of failed requests."""
    offline_behind: tuple[tuple[str, int], ...] = ()
    """Groups without members for which messages wait, with their number, largest lag first. An alarm reports them if the lag
    grows."""


@attrs.frozen(kw_only=True)
class PlacedAlarm:
    """An alarm with its broker."""

    id: str
    """Stable identifier such as ``disk.full``, for programs."""
    level: str
    """``warning`` or ``critical``."""
    subject: str
    """The group, topic or plugin that the alarm is about; empty for the broker itself."""
    message: str
    value: float
    unit: str
    limit: float
    """The limit that the value has exceeded."""
    key: str
    """The setting to change; empty if there is none."""
    broker: str
    address: str


@attrs.frozen(kw_only=True)
class Setting:
    """A setting of a broker."""

    name: str
    """FlintMQ's key for a FlintMQ broker, else RocketMQ's name."""
    value: str
    origin: str
    """Origin of the value, such as a file and line; empty if the broker does not report it."""
    rocketmq: str = ""
    """RocketMQ's names for FlintMQ's key."""


@attrs.frozen(kw_only=True)
class BrokerView:
    """The state of a master or slave."""

    cluster: str
    name: str
    broker_id: int
    """The broker's id; 0 is the master."""
    address: str
    error: str
    """Why there are no newer figures, in a sentence; empty if the broker answers."""
    age_s: float | None
    """Age of the figures; None if there are none."""
    version: str
    is_flintmq: bool
    boot_timestamp_ms: int
    put_per_s: float | None
    """Messages put per second; None while the broker does not answer, as its last rate is outdated. Also for ``get_per_s``."""
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
    """Used share of the log's disk, from 0 to 1."""
    earliest_message_timestamp_ms: int
    replication: Mapping[str, Any]
    """The state of replication with its ``role``; empty without replication, or if the broker does not report it."""
    plugins: tuple[Mapping[str, Any], ...]
    """Plugins that the broker reports: third-party and failed ones."""
    alarms: tuple[PlacedAlarm, ...]
    figures: Mapping[str, str]
    """All runtime figures, keyed by name."""
    config: tuple[Setting, ...] | None
    """The settings; None in lists, because only the details contain them."""
    report: BrokerReport | None = None
    """The report of the last start and the quarantine; None in lists, and for a broker that is not FlintMQ's."""


@attrs.frozen(kw_only=True)
class QueueView:
    """A queue of a topic."""

    broker: str
    queue_id: int
    min_queue_offset: int
    max_queue_offset: int
    """The offset that the next message will have."""
    last_write_ms: int
    """Time of the last message; 0 if there is none."""


@attrs.frozen(kw_only=True)
class TopicView:
    """A topic, over all brokers that have it."""

    name: str
    kind: Kind
    perm: str
    """The permission as RocketMQ writes it, such as ``RW-``; different ones of several brokers are joined by ``/``."""
    read_queues: int
    write_queues: int
    brokers: tuple[str, ...]
    missing: tuple[str, ...]
    """Brokers among them that do not answer; the figures are those of the others."""
    put_per_s: float | None
    messages: int | None
    """Number of messages."""
    last_write_ms: int | None
    groups: tuple[str, ...]
    """Groups with offsets in the topic; in details also groups that only subscribe to it."""
    lag: int | None
    """Lag of all groups together."""
    age_s: float | None
    queues: tuple[QueueView, ...] | None
    """The queues; None in lists. ``errors`` is empty in lists."""
    errors: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class StuckQueue:
    """A queue that a group does not consume although messages wait and members are online."""

    topic: str
    broker: str
    queue_id: int
    consumer_offset: int
    """The offset, which has not moved for at least ``standing_s`` seconds."""
    lag: int
    standing_s: float
    client_id: str | None
    """The member that owns the queue; None if unknown, and in lists."""


@attrs.frozen(kw_only=True)
class GroupQueue:
    """A group's progress in a queue."""

    topic: str
    broker: str
    queue_id: int
    consumer_offset: int
    max_queue_offset: int
    lag: int
    last_timestamp_ms: int
    """Store time of the last consumed message; 0 for none."""
    client_id: str | None
    """The member that owns the queue; None if no member does, or if it is unknown (see ``Member.error``)."""


@attrs.frozen(kw_only=True)
class MemberSubscription:
    """A subscription of a member."""

    topic: str
    expression_type: str
    expression: str


@attrs.frozen(kw_only=True)
class Member:
    """A consumer of a group."""

    client_id: str
    address: str
    language: str
    version: str
    subscriptions: tuple[MemberSubscription, ...] | None
    """Subscriptions; None if the member did not answer. This also applies to the fields below."""
    queues: int | None
    lag: int | None
    """Lag of the member's queues."""
    consume_ok_per_s: float | None
    consume_failed_per_s: float | None
    error: str
    """Why the member did not answer; empty if it did."""


@attrs.frozen(kw_only=True)
class GroupView:
    """A consumer group, over all brokers that know it."""

    name: str
    kind: Kind
    brokers: tuple[str, ...]
    missing: tuple[str, ...]
    """Brokers among them that do not answer; the figures are those of the others."""
    members: int | None
    """Number of members that are online."""
    consume_type: str
    """``CONSUME_PASSIVELY`` for push consumers; empty if no member is online, or if unknown."""
    message_model: str
    """``CLUSTERING`` or ``BROADCASTING``; brokers keep no offsets for ``BROADCASTING`` groups."""
    topics: tuple[str, ...]
    """Topics in which the group has offsets, without its retry topic."""
    lag: int | None
    retry_lag: int | None
    """The part of the lag that waits to be consumed again."""
    get_per_s: float | None
    conflict: str
    """The members' conflict in a sentence; empty if there is none, or if it is unknown."""
    stuck: tuple[StuckQueue, ...]
    age_s: float | None
    queues: tuple[GroupQueue, ...] | None
    """The queues; None in lists, like ``member_list`` and ``conflicts``."""
    member_list: tuple[Member, ...] | None
    conflicts: tuple[Conflict, ...] | None
    errors: tuple[str, ...] = ()
    state: State = "unknown"

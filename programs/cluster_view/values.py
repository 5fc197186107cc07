"""What a :class:`~flintmq.programs.cluster_view.view.ClusterView` tells, as frozen values.

``None`` means that it is not known (yet); times are milliseconds since 1970, ages and durations are seconds. Names are text as
clients sent it: whatever shows them must not take them for markup.
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
"""Of a group: it has members; has none; has members of which each gets every message; that was not asked yet."""


def as_json(value: Any) -> Any:
    """Return a value of this module as dicts, lists and scalars, for ``--json`` and for web pages."""
    return attrs.asdict(value, value_serializer=lambda _owner, _field, inner: plain(inner))


def plain(value: Any) -> Any:
    """Return what brokers answered as dicts, lists and scalars, under the names that it has here."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(inner) for name, inner in msgspec.structs.asdict(value).items()}
    if isinstance(value, (tuple, list)):
        return [plain(inner) for inner in value]
    return dict(value) if isinstance(value, Mapping) else value


@attrs.frozen(kw_only=True)
class Overview:
    """A cluster, or all clusters of a name server, in figures."""

    name_servers: tuple[str, ...]
    clusters: tuple[str, ...]
    age_s: float | None
    """Since the oldest of the brokers' figures that are shown was asked for; None while there are none."""
    brokers: int
    brokers_missing: int
    """Of them, those that do not answer."""
    topics: int
    """Those of users; likewise for groups."""
    groups: int
    put_per_s: float
    """Messages; likewise below."""
    get_per_s: float
    put_latency_99_ms: float | None
    """The slowest broker's, of the last minute; None where no broker tells it, or nothing was appended then."""
    lag: int | None
    """Messages that all groups together have not consumed."""
    groups_behind: int
    conflicts: int
    """Groups whose members contradict each other."""
    stuck: int
    """Groups with a queue that stands still although messages wait."""
    alarms: tuple[PlacedAlarm, ...]
    errors: tuple[str, ...]
    """What could not be asked, in sentences."""
    offline_behind: tuple[tuple[str, int], ...] = ()
    """Groups without members for which messages wait, with how many; the largest lag first. An alarm tells of them when the
    lag grows."""


@attrs.frozen(kw_only=True)
class PlacedAlarm:
    """What is wrong now, and where."""

    id: str
    """Stable, such as ``disk.full``: for programs."""
    level: str
    """``warning`` or ``critical``."""
    subject: str
    """What it is about: a group, a topic, a plugin; empty for the broker itself."""
    message: str
    value: float
    unit: str
    limit: float
    """The bound that the value has passed."""
    key: str
    """The setting to change; empty where there is none."""
    broker: str
    address: str


@attrs.frozen(kw_only=True)
class Setting:
    """A setting of a broker."""

    name: str
    """FlintMQ's key of its broker's settings, else RocketMQ's name."""
    value: str
    origin: str
    """Where it was set, such as a file and line; empty where the broker does not tell."""
    rocketmq: str = ""
    """RocketMQ's names for FlintMQ's key."""


@attrs.frozen(kw_only=True)
class BrokerView:
    """A master or slave."""

    cluster: str
    name: str
    broker_id: int
    """0 is the master."""
    address: str
    error: str
    """Why there are no newer figures, in a sentence; empty when it answers."""
    age_s: float | None
    """Since the figures were asked for; None when there are none."""
    version: str
    is_flintmq: bool
    boot_timestamp_ms: int
    put_per_s: float | None
    """None while the broker does not answer: what it told last was a rate of then. Likewise below."""
    get_per_s: float | None
    put_today: int
    got_today: int
    put_latency_99_ms: float | None
    commit_log_bytes: int
    """How many bytes of messages it keeps."""
    commit_log_min_offset_bytes: int
    commit_log_max_offset_bytes: int
    dispatch_behind_bytes: int
    disk_ratio: float
    """How much of the log's disk is used, from 0 to 1."""
    earliest_message_timestamp_ms: int
    replication: Mapping[str, Any]
    """``role`` and what goes with it; empty without replication, and where the broker does not tell."""
    plugins: tuple[Mapping[str, Any], ...]
    """Those that the broker names: third parties', and those that failed."""
    alarms: tuple[PlacedAlarm, ...]
    figures: Mapping[str, str]
    """All of its runtime figures by name."""
    config: tuple[Setting, ...] | None
    """None in lists: only a look at one broker asks for it."""
    report: BrokerReport | None = None
    """Of the last start, and of the quarantine; None in lists, and where the broker is not FlintMQ's."""


@attrs.frozen(kw_only=True)
class QueueView:
    """A queue of a topic."""

    broker: str
    queue_id: int
    min_queue_offset: int
    max_queue_offset: int
    """The offset that its next message will have."""
    last_write_ms: int
    """0 while it has no message."""


@attrs.frozen(kw_only=True)
class TopicView:
    """A topic over all brokers that have it."""

    name: str
    kind: Kind
    perm: str
    """``RW-``, as RocketMQ writes it; of several brokers all of theirs, joined by ``/``."""
    read_queues: int
    write_queues: int
    brokers: tuple[str, ...]
    missing: tuple[str, ...]
    """Of them, those that do not answer: the figures are the others'."""
    put_per_s: float | None
    messages: int | None
    """How many are there."""
    last_write_ms: int | None
    groups: tuple[str, ...]
    """Those that have come somewhere in it, and in detail those that only subscribe to it, too."""
    lag: int | None
    """Of all groups together."""
    age_s: float | None
    queues: tuple[QueueView, ...] | None
    """None in lists; likewise for errors."""
    errors: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class StuckQueue:
    """A queue that a group does not consume although messages wait and members are online."""

    topic: str
    broker: str
    queue_id: int
    consumer_offset: int
    """Has not moved for at least ``standing_s``."""
    lag: int
    standing_s: float
    client_id: str | None
    """Who holds it; None where that is not known, and in lists."""


@attrs.frozen(kw_only=True)
class GroupQueue:
    """How far a group has come in a queue."""

    topic: str
    broker: str
    queue_id: int
    consumer_offset: int
    max_queue_offset: int
    lag: int
    last_timestamp_ms: int
    """When the last message that it consumed was stored; 0 for none."""
    client_id: str | None
    """Who holds it, by what the members report; None where none does, or that is not known (see ``Member.error``)."""


@attrs.frozen(kw_only=True)
class MemberSubscription:
    """What a member subscribes to."""

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
    """None where it did not report; likewise below."""
    queues: int | None
    lag: int | None
    """Of its queues."""
    consume_ok_per_s: float | None
    consume_failed_per_s: float | None
    error: str
    """Why it did not report; empty when it did."""


@attrs.frozen(kw_only=True)
class GroupView:
    """A consumer group over all brokers that know it."""

    name: str
    kind: Kind
    brokers: tuple[str, ...]
    missing: tuple[str, ...]
    """Of them, those that do not answer: the figures are the others'."""
    members: int | None
    """How many are online."""
    consume_type: str
    """``CONSUME_PASSIVELY`` for push consumers; empty while nobody is online, or that is not known."""
    message_model: str
    """``CLUSTERING`` or ``BROADCASTING``; of the latter brokers keep no offsets."""
    topics: tuple[str, ...]
    """In which it has come somewhere; without its retry topic."""
    lag: int | None
    retry_lag: int | None
    """Of it, messages that wait to be consumed another time."""
    get_per_s: float | None
    conflict: str
    """How members contradict each other, in a sentence; empty when they do not, or that is not known yet."""
    stuck: tuple[StuckQueue, ...]
    age_s: float | None
    queues: tuple[GroupQueue, ...] | None
    """None in lists; likewise below."""
    member_list: tuple[Member, ...] | None
    conflicts: tuple[Conflict, ...] | None
    errors: tuple[str, ...] = ()
    state: State = "unknown"

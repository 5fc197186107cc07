"""What a view remembers of each broker: its last answers, when they came, and what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from flintmq.config.sections.service import AlarmsSection
from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.lag_watch import LagWatch
from flintmq.core.broker.topic_config import MessageQueue, TopicConfig
from flintmq.core.route.route_data import MASTER_ID, ClusterInfo
from flintmq.programs.cluster_view.progress import GroupProgress, Meters
from flintmq.remoting.wire.bodies import TopicOffset

NEVER: Final = float("-inf")
_ALARMS: Final = AlarmsSection()
"""Brokers that watch no lags themselves are watched as a FlintMQ broker does by default."""


@attrs.frozen
class TopicEnds:
    """Where a topic's queues at a broker begin and end."""

    queues: Mapping[MessageQueue, TopicOffset]
    at_s: float


@attrs.frozen
class Connected:
    """Who of a group is connected with a broker."""

    client_ids: tuple[str, ...]
    consume_type: str
    message_model: str
    conflict: str
    """How they contradict each other, in a sentence; empty when they do not."""
    at_s: float


NOBODY: Final = ((), "", "", "")
"""Who is connected where nobody is: of :class:`Connected` all but the time."""


@attrs.define
class BrokerMemory:
    """A master or slave. What it answered stays when it goes away, until the view forgets it."""

    cluster: str
    name: str
    broker_id: int
    address: str
    is_registered: bool = True
    seen_s: float = 0.0
    """When a name server last named it."""
    error: str = ""
    failures: int = 0
    """In a row."""
    info: Mapping[str, str] = attrs.Factory(dict)
    topics: Mapping[str, TopicConfig] = attrs.Factory(dict)
    groups: Mapping[str, SubscriptionGroupConfig] = attrs.Factory(dict)
    progress: dict[str, GroupProgress] = attrs.Factory(dict)
    beginning: dict[str, GroupProgress] = attrs.Factory(dict)
    """Of groups that subscribe to topics in which they have no offset yet, in those topics."""
    ends: dict[str, TopicEnds] = attrs.Factory(dict)
    connected: dict[str, Connected] = attrs.Factory(dict)
    topic_rates: Meters = attrs.Factory(Meters)
    """Of all topics, in turns."""
    consumed_rates: Meters = attrs.Factory(Meters)
    """Of topics that a group consumes, with every look at the groups' progress."""
    lags: LagWatch = attrs.Factory(lambda: LagWatch(_ALARMS.lag_messages, _ALARMS.lag_window_ms / 1000))
    """Of users' groups, where the broker tells no alarms."""
    asked_s: dict[str, float] = attrs.Factory(dict)
    """Kind of request → when it was last answered."""
    next_topic: int = 0
    next_group: int = 0

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID

    @property
    def answers(self) -> bool:
        """Return whether its last request was answered."""
        return self.is_registered and not self.error

    def due(self, kind: str, now_s: float, interval_s: float) -> bool:
        """Return whether a kind of request is due."""
        return now_s - self.asked_s.get(kind, NEVER) >= interval_s

    def age_s(self, kind: str, now_s: float) -> float | None:
        """Return how old the answer to a kind of request is; None when there is none."""
        asked_s = self.asked_s.get(kind)
        return None if asked_s is None else max(0.0, now_s - asked_s)

    def progress_of(self, group: str) -> list[GroupProgress]:
        """Return how far a group has come: in topics in which it has offsets, and in those that it has only begun with."""
        return [one for one in (self.progress.get(group), self.beginning.get(group)) if one is not None]

    @property
    def queue_count(self) -> int:
        """Return how many queues of groups its last answer about their progress had."""
        return sum(len(group.queues) for group in self.progress.values())

    def topic_per_s(self, topic: str) -> float | None:
        """Return how many messages a topic gets a second; None where that is not known yet."""
        rate = self.consumed_rates.per_s(topic)
        return self.topic_rates.per_s(topic) if rate is None else rate


def registered(info: ClusterInfo) -> list[BrokerMemory]:
    """Return every broker that name servers name; nothing was asked of them yet."""
    clusters = {name: cluster for cluster, names in info.cluster_addr_table.items() for name in names}
    return [
        BrokerMemory(clusters.get(name, data.cluster), name, number, address)
        for name, data in sorted(info.broker_addr_table.items())
        for number, address in sorted(data.broker_addrs.items())
    ]


def speakers(brokers: Iterable[BrokerMemory]) -> list[BrokerMemory]:
    """Return of each set the broker that tells of topics and groups: the master, or the first slave that is registered."""
    found: dict[str, BrokerMemory] = {}
    for broker in sorted(brokers, key=lambda one: (not one.is_registered, one.broker_id)):
        found.setdefault(broker.name, broker)
    return [found[name] for name in sorted(found)]

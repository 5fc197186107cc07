"""The state that a view keeps of each broker: its last answers, their times, and the next requests."""

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
"""FlintMQ's default limits of alarms. The view uses their lag limits for brokers that do not watch lags themselves."""


@attrs.frozen
class TopicEnds:
    """The first and last offsets of a topic's queues at a broker."""

    queues: Mapping[MessageQueue, TopicOffset]
    at_s: float


@attrs.frozen
class Connected:
    """The members of a group that are connected to a broker."""

    client_ids: tuple[str, ...]
    consume_type: str
    message_model: str
    conflict: str
    """How the behavior or subscriptions of the group's members conflict, in a sentence; empty if the members agree."""
    at_s: float


NOBODY: Final = ((), "", "", "")
"""The values, except for the time, of a :class:`Connected` for a group without connected members."""


@attrs.define
class BrokerMemory:
    """The state of a master or slave. Its answers are kept when it stops answering, until the view drops it."""

    cluster: str
    name: str
    broker_id: int
    address: str
    is_registered: bool = True
    seen_s: float = 0.0
    """Time at which a name server last listed this broker."""
    error: str = ""
    failures: int = 0
    """Number of consecutive requests that this broker has not answered."""
    info: Mapping[str, str] = attrs.Factory(dict)
    topics: Mapping[str, TopicConfig] = attrs.Factory(dict)
    groups: Mapping[str, SubscriptionGroupConfig] = attrs.Factory(dict)
    progress: dict[str, GroupProgress] = attrs.Factory(dict)
    beginning: dict[str, GroupProgress] = attrs.Factory(dict)
    """Progress of each group in the topics to which the group subscribes and in which the group has no offset yet, keyed by
    group."""
    ends: dict[str, TopicEnds] = attrs.Factory(dict)
    connected: dict[str, Connected] = attrs.Factory(dict)
    topic_rates: Meters = attrs.Factory(Meters)
    """Rates of all topics at this broker, updated for a few topics at a time."""
    consumed_rates: Meters = attrs.Factory(Meters)
    """Rates of the topics that groups consume from this broker, updated whenever the groups' progress is read."""
    lags: LagWatch = attrs.Factory(lambda: LagWatch(_ALARMS.lag_messages, _ALARMS.lag_window_ms / 1000))
    """Lags of users' groups, from which the view makes alarms for a broker that reports no alarms."""
    asked_s: dict[str, float] = attrs.Factory(dict)
    """Time of this broker's last answer, keyed by the kind of request."""
    next_topic: int = 0
    next_group: int = 0

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID

    @property
    def answers(self) -> bool:
        """Whether its last request was answered."""
        return self.is_registered and not self.error

    def due(self, kind: str, now_s: float, interval_s: float) -> bool:
        """Return whether a kind of request is due."""
        return now_s - self.asked_s.get(kind, NEVER) >= interval_s

    def age_s(self, kind: str, now_s: float) -> float | None:
        """Return the age in seconds of the last answer to a kind of request; None if there is none."""
        asked_s = self.asked_s.get(kind)
        return None if asked_s is None else max(0.0, now_s - asked_s)

    def progress_of(self, group: str) -> list[GroupProgress]:
        """Return a group's progress in topics with offsets and in topics to which it only subscribes."""
        return [one for one in (self.progress.get(group), self.beginning.get(group)) if one is not None]

    @property
    def queue_count(self) -> int:
        """The number of groups' queues in the last answer about progress."""
        return sum(len(group.queues) for group in self.progress.values())

    def topic_per_s(self, topic: str) -> float | None:
        """Return the messages per second of a topic; None if unknown."""
        rate = self.consumed_rates.per_s(topic)
        return self.topic_rates.per_s(topic) if rate is None else rate


def registered(info: ClusterInfo) -> list[BrokerMemory]:
    """Return a new state for every broker that name servers list."""
    clusters = {name: cluster for cluster, names in info.cluster_addr_table.items() for name in names}
    return [
        BrokerMemory(clusters.get(name, data.cluster), name, number, address)
        for name, data in sorted(info.broker_addr_table.items())
        for number, address in sorted(data.broker_addrs.items())
    ]


def speakers(brokers: Iterable[BrokerMemory]) -> list[BrokerMemory]:
    """Return for each broker set the broker to ask about topics and groups: the master, or else the first registered slave."""
    found: dict[str, BrokerMemory] = {}
    for broker in sorted(brokers, key=lambda one: (not one.is_registered, one.broker_id)):
        found.setdefault(broker.name, broker)
    return [found[name] for name in sorted(found)]

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
"""FlintMQ's default limits of alarms. The cluster view uses the default limits of lags for brokers that do not watch lags
themselves."""


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
"""The arguments ``client_ids``, ``consume_type``, ``message_model`` and ``conflict`` of :class:`Connected` for a consumer group
without connected members: an empty tuple and three empty strings."""


@attrs.define
class BrokerMemory:
    """The state of a master or slave. When the broker stops answering, its last answers are kept until the view drops the
    broker."""

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
        """Whether the broker is registered and answered the last request."""
        return self.is_registered and not self.error

    def due(self, kind: str, now_s: float, interval_s: float) -> bool:
        """Return whether it is time to send a kind of request to the broker."""
        return now_s - self.asked_s.get(kind, NEVER) >= interval_s

    def age_s(self, kind: str, now_s: float) -> float | None:
        """Return the age in seconds of the broker's last answer to a kind of request; None if the broker has not answered
        one."""
        asked_s = self.asked_s.get(kind)
        return None if asked_s is None else max(0.0, now_s - asked_s)

    def progress_of(self, group: str) -> list[GroupProgress]:
        """Return a group's progress in topics with offsets and in topics to which the group only subscribes."""
        return [one for one in (self.progress.get(group), self.beginning.get(group)) if one is not None]

    @property
    def queue_count(self) -> int:
        """The number of queues, summed over groups, in the broker's last answer about the groups' progress."""
        return sum(len(group.queues) for group in self.progress.values())

    def topic_per_s(self, topic: str) -> float | None:
        """Return the number of messages per second that the broker stores in a topic; None if the rate is unknown."""
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

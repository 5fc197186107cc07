"""Keeps the consumer groups that are online.

When members or the set of topics change, every member is notified (NOTIFY_CONSUMER_IDS_CHANGED), the new one too: the
clients then divide the queues again.

See docs/internals/algorithms.md, Groups and offsets; docs/internals/protocol.md, What an answer must have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from flintmq.core.broker.conflicts import (
    BROADCASTING,
    CLUSTERING,
    CONSUME_PASSIVELY,
    Behaviour,
    Conflict,
    describe_conflicts,
    find_conflicts,
    odd_members,
)
from flintmq.core.broker.producers import EXPIRY_S, ClientChannelInfo, check_membership
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_name import retry_topic
from flintmq.core.client_log import client_log
from flintmq.core.errors import RefusedError
from flintmq.core.event import Event
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports.channel import Channel
from flintmq.core.limits import SUBSCRIPTIONS_PER_HEARTBEAT_MAX
from flintmq.core.response_code import ResponseCode

_log = client_log(__name__)

NOTIFY_CONSUMER_IDS_CHANGED: Final = 40


class ConsumerGroupInfo:
    """Members and subscriptions of a group. Loop thread; changed by :class:`flintmq.core.broker.consumers.ConsumerTable`."""

    def __init__(self, group_name: str) -> None:
        self.group_name = group_name
        self._retry_topic = retry_topic(group_name)
        self.consume_type = CONSUME_PASSIVELY
        self.message_model = CLUSTERING
        self.consume_from_where = "CONSUME_FROM_LAST_OFFSET"
        self.subscriptions: dict[str, SubscriptionData] = {}
        """By topic; the newest version any member sent."""
        self.members: dict[Channel, ClientChannelInfo] = {}
        self._behaviours: dict[Channel, Behaviour] = {}
        self._counts: Counter[Behaviour] = Counter()
        """How many members consume alike: mostly all do, and nothing has to be compared."""
        self._conflicts: tuple[int, tuple[Conflict, ...]] = (0, ())
        """The revision that was looked at, and what was found."""
        self.revision = 0
        """Grows when the way in which any member consumes changes, or a member leaves."""

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    @property
    def channels(self) -> list[Channel]:
        return list(self.members)

    @property
    def client_ids(self) -> list[str]:
        """Ids of the members, each once."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def find_member(self, client_id: str) -> ClientChannelInfo | None:
        for member in self.members.values():
            if member.client_id == client_id:
                return member
        return None

    def find_subscription(self, topic: str) -> SubscriptionData | None:
        return self.subscriptions.get(topic)

    def add_member(self, member: ClientChannelInfo) -> bool:
        """Add a member or note that it lives; True when its connection is new."""
        known = self.members.get(member.channel)
        if known is not None and known.client_id == member.client_id:
            known.last_update_ms, known.last_update_s = member.last_update_ms, member.last_update_s
            return False
        self.members[member.channel] = member
        return known is None

    def remove_member(self, channel: Channel) -> bool:
        self._remember(channel, None)
        return self.members.pop(channel, None) is not None

    def update_subscriptions(
        self,
        channel: Channel,
        subscriptions: Iterable[SubscriptionData],
        consume_type: str = CONSUME_PASSIVELY,
        message_model: str = CLUSTERING,
        consume_from_where: str = "CONSUME_FROM_LAST_OFFSET",
    ) -> bool:
        """Take over how a member consumes; True when the group's set of topics changed.

        What is heard last holds for the whole group, but per topic the newest version wins. A topic that this member did not
        name is removed for the whole group: that is RocketMQ's rule and the trap of members that contradict each other
        (see :meth:`conflicts`).
        """
        self.consume_type, self.message_model = consume_type, message_model
        self.consume_from_where = consume_from_where
        changed = False
        topics = set()
        expressions = []
        for wanted in subscriptions:
            topics.add(wanted.topic)
            if wanted.topic != self._retry_topic:  # clients add it by themselves, some of them only after their start
                expressions.append((wanted.topic, wanted.expression_type, wanted.sub_string))
            known = self.subscriptions.get(wanted.topic)
            if known is None:
                changed = True
            if known is None or wanted.sub_version > known.sub_version:
                self.subscriptions[wanted.topic] = wanted
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
            changed = True
        behaviour = Behaviour(frozenset(expressions), message_model, consume_type, consume_from_where)
        self._remember(channel, behaviour)
        return changed

    def _remember(self, channel: Channel, behaviour: Behaviour | None) -> None:
        """Keep how a member consumes; None when it leaves."""
        before = self._behaviours.pop(channel, None)
        self.revision += before != behaviour
        if before is not None:
            self._counts[before] -= 1
            if not self._counts[before]:
                del self._counts[before]
        if behaviour is not None:
            self._behaviours[channel] = behaviour
            self._counts[behaviour] += 1

    def behaviours(self) -> dict[str, Behaviour]:
        """Return how each member consumes, by client id; one that is connected twice has a number behind it."""
        found: dict[str, Behaviour] = {}
        for channel, behaviour in self._behaviours.items():
            if channel in self.members:
                name = self.members[channel].client_id
                found[f"{name} ({len(found) + 1})" if name in found else name] = behaviour
        return found

    def conflicts(self) -> tuple[Conflict, ...]:
        """Return in what the members contradict each other, which is looked for once after each change."""
        if len(self._counts) < 2:
            return ()
        if self._conflicts[0] != self.revision:
            self._conflicts = (self.revision, find_conflicts(self.behaviours()))
        return self._conflicts[1]


class ConsumerTable:
    """Consumer groups and their members. Loop thread.

    Args:
        clock: decides expiry.
        notify_ids_changed: False never notifies members (then they notice at their next rebalance, every 20 s).
    """

    def __init__(self, clock: Clock, *, notify_ids_changed: bool = True) -> None:
        self._clock = clock
        self.notify_ids_changed = notify_ids_changed
        """May change while running."""
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._groups_of: dict[Channel, set[str]] = {}
        self.registered: Event[[str, Collection[SubscriptionData]]] = Event()
        """A heartbeat said what a group subscribes to."""
        self.unregistered: Event[[str]] = Event()
        """The last member of a group left."""
        self._revisions: dict[str, int] = {}
        """Group → what of it was last looked at for contradictions."""
        self._told: dict[str, tuple[str, ...]] = {}
        """Group → client ids last reported."""
        self.contradictions_seen = 0
        """How often the members of a group that contradict the others became others."""

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[ConsumerGroupInfo]:
        return iter(list(self._groups.values()))

    def find(self, group: str) -> ConsumerGroupInfo | None:
        """Return the group while it has members, else None."""
        return self._groups.get(group)

    def find_member(self, group: str, client_id: str) -> ClientChannelInfo | None:
        info = self._groups.get(group)
        return info.find_member(client_id) if info is not None else None

    def register(
        self,
        group: str,
        channel: Channel,
        client_id: str,
        subscriptions: Collection[SubscriptionData],
        *,
        language: str = "JAVA",
        version: int = 0,
        consume_type: str = CONSUME_PASSIVELY,
        message_model: str = CLUSTERING,
        consume_from_where: str = "CONSUME_FROM_LAST_OFFSET",
        notify: bool = True,
    ) -> bool:
        """Return what a heartbeat says of one group.

        Args:
            notify: the group's own ``notifyConsumerIdsChangedEnable``.

        Returns:
            True when members or topics changed.

        Raises:
            RefusedError: SYSTEM_ERROR; the group is full or subscribes to too many topics.
        """
        info = self._groups.get(group)
        self._check_limits(group, channel, subscriptions, info)
        if info is None:
            info = self._groups[group] = ConsumerGroupInfo(group)
        member = ClientChannelInfo(
            channel, client_id, language, version, self._clock.now_ms(), self._clock.monotonic_s()
        )
        is_new = info.add_member(member)
        self._groups_of.setdefault(channel, set()).add(group)
        topics_changed = info.update_subscriptions(
            channel, subscriptions, consume_type, message_model, consume_from_where
        )
        self._look_for_contradictions(info)
        if (is_new or topics_changed) and notify:
            self._notify(info)
        self.registered.publish(group, subscriptions)
        return is_new or topics_changed

    def _check_limits(
        self, group: str, channel: Channel, subscriptions: Collection[SubscriptionData], info: ConsumerGroupInfo | None
    ) -> None:
        if len(subscriptions) > SUBSCRIPTIONS_PER_HEARTBEAT_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"consumer group {group} subscribes to more than {SUBSCRIPTIONS_PER_HEARTBEAT_MAX} topics",
                reason="subscription.too_many",
                measured=f"{len(subscriptions)} topics",
            )
        members = info.members if info is not None else {}
        if channel not in members:
            check_membership("consumer", group, len(members), len(self._groups_of.get(channel, ())))

    def _look_for_contradictions(self, info: ConsumerGroupInfo) -> None:
        """Log once when the members whose subscriptions differ have changed; heartbeats without a change cost a comparison."""
        group = info.group_name
        if self._revisions.get(group) == info.revision:
            return
        self._revisions[group] = info.revision
        odd = odd_members(info.conflicts())
        if odd == self._told.get(group, ()):
            return
        if odd:
            self._told[group] = odd
            self.contradictions_seen += 1
            _log.warning(
                "members of consumer group %s contradict each other, so it may miss messages: %s",
                group,
                describe_conflicts(info.conflicts()),
            )
        else:
            del self._told[group]
            _log.info("the members of consumer group %s agree again", group)

    def unregister(self, group: str, channel: Channel, *, notify: bool = True) -> bool:
        """Take a member out of its group; return False when it was none."""
        info = self._groups.get(group)
        if info is None or not info.remove_member(channel):
            return False
        groups = self._groups_of[channel]
        groups.discard(group)
        if not groups:
            del self._groups_of[channel]
        if not info.members:
            del self._groups[group]
            self.unregistered.publish(group)
            self._revisions.pop(group, None)
            self._told.pop(group, None)
            return True
        self._look_for_contradictions(info)
        if notify:
            self._notify(info)
        return True

    def close_channel(self, channel: Channel) -> list[str]:
        """Remove a connection that closed from every group and notify the other members. Return the groups it was in."""
        groups = list(self._groups_of.get(channel, ()))
        for group in groups:
            self.unregister(group, channel)
        return groups

    def remove_expired(self) -> list[Channel]:
        """Remove members that sent no heartbeat for 120 s. Returns their connections, which the caller closes."""
        oldest_s = self._clock.monotonic_s() - EXPIRY_S
        expired = {
            channel
            for info in self._groups.values()
            for channel, member in info.members.items()
            if member.last_update_s < oldest_s
        }
        for channel in expired:
            self.close_channel(channel)
        return list(expired)

    def which_group_by_topic(self, topic: str) -> set[str]:
        """Return the groups that are online and subscribe to a topic."""
        return {info.group_name for info in self._groups.values() if topic in info.subscriptions}

    def contradictory(self) -> Iterator[ConsumerGroupInfo]:
        """Return the groups whose members contradict each other."""
        return (self._groups[group] for group in self._told)

    def runtime_info(self) -> dict[str, str]:
        """For request 28: groups whose members contradict each other, with the ids of those that differ from most."""
        found = "; ".join(f"{group}: {', '.join(ids[:10])}" for group, ids in self._told.items())
        return {"contradictorySubscriptions": found} if found else {}

    def _notify(self, info: ConsumerGroupInfo) -> None:
        if self.notify_ids_changed:
            header = {"consumerGroup": info.group_name}
            for channel in info.channels:
                channel.send_oneway(NOTIFY_CONSUMER_IDS_CHANGED, header)

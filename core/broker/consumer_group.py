"""A consumer group that is online: its connected members, the members known from before the broker's start, and its
subscriptions.

See docs/internals/algorithms.md, Groups and offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from flintmq.core.broker.conflicts import (
    BROADCASTING,
    CLUSTERING,
    CONSUME_PASSIVELY,
    Behaviour,
    Conflict,
    find_conflicts,
)
from flintmq.core.broker.kept_registrations import KeptGroup
from flintmq.core.broker.producers import ClientChannelInfo
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_name import retry_topic
from flintmq.core.kernel.ports.channel import Channel

_STILL_ALIVE_S: Final = 3.0
"""Length, in seconds, of a period that ends when a connection joins a consumer group with a client id that an older connection
in the group already uses. If the older connection sent a request in this period or later, two clients use the same id.
Otherwise, one client has reconnected, and its older connection does not count."""


class ConsumerGroupInfo:
    """The members and subscriptions of a consumer group; RocketMQ's ConsumerGroupInfo. Used only on the event loop's thread.

    :class:`flintmq.core.broker.consumers.ConsumerTable` changes groups.
    """

    def __init__(self, group_name: str) -> None:
        self.group_name = group_name
        self._retry_topic = retry_topic(group_name)
        self.consume_type = CONSUME_PASSIVELY
        self.message_model = CLUSTERING
        self.consume_from_where = "CONSUME_FROM_LAST_OFFSET"
        self.subscriptions: dict[str, SubscriptionData] = {}
        """Newest subscription that a member sent, keyed by topic."""
        self.members: dict[Channel, ClientChannelInfo] = {}
        self.kept: dict[str, None] = {}
        """Client ids of members that were registered before the broker was restarted and have not registered again yet."""
        self._of_id: dict[str, list[ClientChannelInfo]] = {}
        """Members of the group, keyed by client id. A client id has several members if several processes use the id."""
        self._behaviours: dict[Channel, Behaviour] = {}
        self._counts: Counter[Behaviour] = Counter()
        """Number of members with each :class:`Behaviour` (subscriptions and settings), keyed by behavior. If all members have
        one behavior, no members have to be compared."""
        self._conflicts: tuple[int, tuple[Conflict, ...]] = (0, ())
        """Value of :attr:`revision` for which the conflicts between the group's members were last computed, and these
        conflicts."""
        self.revision = 0
        """Number that grows when the subscriptions or settings of a member change, and when a member joins or leaves."""
        self.subscriptions_replaced = 0
        """Number of times that the subscription of a topic was replaced, including replacements by a newer version of the same
        expression."""

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    @property
    def channels(self) -> list[Channel]:
        return list(self.members)

    @property
    def client_ids(self) -> list[str]:
        """Client ids of the group's connected members and of the members kept from before the broker's start, without
        repetition.

        The group's queues are divided among these clients.
        """
        return list(dict.fromkeys([*self._of_id, *self.kept]))

    def find_member(self, client_id: str) -> ClientChannelInfo | None:
        return next(iter(self._of_id.get(client_id, ())), None)

    def addresses_of(self, client_id: str) -> tuple[str, ...]:
        """Return the addresses of the group's connections that share a client id at the same time; empty if only one connection
        uses the id.

        A connection that has sent nothing since a newer connection with the same id joined does not count. Its client has
        reconnected, and only the broker's end of the old connection is still open. The result is empty for broadcasting groups,
        in which a shared id has no effect.
        """
        of_id = self._of_id.get(client_id, ())
        if len(of_id) < 2 or self.is_broadcasting:
            return ()
        joined_s = max(member.joined_s for member in of_id) - _STILL_ALIVE_S
        alive = [m.channel.remote_address for m in of_id if m.channel.is_open and m.last_heard_s >= joined_s]
        return tuple(sorted(alive)) if len(alive) > 1 else ()

    def find_subscription(self, topic: str) -> SubscriptionData | None:
        return self.subscriptions.get(topic)

    def add_member(self, member: ClientChannelInfo) -> bool:
        """Add a group's member, or record the heartbeat of a member.

        Return True if this adds a member: the connection is new, and the client id is not that of a member kept from before the
        broker's start.
        """
        known = self.members.get(member.channel)
        if known is not None and known.client_id == member.client_id:
            known.last_update_ms, known.last_update_s = member.last_update_ms, member.last_update_s
            known.last_heard_s = member.last_update_s
            return False
        if known is not None:
            self._forget_id(known)
        member.joined_s = member.last_heard_s = member.last_update_s
        self.members[member.channel] = member
        self._of_id.setdefault(member.client_id, []).append(member)
        was_kept = member.client_id in self.kept
        self.kept.pop(member.client_id, None)
        return known is None and not was_kept

    def keep(self, kept: KeptGroup) -> None:
        """Restore the group's members and subscriptions from before the broker's start.

        The restored subscriptions apply until a heartbeat changes them.
        """
        self.consume_type, self.message_model = kept.consume_type, kept.message_model
        self.consume_from_where = kept.consume_from_where
        self.subscriptions = {wanted.topic: wanted for wanted in kept.subscriptions}
        self.kept = dict.fromkeys(kept.client_ids)

    def remove_member(self, channel: Channel) -> bool:
        self._remember(channel, None)
        member = self.members.pop(channel, None)
        if member is None:
            return False
        self._forget_id(member)
        return True

    def _forget_id(self, member: ClientChannelInfo) -> None:
        of_id = self._of_id[member.client_id]
        of_id.remove(member)
        if not of_id:
            del self._of_id[member.client_id]

    def update_subscriptions(
        self,
        channel: Channel,
        subscriptions: Iterable[SubscriptionData],
        consume_type: str = CONSUME_PASSIVELY,
        message_model: str = CLUSTERING,
        consume_from_where: str = "CONSUME_FROM_LAST_OFFSET",
    ) -> bool:
        """Apply the subscriptions in a member's heartbeat to its whole group; return whether the group's set of topics changed.

        Message model and consume type are those of the last heartbeat. For a topic, the subscription with the newest version
        is kept. A topic that the member does not name is removed from the group, even if other members subscribe to it. This
        is RocketMQ's rule, and the reason why contradicting members miss messages (see :meth:`conflicts`).
        """
        self.consume_type, self.message_model = consume_type, message_model
        self.consume_from_where = consume_from_where
        changed = False
        topics = set()
        expressions = []
        for wanted in subscriptions:
            topics.add(wanted.topic)
            # Some consumers subscribe to the retry topic late, so a difference only in the retry topic is not a conflict.
            if wanted.topic != self._retry_topic:
                expressions.append((wanted.topic, wanted.expression_type, wanted.sub_string))
            known = self.subscriptions.get(wanted.topic)
            if known is None:
                changed = True
            if known is None or wanted.sub_version > known.sub_version:
                self.subscriptions[wanted.topic] = wanted
                self.subscriptions_replaced += 1
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
            changed = True
        behaviour = Behaviour(frozenset(expressions), message_model, consume_type, consume_from_where)
        self._remember(channel, behaviour)
        return changed

    def _remember(self, channel: Channel, behaviour: Behaviour | None) -> None:
        """Record the subscriptions and settings of a member of the group; None removes them."""
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
        """Return the subscriptions and settings of each member, keyed by client id. A number is appended to repeated ids."""
        found: dict[str, Behaviour] = {}
        for channel, behaviour in self._behaviours.items():
            if channel in self.members:
                name = self.members[channel].client_id
                found[f"{name} ({len(found) + 1})" if name in found else name] = behaviour
        return found

    def conflicts(self) -> tuple[Conflict, ...]:
        """Return the conflicts between the group's members. They are computed at the first call after a change."""
        if len(self._counts) < 2:
            return ()
        if self._conflicts[0] != self.revision:
            self._conflicts = (self.revision, find_conflicts(self.behaviours()))
        return self._conflicts[1]

"""One consumer group that is online: its members and what they subscribe to.

See docs/internals/algorithms.md, Groups and offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flintmq.core.broker.client_channel import ClientChannelInfo
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_name import retry_topic
from flintmq.core.kernel.ports.channel import Channel

CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
"""A push consumer."""
CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
"""A pull consumer."""
CLUSTERING = "CLUSTERING"
BROADCASTING = "BROADCASTING"

Expressions = frozenset[tuple[str, str, str]]
"""A member's subscriptions as (topic, expression type, expression)."""


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
        self._expressions: dict[Channel, Expressions] = {}
        self._counts: Counter[Expressions] = Counter()
        self.revision = 0
        """Grows when any member's subscriptions change, or a member leaves."""

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
        """Adds a member or notes that it lives; True when its connection is new."""
        known = self.members.get(member.channel)
        if known is not None and known.client_id == member.client_id:
            known.last_update_ms, known.last_update_s = member.last_update_ms, member.last_update_s
            return False
        self.members[member.channel] = member
        return known is None

    def remove_member(self, channel: Channel) -> bool:
        self._remember(channel, None)
        return self.members.pop(channel, None) is not None

    def update_subscriptions(self, channel: Channel, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Takes over what a member subscribes to; True when the group's set of topics changed.

        Per topic the newest version wins. A topic this member did not name is removed for the whole group: that is
        RocketMQ's rule and the trap of contradictory subscriptions (see :meth:`contradictions`).
        """
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
        self._remember(channel, frozenset(expressions))
        return changed

    def _remember(self, channel: Channel, expressions: Expressions | None) -> None:
        """Keeps what a member subscribes to, and how many subscribe so."""
        before = self._expressions.pop(channel, None)
        self.revision += before != expressions
        if before is not None:
            self._counts[before] -= 1
            if not self._counts[before]:
                del self._counts[before]
        if expressions is not None:
            self._expressions[channel] = expressions
            self._counts[expressions] += 1

    @property
    def is_contradictory(self) -> bool:
        """True when not all members subscribe to the same."""
        return len(self._counts) > 1

    def describe_contradictions(self, limit: int = 10) -> str:
        """Return the members whose subscriptions differ from those of most; empty when all agree."""
        if not self.is_contradictory:
            return ""
        usual, _ = self._counts.most_common(1)[0]
        odd = sorted(
            (self.members[channel].client_id, expressions)
            for channel, expressions in self._expressions.items()
            if expressions != usual and channel in self.members
        )
        named = [f"{client_id} to {_text(expressions)}" for client_id, expressions in odd[:limit]]
        more = [f"{len(odd) - limit} more"] if len(odd) > limit else []
        return f"most subscribe to {_text(usual)}, but {', '.join(named + more)}"

    def contradictions(self) -> list[str]:
        """Ids of members whose subscriptions differ from those most members have: such a group loses messages."""
        if not self.is_contradictory:
            return []
        usual, _ = self._counts.most_common(1)[0]
        return sorted(
            self.members[channel].client_id
            for channel, expressions in self._expressions.items()
            if expressions != usual and channel in self.members
        )


def _text(expressions: Expressions) -> str:
    return " and ".join(f"{topic} ({text})" for topic, _kind, text in sorted(expressions)) or "nothing"

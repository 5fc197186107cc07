"""Keeps the consumer groups that are online.

When members or the set of topics change, every member is notified (NOTIFY_CONSUMER_IDS_CHANGED), the new one too: the
clients then divide the queues again.

See docs/internals/algorithms.md, Groups and offsets; docs/internals/protocol.md, What an answer must have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from flintmq.core.broker.conflicts import CLUSTERING, CONSUME_PASSIVELY, describe_conflicts, odd_members
from flintmq.core.broker.consumer_group import ConsumerGroupInfo as ConsumerGroupInfo
from flintmq.core.broker.kept_registrations import KeptGroup
from flintmq.core.broker.producers import EXPIRY_S, ClientChannelInfo, check_membership
from flintmq.core.broker.subscription import SubscriptionData, kept_bytes
from flintmq.core.errors import RefusedError
from flintmq.core.event import Event
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports.channel import Channel
from flintmq.core.limits import (
    SUBSCRIPTIONS_MAX_BYTES,
    SUBSCRIPTIONS_PER_CONNECTION_MAX_BYTES,
    SUBSCRIPTIONS_PER_HEARTBEAT_MAX,
)
from flintmq.core.log_events import client_log
from flintmq.core.response_code import ResponseCode

_log = client_log(__name__)

NOTIFY_CONSUMER_IDS_CHANGED: Final = 40


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
        self._members = 0
        self._sizes: dict[Channel, dict[str, int]] = {}
        """Connection and group → about how many bytes its subscriptions take."""
        self._bytes_of: dict[Channel, int] = {}
        self._bytes = 0
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
        self._shared_ids: dict[tuple[str, str], tuple[str, ...]] = {}
        """Group and client id → the addresses of its connections, where there are several."""
        self.changes = 0
        """Grows with everything that a start has to know again: members, topics, expressions."""

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
        size_bytes = kept_bytes(subscriptions) + len(consume_type) + len(message_model) + len(consume_from_where)
        self._check_limits(group, channel, subscriptions, info, size_bytes)
        self._keep(channel, group, size_bytes)
        if info is None:
            info = self._groups[group] = ConsumerGroupInfo(group)
        member = ClientChannelInfo(
            channel, client_id, language, version, self._clock.now_ms(), self._clock.monotonic_s()
        )
        before = info.revision, info.subscriptions_replaced, len(info.members)
        is_new = info.add_member(member)
        self._members += len(info.members) - before[2]
        self._groups_of.setdefault(channel, set()).add(group)
        topics_changed = info.update_subscriptions(
            channel, subscriptions, consume_type, message_model, consume_from_where
        )
        self.changes += before != (info.revision, info.subscriptions_replaced, len(info.members))
        self._look_for_contradictions(info)
        self._look_for_shared_id(info, client_id)
        if (is_new or topics_changed) and notify:
            self._notify(info)
        self.registered.publish(group, subscriptions)
        return is_new or topics_changed

    def _keep(self, channel: Channel, group: str, size_bytes: int) -> None:
        """Take note of how much memory a member's subscriptions take; 0 forgets it."""
        of_channel = self._sizes.setdefault(channel, {})
        more = size_bytes - of_channel.get(group, 0)
        self._bytes += more
        self._bytes_of[channel] = self._bytes_of.get(channel, 0) + more
        if size_bytes:
            of_channel[group] = size_bytes
        else:
            of_channel.pop(group, None)
            if not of_channel:
                del self._sizes[channel], self._bytes_of[channel]

    def _check_limits(
        self,
        group: str,
        channel: Channel,
        subscriptions: Collection[SubscriptionData],
        info: ConsumerGroupInfo | None,
        size_bytes: int,
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
            check_membership("consumer", group, len(members), len(self._groups_of.get(channel, ())), self._members)
        more = size_bytes - self._sizes.get(channel, {}).get(group, 0)
        if more <= 0:
            return
        for of_whom, taken, most in (
            ("this connection subscribes", self._bytes_of.get(channel, 0), SUBSCRIPTIONS_PER_CONNECTION_MAX_BYTES),
            ("all connections subscribe", self._bytes, SUBSCRIPTIONS_MAX_BYTES),
        ):
            if taken + more > most:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"{of_whom} to too much for the subscriptions of consumer group {group}",
                    reason="subscription.too_large",
                    measured=f"{taken + more} bytes",
                )

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
                "subscription.contradiction",
                "members of consumer group %(group)s contradict each other, so it may miss messages: "
                "%(contradictions)s",
                group=group,
                contradictions=describe_conflicts(info.conflicts()),
            )
        else:
            del self._told[group]
            _log.info("subscription.agreed", "the members of consumer group %(group)s agree again", group=group)

    def unregister(self, group: str, channel: Channel, client_id: str = "", *, notify: bool = True) -> bool:
        """Take a member out of its group; return False when it was none.

        Args:
            client_id: of the member that says farewell, which may be one that is kept.
        """
        info = self._groups.get(group)
        if info is None:
            return False
        member = info.members.get(channel)
        was_kept = client_id in info.kept
        info.kept.pop(client_id, None)
        if not info.remove_member(channel) and not was_kept:
            return False
        if member is not None:
            self._members -= 1
            self._keep(channel, group, 0)
        groups = self._groups_of.get(channel, set())
        groups.discard(group)
        if not groups:
            self._groups_of.pop(channel, None)
        self.changes += 1
        if not self._forget_if_empty(info):
            self._look_for_contradictions(info)
            if notify:
                self._notify(info)
        if member is not None:
            self._look_for_shared_id(info, member.client_id)
        return True

    def _forget_if_empty(self, info: ConsumerGroupInfo) -> bool:
        group = info.group_name
        if info.members or info.kept:
            return False
        del self._groups[group]
        self.unregistered.publish(group)
        self._revisions.pop(group, None)
        self._told.pop(group, None)
        return True

    # members from before a start

    def keep(self, kept: KeptGroup) -> None:
        """Count the members that a group had before the start, until they come back or :meth:`drop_kept`.

        They share the queues, and the group's pulls are served; but nothing is sent to them, because they have no connection.
        """
        info = self._groups.get(kept.group_name)
        if info is None:
            info = self._groups[kept.group_name] = ConsumerGroupInfo(kept.group_name)
        info.keep(kept)
        self.registered.publish(kept.group_name, kept.subscriptions)

    def drop_kept(self) -> dict[str, list[str]]:
        """Drop the members that did not come back, and tell the others of their groups; return their ids by group."""
        dropped = {}
        for info in self:
            if info.kept:
                dropped[info.group_name] = list(info.kept)
                info.kept.clear()
                self.changes += 1
                if not self._forget_if_empty(info):
                    self._notify(info)
        return dropped

    # client ids that several processes use

    def heard(self, group: str, channel: Channel) -> None:
        """Note that a member is alive, because it asked something; it still has to send heartbeats."""
        info = self._groups.get(group)
        member = info.members.get(channel) if info is not None else None
        if info is not None and member is not None:
            member.last_heard_s = self._clock.monotonic_s()
            self._look_for_shared_id(info, member.client_id)

    def shared_ids(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Return each client id that several members of a group use: the group, the id, the addresses of its connections."""
        return ((group, client_id, addresses) for (group, client_id), addresses in self._shared_ids.items())

    def _look_for_shared_id(self, info: ConsumerGroupInfo, client_id: str) -> None:
        """Log once that several connections use a client id at the same time."""
        key = info.group_name, client_id
        addresses = info.addresses_of(client_id)
        if not addresses:
            self._shared_ids.pop(key, None)
        elif addresses != self._shared_ids.get(key):
            self._shared_ids[key] = addresses
            _log.warning(
                "client.id_shared",
                "client id %(client_id)s is used by several members of consumer group %(group)s at the same time, so "
                "each message may be consumed several times: %(addresses)s; give each process an id of its own",
                client_id=client_id,
                group=info.group_name,
                addresses=", ".join(addresses),
            )

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

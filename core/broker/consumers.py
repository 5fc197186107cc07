"""Keeps the consumer groups that are online.

If the members or the topics of a group change, every member is notified (NOTIFY_CONSUMER_IDS_CHANGED), a new member included.
The clients then rebalance, which means that they divide the queues again.

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
    """Consumer groups and their members; RocketMQ's ConsumerManager. Used only on the event loop's thread.

    Args:
        clock: gives the time for the expiry of members.
        notify_ids_changed: whether members are notified of changes. If False, members see changes only at their next rebalance,
            which happens every 20 s.
    """

    def __init__(self, clock: Clock, *, notify_ids_changed: bool = True) -> None:
        self._clock = clock
        self.notify_ids_changed = notify_ids_changed
        """Whether members of a consumer group are notified when members or topics of the group change. The value may be set
        while the broker runs."""
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._groups_of: dict[Channel, set[str]] = {}
        self._members = 0
        self._sizes: dict[Channel, dict[str, int]] = {}
        """Approximate size of the registered subscriptions in bytes, keyed by connection and group."""
        self._bytes_of: dict[Channel, int] = {}
        self._bytes = 0
        self.registered: Event[[str, Collection[SubscriptionData]]] = Event()
        """Event published with a group and its subscriptions after each heartbeat of a member."""
        self.unregistered: Event[[str]] = Event()
        """Event published with a group's name after its last member left."""
        self._revisions: dict[str, int] = {}
        """Revision of each group (:attr:`ConsumerGroupInfo.revision`) at which the members of the group were last compared,
        keyed by group."""
        self._told: dict[str, tuple[str, ...]] = {}
        """Client ids of the members whose subscriptions or settings deviate from the majority of their group, keyed by group.
        The ids are those for which the broker last logged a warning. The warning is logged again only if the ids change."""
        self.contradictions_seen = 0
        """Number of times that the log reported members of a group whose subscriptions or settings conflict."""
        self._shared_ids: dict[tuple[str, str], tuple[str, ...]] = {}
        """Addresses of connections that use the same client id, keyed by group and client id."""
        self.changes = 0
        """Number of changes to the members, topics and expressions of consumer groups. When this number has grown, the
        registrations of consumers are written to ``flint/consumers`` again."""

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[ConsumerGroupInfo]:
        return iter(list(self._groups.values()))

    def find(self, group: str) -> ConsumerGroupInfo | None:
        """Return the consumer group with a name if it is online; None if it has no members."""
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
        """Register a member and its subscriptions, as a heartbeat contains them; return whether members or topics changed.

        Args:
            group: name of the group.
            channel: the member's connection.
            client_id: the member's client id.
            subscriptions: all subscriptions of the member. Topics to which the member does not subscribe are removed from the
                group.
            language: the client's language.
            version: the client's version, as the ordinal of RocketMQ's ``MQVersion``.
            consume_type: ``CONSUME_PASSIVELY`` for push consumers, ``CONSUME_ACTIVELY`` for pull consumers.
            message_model: ``CLUSTERING`` or ``BROADCASTING``.
            consume_from_where: the position at which a group without offsets begins to consume.
            notify: the group's setting ``notifyConsumerIdsChangedEnable``.

        Raises:
            RefusedError: SYSTEM_ERROR; the group is full, or the subscriptions are too many or too large.
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
        """Record the size of a member's subscriptions, in bytes; 0 removes the record."""
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
            ("this connection", self._bytes_of.get(channel, 0), SUBSCRIPTIONS_PER_CONNECTION_MAX_BYTES),
            ("all connections", self._bytes, SUBSCRIPTIONS_MAX_BYTES),
        ):
            if taken + more > most:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"the subscriptions of consumer group {group} are too large: the subscriptions of {of_whom} may have at "
                    f"most {most} bytes in total",
                    reason="subscription.too_large",
                    measured=f"{taken + more} bytes",
                )

    def _look_for_contradictions(self, info: ConsumerGroupInfo) -> None:
        """Compare the subscriptions and settings of a group's members. Log a warning if some members differ from the majority
        and they are not the members that the last warning named. If all members agree again, log this at level info.

        The members are not compared if the group's revision is unchanged: this counter grows with each change of a member's
        subscriptions or settings. The call is cheap in this case.
        """
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
        """Remove a member from its group; return whether it was a member.

        Args:
            group: name of the group.
            channel: the connection from which the request came.
            client_id: id of the member. A member with this id that was kept from before the broker's start is removed, too.
            notify: whether the remaining members are notified.
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

    # --- members that were registered before the broker's start ---

    def keep(self, kept: KeptGroup) -> None:
        """Register the members that a group had before the broker's start. These kept members stay in the group until
        :meth:`drop_kept`.

        When a client asks the broker for the members of the group, the answer contains the kept members. Kept members have no
        connection, so they are not notified of changes. A kept member that reconnects becomes an ordinary member.
        """
        info = self._groups.get(kept.group_name)
        if info is None:
            info = self._groups[kept.group_name] = ConsumerGroupInfo(kept.group_name)
        info.keep(kept)
        self.registered.publish(kept.group_name, kept.subscriptions)

    def drop_kept(self) -> dict[str, list[str]]:
        """Remove the kept members from all groups, and notify the remaining members of the groups. A kept member is a client
        that was in the group before the broker's start and has not reconnected since.

        Return the removed client ids, keyed by group.
        """
        dropped = {}
        for info in self:
            if info.kept:
                dropped[info.group_name] = list(info.kept)
                info.kept.clear()
                self.changes += 1
                if not self._forget_if_empty(info):
                    self._notify(info)
        return dropped

    # --- client ids that several processes use ---

    def heard(self, group: str, channel: Channel) -> None:
        """Record that a group's member has just sent a request. The member must still send heartbeats to stay registered."""
        info = self._groups.get(group)
        member = info.members.get(channel) if info is not None else None
        if info is not None and member is not None:
            member.last_heard_s = self._clock.monotonic_s()
            self._look_for_shared_id(info, member.client_id)

    def shared_ids(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Return group, client id and connection addresses for each client id that several members of a group share."""
        return ((group, client_id, addresses) for (group, client_id), addresses in self._shared_ids.items())

    def _look_for_shared_id(self, info: ConsumerGroupInfo, client_id: str) -> None:
        """Log a warning if several connections use a client id at the same time, once for each set of addresses."""
        key = info.group_name, client_id
        addresses = info.addresses_of(client_id)
        if not addresses:
            self._shared_ids.pop(key, None)
        elif addresses != self._shared_ids.get(key):
            self._shared_ids[key] = addresses
            _log.warning(
                "client.id_shared",
                "client id %(client_id)s is used by several members of consumer group %(group)s at the same time, so "
                "each message may be consumed several times: %(addresses)s; give each process another client id",
                client_id=client_id,
                group=info.group_name,
                addresses=", ".join(addresses),
            )

    def close_channel(self, channel: Channel) -> list[str]:
        """Remove a closed connection from all groups and notify the remaining members; return the names of the connection's
        groups.
        """
        groups = list(self._groups_of.get(channel, ()))
        for group in groups:
            self.unregister(group, channel)
        return groups

    def remove_expired(self) -> list[Channel]:
        """Remove consumers that sent no heartbeat for 120 s; return their connections, which the caller shall close."""
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
        """Return the names of the groups that are online and subscribe to a topic."""
        return {info.group_name for info in self._groups.values() if topic in info.subscriptions}

    def contradictory(self) -> Iterator[ConsumerGroupInfo]:
        """Return the groups whose members contradict each other."""
        return (self._groups[group] for group in self._told)

    def runtime_info(self) -> dict[str, str]:
        """Return an entry for the answer to GET_BROKER_RUNTIME_INFO, with the groups whose members contradict each other and
        the ids of the deviating members; empty if there are none."""
        found = "; ".join(f"{group}: {', '.join(ids[:10])}" for group, ids in self._told.items())
        return {"contradictorySubscriptions": found} if found else {}

    def _notify(self, info: ConsumerGroupInfo) -> None:
        if self.notify_ids_changed:
            header = {"consumerGroup": info.group_name}
            for channel in info.channels:
                channel.send_oneway(NOTIFY_CONSUMER_IDS_CHANGED, header)

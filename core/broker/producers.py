"""Keeps connected clients and the producer groups (docs/internals/algorithms.md, Groups and offsets)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports.channel import Channel
from flintmq.core.limits import (
    CLIENTS_PER_GROUP_MAX,
    GROUP_MAX_BYTES,
    GROUPS_PER_CONNECTION_MAX,
    MEMBERSHIPS_MAX,
)
from flintmq.core.response_code import ResponseCode

EXPIRY_S = 120.0
"""Time without a heartbeat after which a client is removed."""


class ClientChannelInfo(msgspec.Struct, eq=False):
    """A client as member of one group, with its connection; RocketMQ's ClientChannelInfo. Compared by identity."""

    channel: Channel
    client_id: str
    language: str = "JAVA"
    """Name of the client's programming language, as in RocketMQ's ``LanguageCode``."""
    version: int = 0
    """Client's version, as the ordinal of RocketMQ's ``MQVersion``."""
    last_update_ms: int = 0
    """Time of the client's last heartbeat, in ms since 1970, which tools show."""
    last_update_s: float = 0.0
    """Monotonic time of the client's last heartbeat, in seconds, from which the expiry of the client is computed."""
    joined_s: float = 0.0
    """Monotonic time at which a consumer joined its group, in seconds."""
    last_heard_s: float = 0.0
    """Monotonic time of a consumer's last heartbeat or request for the group's client ids, in seconds."""


def check_membership(kind: str, group: str, members: int, groups: int, all_members: int) -> None:
    """Raise an error if a connection may not join a producer or consumer group.

    Args:
        kind: ``producer`` or ``consumer``.
        group: the group's name.
        members: number of members of the group.
        groups: number of groups of the kind that the connection is a member of.
        all_members: number of members of all groups of the kind.

    Raises:
        RefusedError: SYSTEM_ERROR; the group's name is too long, or a number has reached its limit.
    """
    if len(group.encode("utf-8", "surrogatepass")) > GROUP_MAX_BYTES:
        message = f"the name of {kind} group {group[:40]}... is longer than {GROUP_MAX_BYTES} bytes"
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR, message, reason="group.illegal", measured=f"{len(group)} characters"
        )
    if members >= CLIENTS_PER_GROUP_MAX:
        message = f"{kind} group {group} is full"
        raise RefusedError(ResponseCode.SYSTEM_ERROR, message, reason="group.full", measured=f"{members} members")
    if groups >= GROUPS_PER_CONNECTION_MAX:
        message = f"this connection is in too many {kind} groups to join {group}"
        raise RefusedError(ResponseCode.SYSTEM_ERROR, message, reason="connection.groups", measured=f"{groups} groups")
    if all_members >= MEMBERSHIPS_MAX:
        message = f"all {kind} groups together have too many members for another one in {group}"
        raise RefusedError(ResponseCode.SYSTEM_ERROR, message, reason="members.full", measured=f"{all_members} members")


class ProducerTable:
    """The connected producer groups and their members; RocketMQ's ProducerManager. Used only on the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[Channel, ClientChannelInfo]] = {}
        self._groups_of: dict[Channel, set[str]] = {}
        self._by_client_id: dict[str, ClientChannelInfo] = {}
        self._turn = 0
        self._members = 0

    def __len__(self) -> int:
        return len(self._groups)

    def register(self, group: str, channel: Channel, client_id: str, language: str = "JAVA", version: int = 0) -> bool:
        """Add a member to a producer group, or record its heartbeat; return whether its connection is new to the group.

        Raises:
            RefusedError: SYSTEM_ERROR; the group has too many members, its name is too long, or the connection belongs to too
            many groups.
        """
        members = self._groups.get(group, {})
        known = members.get(channel)
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic_s()
        if known is not None and known.client_id == client_id:
            known.last_update_ms, known.last_update_s = now_ms, now_s
            self._by_client_id[client_id] = known
            return False
        if known is None:
            check_membership("producer", group, len(members), len(self._groups_of.get(channel, ())), self._members)
            self._members += 1
        if known is not None:
            self._forget_client_id(known)
        member = ClientChannelInfo(channel, client_id, language, version, now_ms, now_s)
        self._groups.setdefault(group, members)[channel] = member
        self._groups_of.setdefault(channel, set()).add(group)
        self._by_client_id[client_id] = member
        return known is None

    def unregister(self, group: str, channel: Channel) -> bool:
        """Remove a member from a producer group; return whether it was a member."""
        member = self._groups.get(group, {}).pop(channel, None)
        if member is None:
            return False
        self._members -= 1
        self._forget_client_id(member)
        if not self._groups[group]:
            del self._groups[group]
        groups = self._groups_of[channel]
        groups.discard(group)
        if not groups:
            del self._groups_of[channel]
        return True

    def _forget_client_id(self, member: ClientChannelInfo) -> None:
        if self._by_client_id.get(member.client_id) is member:
            del self._by_client_id[member.client_id]

    def close_channel(self, channel: Channel) -> None:
        """Remove a closed connection from all producer groups."""
        for group in list(self._groups_of.get(channel, ())):
            self.unregister(group, channel)

    def remove_expired(self) -> list[Channel]:
        """Remove producers that sent no heartbeat for 120 s; return their connections, which the caller shall close."""
        oldest_s = self._clock.monotonic_s() - EXPIRY_S
        expired = {
            channel
            for members in self._groups.values()
            for channel, member in members.items()
            if member.last_update_s < oldest_s
        }
        for channel in expired:
            self.close_channel(channel)
        return list(expired)

    def members(self, group: str) -> list[ClientChannelInfo]:
        """Return the members of a producer group; empty if no connected producer belongs to the group."""
        return list(self._groups.get(group, {}).values())

    def groups(self) -> Iterable[tuple[str, list[ClientChannelInfo]]]:
        """Return every producer group with its members."""
        return [(group, list(members.values())) for group, members in self._groups.items()]

    def find_channel(self, client_id: str) -> Channel | None:
        """Return the connection of a client, to which replies are sent; None if the client has no open connection."""
        member = self._by_client_id.get(client_id)
        return member.channel if member is not None and member.channel.is_open else None

    def next_channel(self, group: str) -> Channel | None:
        """Return an open connection of a producer group; None if no connection is open.

        Repeated calls return the group's open connections one after another. The broker sends each transaction check only to
        the returned connection, so that a single member of the group gets the check.
        """
        open_channels = [channel for channel in self._groups.get(group, ()) if channel.is_open]
        if not open_channels:
            return None
        self._turn += 1
        return open_channels[self._turn % len(open_channels)]

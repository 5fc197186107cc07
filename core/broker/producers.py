"""Clients that are connected: who they are, and the producers by group (docs/internals/algorithms.md, Groups and offsets)."""

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
"""A client that sent no heartbeat for so long is gone."""


class ClientChannelInfo(msgspec.Struct, eq=False):
    """One client of one group. Compared by identity."""

    channel: Channel
    client_id: str
    language: str = "JAVA"
    """A name of the protocol's language list."""
    version: int = 0
    """Ordinal of the client's version."""
    last_update_ms: int = 0
    """Wall-clock time of the last heartbeat, for tools."""
    last_update_s: float = 0.0
    """The same on the monotonic clock, which decides expiry."""
    joined_s: float = 0.0
    """When a consumer joined its group, on the monotonic clock."""
    last_heard_s: float = 0.0
    """When a consumer last sent a heartbeat, or asked who shares the queues."""


def check_membership(kind: str, group: str, members: int, groups: int, all_members: int) -> None:
    """Check whether a connection may join a group.

    Args:
        kind: ``producer`` or ``consumer``.
        group: the group's name.
        members: how many it has.
        groups: how many of the kind the connection is in.
        all_members: how many members all groups of the kind have.

    Raises:
        RefusedError: SYSTEM_ERROR.
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
    """Producer groups and their members. Loop thread."""

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
        """Add a member or note that it lives; True when it is new.

        Raises:
            RefusedError: SYSTEM_ERROR; the group is full, its name too long, or the connection in too many groups.
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
        """Remove a member; False when it was none."""
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
        """Remove a connection that closed from every group."""
        for group in list(self._groups_of.get(channel, ())):
            self.unregister(group, channel)

    def remove_expired(self) -> list[Channel]:
        """Remove members that sent no heartbeat for 120 s. Returns their connections, which the caller closes."""
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
        """Return the group's members; empty when there is none."""
        return list(self._groups.get(group, {}).values())

    def groups(self) -> Iterable[tuple[str, list[ClientChannelInfo]]]:
        """Return every group with its members."""
        return [(group, list(members.values())) for group, members in self._groups.items()]

    def find_channel(self, client_id: str) -> Channel | None:
        """Return the open connection of a client, for replies."""
        member = self._by_client_id.get(client_id)
        return member.channel if member is not None and member.channel.is_open else None

    def next_channel(self, group: str) -> Channel | None:
        """Return an open connection of the group, in turn: transaction checks go to one member, each time to
        another."""
        open_channels = [channel for channel in self._groups.get(group, ()) if channel.is_open]
        if not open_channels:
            return None
        self._turn += 1
        return open_channels[self._turn % len(open_channels)]

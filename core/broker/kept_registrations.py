"""Encodes the registrations of consumers for the next start of the broker: the file ``flint/consumers``.

Without the file, a broker would not know a consumer after a start until its next heartbeat, up to 30 s later. The broker would
refuse the consumer's pulls, and leave the consumer out when members ask for the group's client ids. The file has lines of JSON.
The first line has the number of groups, each further line is a :class:`KeptGroup`. The file contains names and subscriptions,
but no connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from flintmq.core.broker.conflicts import CLUSTERING, CONSUME_PASSIVELY
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import StoreFormatError
from flintmq.core.limits import (
    CLIENT_ID_MAX_BYTES,
    CLIENTS_PER_GROUP_MAX,
    GROUP_MAX_BYTES,
    KEPT_REGISTRATIONS_MAX_BYTES,
    QUEUE_LOCKS_MAX,
    SUBSCRIPTIONS_PER_HEARTBEAT_MAX,
)

KEPT_S: Final = 30.0
"""Seconds after a broker's start for which the members that were registered before the start count as members. Clients send a
heartbeat every 30 s (``heartbeatBrokerInterval``)."""

_VERSION: Final = 1


class KeptGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The members, subscriptions and queue locks of a consumer group, as one line of the file ``flint/consumers``."""

    group_name: str
    client_ids: Sequence[str] = ()
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: Sequence[SubscriptionData] = ()
    locks: dict[str, list[MessageQueue]] = msgspec.field(default_factory=dict)
    """Locked queues of the group, keyed by the id of the client that holds the locks."""


class _Head(msgspec.Struct, frozen=True):
    version: int
    groups: int


def encode_kept(groups: Iterable[KeptGroup], max_bytes: int = KEPT_REGISTRATIONS_MAX_BYTES) -> tuple[bytes, int]:
    """Return the content of the file ``flint/consumers``, and the number of groups that are left out of it. Can be called from
    any thread.

    Args:
        groups: the groups to save.
        max_bytes: limit of the file's size; groups beyond it are left out.
    """
    encoder = msgspec.json.Encoder()
    lines: list[bytes] = []
    room = max_bytes - len(encoder.encode(_Head(_VERSION, 2**31))) - 1
    left_out = 0
    for group in groups:
        try:
            line = encoder.encode(group)
        except UnicodeEncodeError:
            # A group is not saved if one of its names contains half of a surrogate pair, which UTF-8 cannot encode.
            # A group that was not saved is registered again by its members' next heartbeat after a restart of the broker.
            left_out += 1
            continue
        if len(line) + 1 > room:
            left_out += 1
            continue
        room -= len(line) + 1
        lines.append(line)
    head = encoder.encode(_Head(_VERSION, len(lines)))
    return b"".join(b"%b\n" % line for line in (head, *lines)), left_out


def decode_kept(raw: bytes) -> list[KeptGroup]:
    """Return the consumer groups in the content of a file ``flint/consumers``.

    Raises:
        StoreFormatError: the content is incomplete, damaged, of another version, or exceeds a limit for clients.
    """
    head, *lines = raw.removesuffix(b"\n").split(b"\n")
    try:
        found = msgspec.json.decode(head, type=_Head)
        groups = [msgspec.json.decode(line, type=KeptGroup) for line in lines]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreFormatError(f"the saved consumer groups cannot be decoded: {error}") from error
    if found.version != _VERSION:
        raise StoreFormatError(
            f"the saved consumer groups have version {found.version}; this FlintMQ reads version {_VERSION}"
        )
    if found.groups != len(groups):
        raise StoreFormatError(f"the file has {len(groups)} consumer groups, but its first line says {found.groups}")
    for group in groups:
        _check(group)
    if sum(len(queues) for group in groups for queues in group.locks.values()) > QUEUE_LOCKS_MAX:
        raise StoreFormatError(f"the saved consumer groups have more than {QUEUE_LOCKS_MAX} queue locks")
    return groups


def _check(group: KeptGroup) -> None:
    names = (*group.client_ids, *group.locks)
    if len(group.group_name.encode()) > GROUP_MAX_BYTES or any(
        len(name.encode()) > CLIENT_ID_MAX_BYTES for name in names
    ):
        raise StoreFormatError(
            f"consumer group {group.group_name[:GROUP_MAX_BYTES]}: its name or a client id is too long"
        )
    if len(group.client_ids) > CLIENTS_PER_GROUP_MAX or len(group.subscriptions) > SUBSCRIPTIONS_PER_HEARTBEAT_MAX:
        raise StoreFormatError(f"consumer group {group.group_name} has too many members or topics")

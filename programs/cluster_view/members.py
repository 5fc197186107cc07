"""Asks the members of a group for their queues and subscriptions; a RocketMQ broker forwards the request to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from flintmq.core.broker.conflicts import Behaviour, Conflict, find_conflicts
from flintmq.core.broker.subscription import TAG
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.errors import FlintError
from flintmq.programs.cluster_view.values import MemberSubscription
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.wire.bodies import ConsumerRunningInfo

AT_ONCE_MAX: Final = 16
"""Maximum number of a group's members that are asked at the same time."""
TIMEOUT_MS: Final = 3_000


@attrs.frozen
class Asked:
    """The answer of a group's member, or the reason why the member did not answer."""

    client_id: str
    info: ConsumerRunningInfo | None
    error: str


async def ask_members(admin: AdminClient, group: str, addresses: Mapping[str, str], members_max: int) -> list[Asked]:
    """Ask the members of a group for their queues and subscriptions, a few members at a time.

    Args:
        admin: the administration client.
        group: the members' group.
        addresses: ``host:port`` of each member's broker, keyed by client id.
        members_max: maximum number of members to ask, in the order of their ids. The other members get an error text.

    Returns:
        An answer for each member, in the order of their ids.
    """
    room = asyncio.Semaphore(AT_ONCE_MAX)

    async def ask(number: int, client_id: str) -> Asked:
        if number >= members_max:
            return Asked(client_id, None, f"not asked: only {members_max} members are")
        try:
            async with room:
                info = await admin.consumer_running_info(group, client_id, addresses[client_id], TIMEOUT_MS)
        except FlintError as error:
            return Asked(client_id, None, str(error))
        return Asked(client_id, info, "")

    return await asyncio.gather(*(ask(number, client_id) for number, client_id in enumerate(sorted(addresses))))


def conflicts_of(asked: Iterable[Asked]) -> tuple[Conflict, ...]:
    """Return the conflicts between the members of a group, such as different subscriptions. Members without an answer are
    ignored."""
    return find_conflicts({one.client_id: _behaviour(one.info) for one in asked if one.info is not None})


def subscriptions_of(info: ConsumerRunningInfo) -> tuple[MemberSubscription, ...]:
    """Return a member's subscriptions, sorted, without the group's retry topic, which clients add automatically."""
    return tuple(
        MemberSubscription(topic=one.topic, expression_type=one.expression_type or TAG, expression=one.sub_string)
        for one in sorted(info.subscription_set, key=lambda one: one.topic)
        if not one.topic.startswith(RETRY_PREFIX)
    )


def _behaviour(info: ConsumerRunningInfo) -> Behaviour:
    """Return how a member consumes, from the properties that RocketMQ's clients report."""
    told = info.properties
    return Behaviour(
        frozenset((one.topic, one.expression_type, one.expression) for one in subscriptions_of(info)),
        told.get("messageModel", ""),
        told.get("PROP_CONSUME_TYPE", ""),
        told.get("consumeFromWhere", ""),
    )

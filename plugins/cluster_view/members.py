"""Asks the members of a group what they hold and subscribe to; RocketMQ's broker passes the question on to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from flintmq.core.errors import FlintError
from flintmq.plugins.cluster_view import conflicts
from flintmq.plugins.cluster_view.values import Conflict
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.wire.bodies import ConsumerRunningInfo

AT_ONCE_MAX: Final = 16
"""Members that are asked at a time."""
TIMEOUT_MS: Final = 3_000


@attrs.frozen
class Asked:
    """What a member reported, or why nothing is known of it."""

    client_id: str
    info: ConsumerRunningInfo | None
    error: str


async def ask_members(admin: AdminClient, group: str, addresses: Mapping[str, str], members_max: int) -> list[Asked]:
    """Ask members for what they hold, some at a time.

    Args:
        admin: asks.
        group: of the members.
        addresses: client id → ``host:port`` of the broker that it is connected with.
        members_max: so many are asked, in the order of their ids; of further ones the answer says that they were not.

    Returns:
        One for each member, in the order of their ids.
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
    """Return how members contradict each other; one that does not report contradicts nobody."""
    told = {
        one.client_id: conflicts.subscriptions_of(one.info.subscription_set) for one in asked if one.info is not None
    }
    return conflicts.find_conflicts(told)

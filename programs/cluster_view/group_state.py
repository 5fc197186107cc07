"""The state of a group, from its brokers' answers: lag, members, and whether the group is online. The functions are pure.

Lists, details, charts, ``flintmq groups`` and ``flintmq status`` use this state. A broker computes a group's lag in its own
queues: ``flintmq/core/broker/group_lag.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from flintmq.core.broker.conflicts import BROADCASTING
from flintmq.programs.cluster_view.memory import BrokerMemory, Connected
from flintmq.programs.cluster_view.progress import GroupProgress
from flintmq.programs.cluster_view.values import State


@attrs.frozen
class GroupState:
    """The state of a group, from the answers of all its brokers that answer. An unknown figure is None."""

    state: State
    members: int | None
    lag: int | None
    retry_lag: int | None
    get_per_s: float | None
    progress: Sequence[GroupProgress]
    """The consumer group's progress at each broker; empty for a broadcasting group."""
    online: Connected | None
    """The consumer group's members at a broker to which members are connected; None if no broker has members of the group."""


def state_of(progress: Iterable[GroupProgress], connected: Iterable[Connected]) -> GroupState:
    """Return the state of a group.

    The lag of broadcasting members is unknown, because they keep their offsets themselves. Offsets that a broadcasting group
    once stored on a broker do not count.

    Args:
        progress: the group's progress at each answering broker.
        connected: the group's members at each broker that was asked.
    """
    asked = list(connected)
    client_ids = {client_id for one in asked for client_id in one.client_ids}
    online = next((one for one in asked if one.client_ids), None)
    is_broadcasting = online is not None and online.message_model == BROADCASTING
    told = [] if is_broadcasting else list(progress)
    return GroupState(
        state=_word(is_broadcasting, bool(client_ids), bool(asked)),
        members=len(client_ids) if asked else None,
        lag=sum(one.lag for one in told) if told else None,
        retry_lag=sum(one.retry_lag for one in told) if told else None,
        get_per_s=sum(one.per_s for one in told) if told else None,
        progress=told,
        online=online,
    )


def _word(is_broadcasting: bool, is_online: bool, is_asked: bool) -> State:
    if is_broadcasting:
        return "broadcasting"
    if is_online:
        return "online"
    return "offline" if is_asked else "unknown"


def remembered_state(group: str, brokers: Iterable[BrokerMemory]) -> GroupState:
    """Return the state of a group from the last answers of its brokers. A broker that does not answer now is left out."""
    answering = [broker for broker in brokers if broker.answers]
    return state_of(
        (one for broker in answering for one in broker.progress_of(group)),
        (broker.connected[group] for broker in answering if group in broker.connected),
    )

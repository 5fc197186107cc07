"""The state of a group: lag, members, and whether it is online, from what each of its brokers told. Pure.

Lists, details, charts, ``flintmq groups`` and ``flintmq status`` have it from here. How far a group is behind at one broker is
the broker's to say: ``flintmq/core/broker/group_lag.py``.
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
    """A group over the brokers that answered; None where a figure is not known."""

    state: State
    members: int | None
    lag: int | None
    retry_lag: int | None
    get_per_s: float | None
    progress: Sequence[GroupProgress]
    """At each broker; of a broadcasting group none."""
    online: Connected | None
    """What its members are, as a broker that has some tells."""


def state_of(progress: Iterable[GroupProgress], connected: Iterable[Connected]) -> GroupState:
    """Return the state of a group.

    Broadcasting members keep their offsets themselves: how far behind they are is not known, whatever offsets a broker has from
    before.

    Args:
        progress: how far it has come at each broker that answered.
        connected: who is connected with each broker that was asked.
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
    """Return the state of a group by what brokers told last; those that do not answer now do not count."""
    answering = [broker for broker in brokers if broker.answers]
    return state_of(
        (one for broker in answering for one in broker.progress_of(group)),
        (broker.connected[group] for broker in answering if group in broker.connected),
    )

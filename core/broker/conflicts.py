"""Finds members of a consumer group that contradict each other. Such a group misses messages. The functions are pure.

A broker keeps the subscriptions, the message model and the consume type of the last heartbeat for the whole group, but the
members divide the queues as if all agreed. See RocketMQ's ConsumerRunningInfo.analyzeSubscription.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import attrs

CONSUME_PASSIVELY: Final = "CONSUME_PASSIVELY"
"""Consume type of push consumers; pull consumers have ``CONSUME_ACTIVELY``."""
CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"

SUBSCRIPTION: Final = "subscription"
MESSAGE_MODEL: Final = "message model"
CONSUME_TYPE: Final = "consume type"
CONSUME_FROM_WHERE: Final = "consume from where"

Subscriptions = frozenset[tuple[str, str, str]]
"""Subscriptions of a group's member as (topic, expression type, expression). The group's retry topic is left out: clients
subscribe to the retry topic automatically, but not all clients at their start."""

_NOTHING: Final = ("", "")
"""Expression type and expression that stand for members that do not subscribe to a topic."""
_TOLD_MAX: Final = 3
"""Maximum number of conflicts that the description of a group's conflicts names."""
_NAMED_MAX: Final = 10
"""Maximum number of client ids in a list of the members that use the same value, such as the same tag expression. The
description of a conflict has one such list for each of the conflicting values."""
_VALUE_MAX_CHARS: Final = 60


@attrs.frozen
class Behaviour:
    """The subscriptions and settings in the heartbeat of a group's member.

    An empty field stands for an unknown value, which contradicts no other member.
    """

    subscriptions: Subscriptions
    message_model: str = ""
    consume_type: str = ""
    consume_from_where: str = ""


@attrs.frozen(kw_only=True)
class Variant:
    """A value in a conflict between a group's members, with the members that have this value."""

    value: str
    """One of the values that members of the group disagree about: an expression, a message model, a consume type or a start of
    consumption. Empty for members that do not subscribe to the topic of the conflict."""
    expression_type: str
    """Type of the expression in :attr:`value`, for example ``TAG`` or ``SQL92``; empty if :attr:`value` is not an
    expression."""
    client_ids: tuple[str, ...]
    """Sorted client ids of the members of the group whose heartbeats contain this expression or setting (:attr:`value`)."""

    @property
    def text(self) -> str:
        """Return a conflict's value as text, such as ``'red || blue'``, ``SQL92 'a > 1'``, ``nothing`` or ``BROADCASTING``."""
        value = self.value if len(self.value) <= _VALUE_MAX_CHARS else f"{self.value[:_VALUE_MAX_CHARS]}..."
        if not self.expression_type:
            return value or "nothing"
        return f"'{value}'" if self.expression_type == "TAG" else f"{self.expression_type[:_VALUE_MAX_CHARS]} '{value}'"


@attrs.frozen(kw_only=True)
class Conflict:
    """A contradiction between members of a consumer group."""

    about: str
    """Kind of the values that members of the group disagree about: :data:`SUBSCRIPTION`, :data:`MESSAGE_MODEL`,
    :data:`CONSUME_TYPE` or :data:`CONSUME_FROM_WHERE`."""
    topic: str
    """Topic for which members of the group have different subscriptions; empty if the conflict is not about a subscription."""
    variants: tuple[Variant, ...]
    """Two or more values that members of the group disagree about. The value that the largest number of members has comes
    first."""


def find_conflicts(members: Mapping[str, Behaviour]) -> tuple[Conflict, ...]:
    """Return the contradictions between members of a group: the message model first, the topics last.

    The start of consumption is compared only between push consumers in clustering groups. Other consumers do not use this
    setting.

    Args:
        members: behaviors of the members, keyed by client id. Leave out members whose behavior is unknown.
    """
    alike: dict[Behaviour, list[str]] = {}
    for client_id, behaviour in members.items():
        alike.setdefault(behaviour, []).append(client_id)
    if len(alike) < 2:
        return ()
    found = [_conflict(about, "", alike, of) for about, of in _OF_A_GROUP.items()]
    wanted = {one: {topic: (kind, text) for topic, kind, text in one.subscriptions} for one in alike}
    topics = sorted({topic for mine in wanted.values() for topic in mine})
    found += [
        _conflict(SUBSCRIPTION, topic, alike, lambda one, topic=topic: wanted[one].get(topic, _NOTHING))  # type: ignore[misc]
        for topic in topics
    ]
    return tuple(one for one in found if one is not None)


def _from_where(one: Behaviour) -> tuple[str, str]:
    shares = one.message_model in (CLUSTERING, "") and one.consume_type in (CONSUME_PASSIVELY, "")
    return "", one.consume_from_where if shares else ""


_OF_A_GROUP: Final[Mapping[str, Callable[[Behaviour], tuple[str, str]]]] = {
    MESSAGE_MODEL: lambda one: ("", one.message_model),
    CONSUME_TYPE: lambda one: ("", one.consume_type),
    CONSUME_FROM_WHERE: _from_where,
}


def _conflict(
    about: str,
    topic: str,
    alike: Mapping[Behaviour, Collection[str]],
    value_of: Callable[[Behaviour], tuple[str, str]],
) -> Conflict | None:
    """Return the conflict between a group's members in one kind of value; None if all members with a known value agree."""
    variants: dict[tuple[str, str], list[str]] = {}
    for behaviour, client_ids in alike.items():
        value = value_of(behaviour)
        if value != _NOTHING or about == SUBSCRIPTION:
            variants.setdefault(value, []).extend(client_ids)
    if len(variants) < 2:
        return None
    ordered = sorted(variants.items(), key=lambda entry: (-len(entry[1]), entry[0] == _NOTHING, entry[0]))
    return Conflict(
        about=about,
        topic=topic,
        variants=tuple(
            Variant(expression_type=kind, value=text, client_ids=tuple(sorted(client_ids)))
            for (kind, text), client_ids in ordered
        ),
    )


def odd_members(conflicts: Collection[Conflict]) -> tuple[str, ...]:
    """Return the client ids of the members of a consumer group whose subscriptions or settings differ from those of the
    majority. The ids are sorted. ``conflicts`` has an entry for each subscription or setting in which the members differ."""
    return tuple(sorted({client_id for one in conflicts for odd in one.variants[1:] for client_id in odd.client_ids}))


def describe_conflicts(conflicts: Collection[Conflict]) -> str:
    """Return a text of limited length that describes conflicts and names the deviating members; empty without conflicts."""
    told = list(conflicts)[:_TOLD_MAX]
    parts = []
    for conflict in told:
        usual, *odd = conflict.variants
        has_most = len(usual.client_ids) > len(odd[0].client_ids)
        first = f"{usual.text} of most, but " if has_most else f"{usual.text} of {_names(usual.client_ids)}, "
        others = ", ".join(f"{one.text} of {_names(one.client_ids)}" for one in odd)
        subject = f"subscription to {conflict.topic}" if conflict.topic else conflict.about
        parts.append(f"{subject}: {first}{others}")
    left_out = len(conflicts) - len(told)
    return "; ".join(parts) + (f"; and {left_out} more" if left_out else "")


def _names(client_ids: Collection[str]) -> str:
    named = ", ".join(list(client_ids)[:_NAMED_MAX])
    return f"{named} and {len(client_ids) - _NAMED_MAX} more" if len(client_ids) > _NAMED_MAX else named

"""Finds how members of a consumer group contradict each other: the group then misses messages. Pure, of what members say.

A broker keeps one subscription, one message model and one consume type for a group, those heard last; and its members divide
the queues as if all agreed. See RocketMQ's ConsumerRunningInfo.analyzeSubscription.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import attrs

CONSUME_PASSIVELY: Final = "CONSUME_PASSIVELY"
"""The consume type of a push consumer; a pull consumer's is ``CONSUME_ACTIVELY``."""
CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"

SUBSCRIPTION: Final = "subscription"
MESSAGE_MODEL: Final = "message model"
CONSUME_TYPE: Final = "consume type"
CONSUME_FROM_WHERE: Final = "consume from where"

Subscriptions = frozenset[tuple[str, str, str]]
"""A member's subscriptions as (topic, expression type, expression), without its group's retry topic: clients add that by
themselves, some of them only after their start."""

_NOTHING: Final = ("", "")
"""The variant of those that do not subscribe to a topic."""
_TOLD_MAX: Final = 3
"""Conflicts in a sentence."""
_NAMED_MAX: Final = 10
"""Clients named in a sentence, of each variant."""
_VALUE_MAX_CHARS: Final = 60


@attrs.frozen
class Behaviour:
    """How a member consumes, by what it says of itself; empty texts are not known, and contradict nobody."""

    subscriptions: Subscriptions
    message_model: str = ""
    consume_type: str = ""
    consume_from_where: str = ""


@attrs.frozen(kw_only=True)
class Variant:
    """One of the ways in which members of a group differ."""

    value: str
    """The expression, message model, or the like; empty for no subscription to the topic at all."""
    expression_type: str
    """``TAG``, ``SQL92`` …; empty for what is not an expression."""
    client_ids: tuple[str, ...]
    """Who does so, in order."""

    @property
    def text(self) -> str:
        """Return the value for people: ``'red || blue'``, ``SQL92 'a > 1'``, ``nothing``, ``BROADCASTING``."""
        value = self.value if len(self.value) <= _VALUE_MAX_CHARS else f"{self.value[:_VALUE_MAX_CHARS]}..."
        if not self.expression_type:
            return value or "nothing"
        return f"'{value}'" if self.expression_type == "TAG" else f"{self.expression_type[:_VALUE_MAX_CHARS]} '{value}'"


@attrs.frozen(kw_only=True)
class Conflict:
    """Something in which members of one group differ."""

    about: str
    """:data:`SUBSCRIPTION`, :data:`MESSAGE_MODEL`, :data:`CONSUME_TYPE` or :data:`CONSUME_FROM_WHERE`."""
    topic: str
    """Of a subscription; else empty."""
    variants: tuple[Variant, ...]
    """At least two; the one of most members first."""


def find_conflicts(members: Mapping[str, Behaviour]) -> tuple[Conflict, ...]:
    """Return in what members of a group differ, whatever their order: first the message model, last the topics.

    Where consuming begins counts only of push consumers that share their messages: others keep their offsets themselves.

    Args:
        members: how each one consumes, by client id; without those of which nothing is known.
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
    """Return how members differ in one thing; None where all of which it is known agree."""
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
    """Return in order the ids of the members that differ from most in anything."""
    return tuple(sorted({client_id for one in conflicts for odd in one.variants[1:] for client_id in odd.client_ids}))


def describe_conflicts(conflicts: Collection[Conflict]) -> str:
    """Return conflicts in a bounded sentence that names the members which differ from most; empty where there are none."""
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

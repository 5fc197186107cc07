"""Finds members of a group that subscribe differently: the group then misses messages. Pure.

Brokers keep one subscription for a group and topic, the one heard last; so what a member does not want is never sent to those
that want it. See RocketMQ's ConsumerRunningInfo.analyzeSubscription.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.plugins.cluster_view.values import Conflict, MemberSubscription, Variant

_NAMED_MAX = 10
"""Clients named in a sentence."""


def subscriptions_of(reported: Collection[SubscriptionData]) -> tuple[MemberSubscription, ...]:
    """Return a member's subscriptions in order; without its retry topic, which clients add by themselves."""
    return tuple(
        MemberSubscription(topic=one.topic, expression_type=one.expression_type or "TAG", expression=one.sub_string)
        for one in sorted(reported, key=lambda one: one.topic)
        if not one.topic.startswith(RETRY_PREFIX)
    )


def find_conflicts(members: Mapping[str, Collection[MemberSubscription]]) -> tuple[Conflict, ...]:
    """Return the topics to which members subscribe differently.

    Args:
        members: the subscriptions by client id, of those that reported.
    """
    topics = sorted({one.topic for wanted in members.values() for one in wanted})
    found = []
    for topic in topics:
        variants: dict[tuple[str, str], list[str]] = {}
        for client_id, wanted in sorted(members.items()):
            mine = next(((one.expression_type, one.expression) for one in wanted if one.topic == topic), ("", ""))
            variants.setdefault(mine, []).append(client_id)
        if len(variants) > 1:
            ordered = sorted(variants.items(), key=lambda entry: (-len(entry[1]), entry[0]))
            found.append(
                Conflict(
                    topic=topic,
                    variants=tuple(
                        Variant(expression_type=kind, expression=text, client_ids=tuple(client_ids))
                        for (kind, text), client_ids in ordered
                    ),
                )
            )
    return tuple(found)


def describe_conflicts(conflicts: Collection[Conflict]) -> str:
    """Return conflicts in a sentence that names the members which differ from most; empty where there are none."""
    parts = []
    for conflict in conflicts:
        usual, *odd = conflict.variants
        others = ", ".join(f"{_names(one.client_ids)} to {_text(one)}" for one in odd)
        parts.append(f"{conflict.topic}: most subscribe to {_text(usual)}, but {others}")
    return "; ".join(parts)


def _text(variant: Variant) -> str:
    return variant.expression or "nothing"


def _names(client_ids: Collection[str]) -> str:
    named = ", ".join(list(client_ids)[:_NAMED_MAX])
    return f"{named} and {len(client_ids) - _NAMED_MAX} more" if len(client_ids) > _NAMED_MAX else named

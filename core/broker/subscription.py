"""The subscription of a group to a topic: expression, tags and version.

See docs/internals/protocol.md, Filter expressions; docs/internals/algorithms.md, Groups and offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from flintmq.core.errors import RefusedError
from flintmq.core.io.typed_json import Int, Long
from flintmq.core.record.java_hash import tags_hash
from flintmq.core.response_code import ResponseCode

TAG: Final = "TAG"
SQL92: Final = "SQL92"
SUB_ALL: Final = "*"


class SubscriptionData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The subscription of a consumer to one topic (``SubscriptionData``), with the fields that requests have."""

    class_filter_mode: bool = False
    """Whether the client uses a filter class of RocketMQ 3; clients of RocketMQ 4.9 never do."""
    code_set: frozenset[Int] = frozenset()
    """Java hash codes of the subscription's tags, which are compared with the tags codes in consume queues."""
    expression_type: str = TAG
    """Type of the filter expression: ``TAG``, ``SQL92``, or a type that a plugin registered."""
    sub_string: str = SUB_ALL
    """Filter expression as the client wrote it; ``*`` accepts every message."""
    sub_version: Long = 0
    """Time at which the client made the subscription, in ms since 1970. The newest subscription of a group applies."""
    tags_set: frozenset[str] = frozenset()
    """Tags in the subscription's TAG expression; empty if the expression accepts every message."""
    topic: str = ""

    @property
    def is_tag_type(self) -> bool:
        """Return whether the subscription's expression is a list of tags."""
        return self.expression_type in ("", TAG)


_SUBSCRIPTION_BYTES: Final = 400
_TAG_BYTES: Final = 120


def kept_bytes(subscriptions: Iterable[SubscriptionData]) -> int:
    """Return the approximate memory in bytes that a member's subscriptions occupy while it is connected."""
    total = 0
    for one in subscriptions:
        total += _SUBSCRIPTION_BYTES + len(one.topic) + len(one.sub_string) + len(one.expression_type)
        if one.tags_set or one.code_set:
            total += _TAG_BYTES * (len(one.tags_set) + len(one.code_set)) + sum(map(len, one.tags_set))
    return total


def build_subscription(
    topic: str, expression: str | None, expression_type: str | None = None, sub_version: int = 0
) -> SubscriptionData:
    """Return a subscription made from an expression, for pulls that contain their own expression.

    Args:
        topic: the topic.
        expression: for TAG ``*``, blank or ``A || B``; for other types any text that is not blank, which is not parsed here.
        expression_type: the expression's type; None or blank for TAG.
        sub_version: the version of the subscription, in ms since 1970.

    Raises:
        RefusedError: SUBSCRIPTION_PARSE_FAILED; the expression is blank, or has no tag between its bars.
    """
    text = expression or ""
    kind = expression_type or TAG
    if kind != TAG:
        if not text.strip():
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                "parse the consumer's subscription failed: an expression is needed",
                reason="subscription.blank",
            )
        return SubscriptionData(topic=topic, sub_string=text, expression_type=kind, sub_version=sub_version)
    if text.strip() in ("", SUB_ALL):
        return SubscriptionData(topic=topic, sub_string=SUB_ALL, sub_version=sub_version)
    tags = frozenset(tag.strip() for tag in text.split("||") if tag.strip())
    if not tags:
        raise RefusedError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed: the expression has separators (||), but no tag",
            reason="subscription.empty",
        )
    codes = frozenset(tags_hash(tag) for tag in tags)
    return SubscriptionData(
        topic=topic, sub_string=text, expression_type=TAG, tags_set=tags, code_set=codes, sub_version=sub_version
    )

"""The subscription of a group to a topic: expression, tags and version.

See docs/internals/protocol.md, Filter expressions; docs/internals/algorithms.md, Groups and offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from flintmq.core.errors import RefusedError
from flintmq.core.record.java_hash import tags_hash
from flintmq.core.response_code import ResponseCode

TAG: Final = "TAG"
SQL92: Final = "SQL92"
SUB_ALL: Final = "*"


@attrs.frozen
class SubscriptionData:
    """A subscription to one topic."""

    topic: str
    sub_string: str = SUB_ALL
    """The expression as the client wrote it; ``*`` for everything."""
    expression_type: str = TAG
    """``TAG``, ``SQL92``, or what a plugin registered."""
    tags_set: frozenset[str] = frozenset()
    """The tags of a TAG expression; empty for everything."""
    code_set: frozenset[int] = frozenset()
    """Java hashes of the tags, which is what consume queues hold."""
    sub_version: int = 0
    """When the client made the subscription, in ms: the newest of a group's wins."""
    class_filter_mode: bool = False
    """Filter classes of 3.x; never set by a 4.9 client."""

    @property
    def is_tag_type(self) -> bool:
        return self.expression_type in ("", TAG)

    def to_wire(self) -> dict[str, Any]:
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": sorted(self.code_set),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": sorted(self.tags_set),
            "topic": self.topic,
        }

    @classmethod
    def from_wire(cls, value: Mapping[str, Any]) -> SubscriptionData:
        """Reads a heartbeat's form; a missing member has its default."""
        return cls(
            topic=str(value.get("topic") or ""),
            sub_string=str(value.get("subString") or ""),
            expression_type=str(value.get("expressionType") or TAG),
            tags_set=frozenset(str(tag) for tag in value.get("tagsSet") or ()),
            code_set=frozenset(int(code) for code in value.get("codeSet") or ()),
            sub_version=int(value.get("subVersion") or 0),
            class_filter_mode=value.get("classFilterMode") in (True, "true"),
        )


def build_subscription(
    topic: str, expression: str | None, expression_type: str | None = None, sub_version: int = 0
) -> SubscriptionData:
    """Makes a subscription of an expression: what a pull that carries its own does.

    Args:
        expression: for TAG ``*``, blank or ``A || B``; for other types anything that is not blank (not parsed here).
        expression_type: None and blank are TAG.

    Raises:
        RefusedError: SUBSCRIPTION_PARSE_FAILED.
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
        return SubscriptionData(topic, text, kind, sub_version=sub_version)
    if text.strip() in ("", SUB_ALL):
        return SubscriptionData(topic, SUB_ALL, sub_version=sub_version)
    tags = frozenset(tag.strip() for tag in text.split("||") if tag.strip())
    if not tags:
        raise RefusedError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed: no tag between the bars",
            reason="subscription.empty",
        )
    codes = frozenset(tags_hash(tag) for tag in tags)
    return SubscriptionData(topic, text, TAG, tags, codes, sub_version)

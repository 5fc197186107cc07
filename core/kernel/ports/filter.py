"""The port of message filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable


class MessageFilter(Protocol):
    """Decides per queue entry and per record what a subscription sees (docs/internals/algorithms.md, Filters). Loop thread."""

    def matches_tags_code(self, tags_code: int) -> bool:
        """By consume queue entry alone; may say yes too often, never no wrongly."""
        ...

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """By the record's properties; asked only when ``needs_properties``."""
        ...

    @property
    def needs_properties(self) -> bool: ...


@runtime_checkable
class BitMapFilter(MessageFilter, Protocol):
    """A filter that can tell from a bit map, computed when the message was stored, that it does not match."""

    def matches_bit_map(self, bit_map: bytes, store_timestamp_ms: int) -> bool:
        """May say yes too often, never no wrongly; asked instead of ``matches_tags_code``."""
        ...


@runtime_checkable
class SupportsFilterBacking(Protocol):
    """A service that remembers the filters of groups, and what was noted of messages when they were stored. Loop thread."""

    def backed(
        self, topic: str, group: str, expression_type: str, made: MessageFilter, expression: str
    ) -> MessageFilter:
        """Return the filter of a subscription, with the bit maps of its group to look at first where they are of this filter.

        Args:
            topic: the topic of the subscription.
            group: the consumer group.
            expression_type: the type of the expression.
            made: the filter as its factory made it.
            expression: the expression.
        """
        ...


MessageFilterFactory = Callable[[str, frozenset[int]], MessageFilter]
"""Makes a filter of an expression and its set of tag codes; raises ``RefusedError`` when the expression does not parse."""

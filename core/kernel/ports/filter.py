"""The interfaces of message filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable


class MessageFilter(Protocol):
    """A message filter, which decides whether a subscription gets a message (docs/internals/algorithms.md, Filters). Loop
    thread.
    """

    def matches_tags_code(self, tags_code: int) -> bool:
        """Return False only if no message with the given tags code matches the filter; True if one may match."""
        ...

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message with the given properties matches the filter.

        Called only if ``needs_properties`` is true.
        """
        ...

    @property
    def needs_properties(self) -> bool:
        """Whether the filter must also see the message's properties, so that ``matches_properties`` must be called too."""
        ...


@runtime_checkable
class BitMapFilter(MessageFilter, Protocol):
    """A filter that excludes messages by a bit map that was computed when the message was stored."""

    def matches_bit_map(self, bit_map: bytes, store_timestamp_ms: int) -> bool:
        """Return False only if no message with the given bit map matches the filter; True if one may match.

        If a message has a bit map, this method is called instead of ``matches_tags_code``.
        """
        ...


@runtime_checkable
class SupportsFilterBacking(Protocol):
    """A service that keeps the filters of groups, and the bit maps computed for stored messages. Used only on the event loop's
    thread."""

    def backed(
        self, topic: str, group: str, expression_type: str, made: MessageFilter, expression: str
    ) -> MessageFilter:
        """Return the filter for a subscription. If the bit maps of stored messages were computed with the same expression, the
        returned filter checks a message's bit map before it calls ``made``.

        Args:
            topic: the topic of the subscription.
            group: the consumer group.
            expression_type: the type of the expression.
            made: the filter as its factory made it.
            expression: the expression.
        """
        ...


MessageFilterFactory = Callable[[str, frozenset[int]], MessageFilter]
"""Function that makes a filter from an expression and the expression's set of tags codes. The function raises ``RefusedError``
if the expression does not parse."""

"""Filters messages by the tags code of their consume queue entries (docs/internals/algorithms.md, Filters)."""

from __future__ import annotations

from collections.abc import Mapping

from flintmq.core.broker.subscription import build_subscription


class TagFilter:
    """Lets entries pass whose tags code is one of a set; an empty set lets everything pass.

    Two tags of the same hash cannot be distinguished here: the client looks at the tag itself. Read-only, any thread.
    """

    __slots__ = ("_codes", "_everything")

    needs_properties = False

    def __init__(self, codes: frozenset[int]) -> None:
        self._codes = codes
        self._everything = not codes

    def matches_tags_code(self, tags_code: int) -> bool:
        return self._everything or tags_code in self._codes

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        return True


def tag_filter(expression: str, codes: frozenset[int]) -> TagFilter:
    """Make a filter of codes, or of an expression when there are none (see ``MessageFilterFactory``).

    Raises:
        RefusedError: SUBSCRIPTION_PARSE_FAILED.
    """
    return TagFilter(codes or build_subscription("", expression).code_set)

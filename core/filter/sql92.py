"""The filter of SQL92 subscriptions (docs/internals/algorithms.md, Filters)."""

from __future__ import annotations

from collections.abc import Mapping

from flintmq.core.filter.operands import UnfitError
from flintmq.core.filter.parser import parse


class Sql92Filter:
    """Lets messages pass for whose properties an expression is true. Compiled once; read-only, any thread.

    Raises:
        RefusedError: SUBSCRIPTION_PARSE_FAILED, with the position and what was expected there.
    """

    __slots__ = ("_program", "expression")

    needs_properties = True

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._program = parse(expression).program

    def matches_tags_code(self, tags_code: int) -> bool:
        """A hash of the tag says nothing about properties: everything may match."""
        return True

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Whether the expression is true; neither unknown nor a property whose text cannot be compared is."""
        try:
            return self._program(properties) is True
        except UnfitError:
            return False


def sql92_filter(expression: str, codes: frozenset[int]) -> Sql92Filter:
    """The :data:`flintmq.core.kernel.ports.MessageFilterFactory` of SQL92; the tag codes are of no use to it."""
    return Sql92Filter(expression)

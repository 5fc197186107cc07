"""Filters messages by an SQL92 expression over their properties (docs/internals/algorithms.md, Filters)."""

from __future__ import annotations

from collections.abc import Mapping

from flintmq.plugins.filters.operands import UnfitError
from flintmq.plugins.filters.parser import parse


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
        """Return True, because a hash of the tag says nothing about properties."""
        return True

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Return whether the expression is true. It is not when it is unknown, or a property's text cannot be compared."""
        try:
            return self._program(properties) is True
        except UnfitError:
            return False


def sql92_filter(expression: str, codes: frozenset[int]) -> Sql92Filter:
    """Make a filter of an expression (a :data:`~flintmq.core.kernel.ports.MessageFilterFactory`); the codes are not used."""
    return Sql92Filter(expression)

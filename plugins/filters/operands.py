"""Defines the operands of filter expressions: typed values, some of them known before any message comes.

A property is text, a comparison is true, false or unknown (None), a number keeps the type Java gives it: text is read as an
int against an int literal, as a long against a larger one, as a double against a decimal one. All types are known when
the expression is parsed, so each comparison is made for its two types once.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from flintmq.plugins.filters.tokens import refusal

Program = Callable[[Mapping[str, str]], Any]
"""Returns a value for a message's properties; None is unknown. Raises :class:`UnfitError`."""

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 4_000
_DOUBLE: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEX_DOUBLE: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_JAVA_BLANKS: Final = "".join(map(chr, range(33)))


class UnfitError(Exception):
    """A property's text cannot be compared as asked. RocketMQ then drops the message, whatever else was in the
    expression: this is not the *unknown* of a property that is absent."""


class Kind(enum.Enum):
    """The Java types that occur in expressions."""

    INT = "an integer"
    LONG = "a long integer"
    DOUBLE = "a decimal number"
    STRING = "a text"
    BOOLEAN = "true or false"
    NULL = "NULL"
    """A value that is always unknown."""


NUMBERS: Final = frozenset({Kind.INT, Kind.LONG, Kind.DOUBLE})


@attrs.frozen
class Operand:
    """A part of an expression, ready to run."""

    kind: Kind
    program: Program
    position: int
    """The position at which it begins, for errors."""
    depth: int = 1
    """The depth to which programs call one another."""
    is_condition: bool = False
    """Whether the grammar takes it for a condition: comparisons, NOT, AND, OR, IN, TRUE, FALSE, NULL."""
    is_literal: bool = False
    value: Any = None
    """A literal's value."""
    name: str | None = None
    """A property's name."""


def literal(kind: Kind, value: Any, position: int) -> Operand:
    """A value written in the expression."""
    condition = kind in (Kind.BOOLEAN, Kind.NULL)
    return Operand(kind, lambda _properties: value, position, is_condition=condition, is_literal=True, value=value)


def integer_literal(digits: str, position: int) -> Operand:
    """Return an int where it fits, else a long. Raises RefusedError for a larger number."""
    text = digits.rstrip("lL")
    value = int(text) if len(text) <= 19 else _LONG_MAX + 1
    if value > _LONG_MAX:
        raise refusal(f"the integer is greater than {_LONG_MAX}", position)
    return literal(Kind.INT if value <= _INT_MAX else Kind.LONG, value, position)


def decimal_literal(digits: str, position: int) -> Operand:
    """Return a double. Raises RefusedError for one that is too large, and for 0.0, which RocketMQ takes for one too small."""
    value = float(digits)
    if value == 0 or value == math.inf:
        raise refusal("the number must lie between 4.9E-324 and 1.7976931348623157E308", position)
    return literal(Kind.DOUBLE, value, position)


def property_of(name: str, position: int) -> Operand:
    """Return a property's text, unknown where the message has none."""

    def program(properties: Mapping[str, str]) -> Any:
        return properties.get(name)

    return Operand(Kind.STRING, program, position, name=name)


# --- text as Java reads it ---


def parse_int(text: str) -> int:
    """Return what ``Integer.valueOf`` does. Raises UnfitError."""
    value = _integer(text)
    if not -_INT_MAX - 1 <= value <= _INT_MAX:
        raise UnfitError
    return value


def parse_long(text: str) -> int:
    """Return what ``Long.valueOf`` does. Raises UnfitError."""
    value = _integer(text)
    if not -_LONG_MAX - 1 <= value <= _LONG_MAX:
        raise UnfitError
    return value


def _integer(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    # Java takes every script's digits, Python's int() blanks and underscores besides.
    if not digits.isdecimal() or len(digits) > _DIGITS_MAX or (not text.isascii() and max(digits) > "\uffff"):
        raise UnfitError
    return int(text)


def parse_double(text: str) -> float:
    """Return what ``Double.valueOf`` does: it takes blanks around, NaN, Infinity, suffixes, hexadecimal. Raises UnfitError."""
    stripped = text.strip(_JAVA_BLANKS)
    if _DOUBLE.fullmatch(stripped):
        return float(stripped.rstrip("fFdD") if stripped[-1] in "fFdD" else stripped)
    if _HEX_DOUBLE.fullmatch(stripped):
        try:
            return float.fromhex(stripped.rstrip("fFdD") if stripped[-1] in "fFdD" else stripped)
        except OverflowError:
            return -math.inf if stripped.startswith("-") else math.inf
    raise UnfitError


def parse_boolean(text: str) -> bool:
    """Return what ``Boolean.valueOf`` does: True for "true" in any case, else False."""
    return text.lower() == "true"


def order_doubles(left: float, right: float) -> int:
    """Compare as ``Double.compareTo`` does: NaN is the greatest and equal to itself, -0.0 less than 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right) if left != right or left == 0 else 0


def _rank(value: float) -> int:
    """Return the order of what the operators of floating point do not: NaN above 0.0 above -0.0 (and any other number)."""
    if value != value:
        return 2
    return 1 if value != 0 or math.copysign(1, value) > 0 else 0

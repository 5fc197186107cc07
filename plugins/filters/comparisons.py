"""Compiles comparisons and logic of filter expressions, and refuses expressions that RocketMQ does not allow.

A property is text. A comparison is true, false or unknown (None). A number has the type that Java gives it. If text is compared
with a number, the text is converted to the number's type: int, long or double. All types are known when the expression is
parsed, so each comparison is compiled once for its two types.

The rules are RocketMQ's (docs/internals/protocol.md, Filter expressions), including some that are unexpected:

* ``absent = 5`` is unknown but ``5 = absent`` is false, so ``5 <> absent`` is true;
* ``<`` compares two texts as doubles; if one is not a number, the message is dropped;
* ``TRUE = property`` drops every message, ``property = TRUE`` does not.
"""

from __future__ import annotations

import enum
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from flintmq.core.errors import RefusedError
from flintmq.core.limits import FILTER_MAX_DEPTH
from flintmq.core.record import java_number
from flintmq.core.response_code import ResponseCode

Program = Callable[[Mapping[str, str]], Any]
"""Function that returns the value of a filter expression for the properties of a message. The value None means unknown. Raises
:class:`UnfitError`."""

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_DOUBLE: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEX_DOUBLE: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_JAVA_BLANKS: Final = "".join(map(chr, range(33)))


def refusal(message: str, position: int, *, reason: str = "filter.syntax", measured: str = "") -> RefusedError:
    """Return the error SUBSCRIPTION_PARSE_FAILED for an expression, with the position of the error in the expression."""
    return RefusedError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: at character {position + 1}: {message}",
        reason=reason,
        measured=measured,
    )


class UnfitError(Exception):
    """The text of a property cannot be converted for a comparison.

    RocketMQ then drops the message, whatever the rest of the expression is. An absent property is *unknown* instead."""


class Kind(enum.Enum):
    """The type of a part of a filter expression, in Java's terms."""

    INT = "an integer"
    LONG = "a long integer"
    DOUBLE = "a decimal number"
    STRING = "a text"
    BOOLEAN = "true or false"
    NULL = "NULL"
    """The literal NULL, whose value is always unknown."""


NUMBERS: Final = frozenset({Kind.INT, Kind.LONG, Kind.DOUBLE})


@attrs.frozen
class Operand:
    """A compiled part of a filter expression."""

    kind: Kind
    program: Program
    position: int
    """Index of this part's first character in the filter expression, for error texts."""
    depth: int = 1
    """Depth of the nested function calls that evaluate this part of the filter expression."""
    is_condition: bool = False
    """Whether the grammar of filter expressions counts this part as a condition: a comparison, NOT, AND, OR, IN, TRUE, FALSE or
    NULL."""
    is_literal: bool = False
    value: Any = None
    """Value of the literal; None if the operand is not a literal."""
    name: str | None = None
    """Name of the property; None if the operand is not a property."""


def literal(kind: Kind, value: Any, position: int) -> Operand:
    """Return the operand for a literal in a filter expression, such as ``5``, ``'red'`` or ``TRUE``.

    Args:
        kind: the literal's type.
        value: the literal's value, which does not depend on the message.
        position: the index of the literal's first character in the filter expression.
    """
    condition = kind in (Kind.BOOLEAN, Kind.NULL)
    return Operand(kind, lambda _properties: value, position, is_condition=condition, is_literal=True, value=value)


def integer_literal(digits: str, position: int) -> Operand:
    """Return an int literal if the number fits, else a long literal. Raises RefusedError for a larger number."""
    text = digits.rstrip("lL")
    value = int(text) if len(text) <= 19 else _LONG_MAX + 1
    if value > _LONG_MAX:
        raise refusal(f"the integer is greater than {_LONG_MAX}", position)
    return literal(Kind.INT if value <= _INT_MAX else Kind.LONG, value, position)


def decimal_literal(digits: str, position: int) -> Operand:
    """Return a double literal. Raises RefusedError if the number is too large, or 0.0, which RocketMQ refuses as too small."""
    value = float(digits)
    if value == 0 or value == math.inf:
        raise refusal("the number must lie between 4.9E-324 and 1.7976931348623157E308", position)
    return literal(Kind.DOUBLE, value, position)


def property_of(name: str, position: int) -> Operand:
    """Return an operand with a property's text, unknown if the message lacks the property."""

    def program(properties: Mapping[str, str]) -> Any:
        return properties.get(name)

    return Operand(Kind.STRING, program, position, name=name)


# --- conversion of texts to numbers, as in Java ---


def _integer(text: str, parse: Callable[[str], int]) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise UnfitError from error


def parse_int(text: str) -> int:
    """Parse an int like Java's ``Integer.valueOf``. Raises UnfitError."""
    return _integer(text, java_number.parse_int)


def parse_long(text: str) -> int:
    """Parse a long like Java's ``Long.valueOf``. Raises UnfitError."""
    return _integer(text, java_number.parse_long)


def parse_double(text: str) -> float:
    """Parse a double like Java's ``Double.valueOf``. Raises UnfitError.

    Surrounding blanks, NaN, Infinity, suffixes and hexadecimal numbers are accepted.
    """
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
    """Parse a boolean like Java's ``Boolean.valueOf``: True for "true" in upper or lower case, else False."""
    return text.lower() == "true"


def order_doubles(left: float, right: float) -> int:
    """Compare two doubles like Java's ``Double.compareTo``: NaN is the greatest and equal to itself, and -0.0 is less than
    0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right) if left != right or left == 0 else 0


def _rank(value: float) -> int:
    """Return a rank for values that ``<`` does not order: 2 for NaN, 0 for -0.0, 1 for any other number."""
    if value != value:
        return 2
    return 1 if value != 0 or math.copysign(1, value) > 0 else 0


# --- operators ---

Convert = Callable[[Any], Any]
Test = Callable[[Any, Any], bool]

_PARSERS: Final[Mapping[Kind, Convert]] = {Kind.INT: parse_int, Kind.LONG: parse_long, Kind.DOUBLE: parse_double}
_ORDER: Final[Mapping[str, Test]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
ORDER_SYMBOLS: Final = tuple(_ORDER)


def _made(program: Program, parts: Sequence[Operand]) -> Operand:
    depth = 1 + max(part.depth for part in parts)
    position = parts[0].position
    if depth > FILTER_MAX_DEPTH:
        raise refusal(
            f"the expression nests deeper than {FILTER_MAX_DEPTH}", position, reason="filter.depth", measured=str(depth)
        )
    return Operand(Kind.BOOLEAN, program, position, depth, is_condition=True)


def condition(part: Operand) -> Operand:
    """Compile a part of an expression as a condition. If the part is only a property's name, the condition is false, or unknown
    if the message lacks the property.

    Raises:
        RefusedError: the part is a number or a text.
    """
    if part.is_condition:
        return part
    if part.name is None:
        raise refusal(f"expected a condition, found {part.kind.value}", part.position)
    name = part.name
    return _made(lambda properties: False if name in properties else None, [part])


def negative(part: Operand, position: int) -> Operand:
    """Compile the unary minus. Its value is the negative of a number, and unknown if the operand is not a number."""
    depth = part.depth + 1
    if depth > FILTER_MAX_DEPTH:
        raise refusal(f"the expression nests deeper than {FILTER_MAX_DEPTH}", position, reason="filter.depth")
    program = part.program
    if part.kind not in NUMBERS:
        return Operand(Kind.NULL, lambda properties: _nothing(program(properties)), position, depth)
    return Operand(part.kind, lambda properties: -program(properties), position, depth)


def _nothing(_value: object) -> None:
    """Ignore an operand's value and return None, which means *unknown* in a filter expression.

    A minus before an operand that is not a number is always unknown. Nevertheless, the operand is evaluated, because the
    evaluation may raise UnfitError, which drops the message.
    """


def negation(part: Operand, position: int) -> Operand:
    """Compile the operator NOT. The negation of unknown is unknown."""
    program = condition(part).program

    def run(properties: Mapping[str, str]) -> Any:
        value = program(properties)
        return None if value is None else not value

    return _made(run, [part])


def junction(parts: Sequence[Operand], *, decisive: bool) -> Operand:
    """Compile OR (``decisive`` is True) or AND (False) of several parts.

    Evaluation ends at the first part whose value equals ``decisive``.
    """
    if len(parts) == 1:
        return parts[0]
    programs = tuple(condition(part).program for part in parts)

    def run(properties: Mapping[str, str]) -> Any:
        result: bool | None = not decisive
        for program in programs:
            value = program(properties)
            if value is None:
                result = None
            elif value is decisive:
                return decisive
        return result

    return _made(run, parts)


def is_null(part: Operand) -> Operand:
    """Compile the operator IS NULL, which is true if a value is unknown."""
    program = part.program
    return _made(lambda properties: program(properties) is None, [part])


def membership(part: Operand, texts: Sequence[str], *, wanted: bool) -> Operand:
    """Compile the operators IN and NOT IN for a property and a list of texts."""
    if part.name is None:
        raise refusal(f"expected a property before IN, found {part.kind.value}", part.position)
    name = part.name
    members = frozenset(texts)

    def run(properties: Mapping[str, str]) -> Any:
        value = properties.get(name)
        return None if value is None else (value in members) is wanted

    return _made(run, [part])


# --- equal ---


def equal(left: Operand, right: Operand) -> Operand:
    """Compile ``=``. Raises RefusedError for NULL, and for TRUE or FALSE against a literal of another type."""
    for part in (left, right):
        if part.is_literal and part.kind is Kind.NULL:
            raise refusal("NULL cannot be compared; use IS NULL", part.position)
    if left.is_literal and right.is_literal and left.kind is Kind.BOOLEAN is not right.kind:
        raise refusal(f"{left.kind.value} cannot be compared with {right.kind.value}", left.position)
    first, second = left.program, right.program
    same = _equality(left.kind, right.kind)

    def run(properties: Mapping[str, str]) -> Any:
        one, other = first(properties), second(properties)
        if one is None:
            return True if other is None else None
        return False if other is None else same(one, other)

    return _made(run, [left, right])


def _equality(left: Kind, right: Kind) -> Test:
    if left is right:
        return (lambda one, other: order_doubles(one, other) == 0) if left is Kind.DOUBLE else operator.eq
    if left is Kind.STRING:
        if right is Kind.BOOLEAN:
            return lambda one, other: parse_boolean(one) is other
        if right in NUMBERS:
            return _ordered(left, right, operator.eq)
    elif left in NUMBERS and (right is Kind.STRING or right in NUMBERS):
        return _ordered(left, right, operator.eq)
    elif left is Kind.BOOLEAN and right is Kind.STRING:
        return _unfit
    return lambda _one, _other: False


def _unfit(_one: Any, _other: Any) -> bool:
    raise UnfitError


# --- the comparisons >, >=, < and <= ---


def ordered(symbol: str, left: Operand, right: Operand) -> Operand:
    """Compile ``>``, ``>=``, ``<``, ``<=``. Raises RefusedError for a text, a condition, TRUE, FALSE or NULL as an operand."""
    for part in (left, right):
        if part.is_condition or (part.is_literal and part.kind not in NUMBERS):
            raise refusal(f"{part.kind.value} cannot be compared by '{symbol}'", part.position)
    first, second = left.program, right.program
    if Kind.NULL in (left.kind, right.kind):
        test: Test = _never
    else:
        test = _ordered(left.kind, right.kind, _ORDER[symbol])
    if left.name is not None and right.is_literal:
        return _made(_property_against(left.name, right.value, test), [left, right])

    def run(properties: Mapping[str, str]) -> Any:
        one = first(properties)
        if one is None:
            return None
        other = second(properties)
        return None if other is None else test(one, other)

    return _made(run, [left, right])


def _never(_one: Any, _other: Any) -> bool:
    """Raise UnfitError, because two values cannot be compared. A comparison with NULL does not call this function, because NULL
    is always unknown."""
    raise UnfitError


def _property_against(name: str, value: Any, test: Test) -> Program:
    def run(properties: Mapping[str, str]) -> Any:
        text = properties.get(name)
        return None if text is None else test(text, value)

    return run


def _ordered(left: Kind, right: Kind, compare: Test) -> Test:
    """Return a function that compares two values. The function converts a text to the type of the other value, or two texts to
    doubles."""
    if left is Kind.STRING and right is Kind.STRING:
        return lambda one, other: compare(order_doubles(parse_double(one), parse_double(other)), 0)
    if Kind.DOUBLE in (left, right):
        one_of, other_of = _to_double(left), _to_double(right)
        return lambda one, other: compare(order_doubles(one_of(one), other_of(other)), 0)
    if left is Kind.STRING:
        parse = _PARSERS[right]
        return lambda one, other: compare(parse(one), other)
    if right is Kind.STRING:
        parse = _PARSERS[left]
        return lambda one, other: compare(one, parse(other))
    return compare


def _to_double(kind: Kind) -> Convert:
    return parse_double if kind is Kind.STRING else float


def between(value: Operand, low: Operand, high: Operand) -> Operand:
    """Compile BETWEEN. Raises RefusedError if the first literal is greater than the second, or ``>=`` is not allowed for the
    operands."""
    if low.is_literal and high.is_literal:
        for part in (low, high):
            if part.kind not in NUMBERS:
                raise refusal(f"BETWEEN needs numbers, found {part.kind.value}", part.position)
        if _ordered(high.kind, low.kind, operator.lt)(high.value, low.value):
            raise refusal(
                f"BETWEEN {low.value} AND {high.value}: the first value must not be greater than the second",
                low.position,
            )
    return junction([ordered(">=", value, low), ordered("<=", value, high)], decisive=False)


def not_between(value: Operand, low: Operand, high: Operand) -> Operand:
    """Compile NOT BETWEEN. Like in RocketMQ, the first literal may be greater than the second."""
    return junction([ordered("<", value, low), ordered(">", value, high)], decisive=True)

"""Compiles the comparisons and the logic of filter expressions, and refuses those that RocketMQ does not allow.

The rules are RocketMQ's (docs/internals/protocol.md, Filter expressions), the odd ones included:

* ``absent = 5`` is unknown but ``5 = absent`` is false, so ``5 <> absent`` is true;
* two texts are compared by ``<`` as doubles; a text that is none makes the message unfit;
* ``TRUE = property`` is never fit, ``property = TRUE`` is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from flintmq.core.limits import FILTER_MAX_DEPTH
from flintmq.plugins.filters.operands import (
    NUMBERS,
    Kind,
    Operand,
    Program,
    UnfitError,
    order_doubles,
    parse_boolean,
    parse_double,
    parse_int,
    parse_long,
)
from flintmq.plugins.filters.tokens import refusal

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
    """Compile a part where true or false is needed. A property by itself is false, and unknown where it is absent.

    Raises:
        RefusedError: a number or a text.
    """
    if part.is_condition:
        return part
    if part.name is None:
        raise refusal(f"expected a condition, found {part.kind.value}", part.position)
    name = part.name
    return _made(lambda properties: False if name in properties else None, [part])


def negative(part: Operand, position: int) -> Operand:
    """Compile minus: the negative of a number, and unknown for any other value."""
    depth = part.depth + 1
    if depth > FILTER_MAX_DEPTH:
        raise refusal(f"the expression nests deeper than {FILTER_MAX_DEPTH}", position, reason="filter.depth")
    program = part.program
    if part.kind not in NUMBERS:
        return Operand(Kind.NULL, lambda properties: _nothing(program(properties)), position, depth)
    return Operand(part.kind, lambda properties: -program(properties), position, depth)


def _nothing(_value: object) -> None:
    """Evaluate a part only because it may make the message unfit."""


def negation(part: Operand, position: int) -> Operand:
    """Compile NOT: unknown stays unknown."""
    program = condition(part).program

    def run(properties: Mapping[str, str]) -> Any:
        value = program(properties)
        return None if value is None else not value

    return _made(run, [part])


def conjunction(parts: Sequence[Operand]) -> Operand:
    """Compile AND of two or more parts: false as soon as one part is."""
    programs = tuple(condition(part).program for part in parts)

    def run(properties: Mapping[str, str]) -> Any:
        result: bool | None = True
        for program in programs:
            value = program(properties)
            if value is None:
                result = None
            elif not value:
                return False
        return result

    return _made(run, parts)


def disjunction(parts: Sequence[Operand]) -> Operand:
    """Compile OR of two or more parts: true as soon as one part is."""
    programs = tuple(condition(part).program for part in parts)

    def run(properties: Mapping[str, str]) -> Any:
        result: bool | None = False
        for program in programs:
            value = program(properties)
            if value is None:
                result = None
            elif value:
                return True
        return result

    return _made(run, parts)


def is_null(part: Operand) -> Operand:
    """Compile IS NULL: whether a value is unknown."""
    program = part.program
    return _made(lambda properties: program(properties) is None, [part])


def membership(part: Operand, texts: Sequence[str], *, wanted: bool) -> Operand:
    """Compile IN and NOT IN for a property and texts."""
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


# --- greater, less ---


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
    """Return None: one side is always unknown, so that nothing is compared."""
    raise UnfitError


def _property_against(name: str, value: Any, test: Test) -> Program:
    def run(properties: Mapping[str, str]) -> Any:
        text = properties.get(name)
        return None if text is None else test(text, value)

    return run


def _ordered(left: Kind, right: Kind, compare: Test) -> Test:
    """Compare two values of these types, text converted as the other side asks."""
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
    """Compile BETWEEN. Raises RefusedError where the first literal is greater, and where ``>=`` is not allowed."""
    if low.is_literal and high.is_literal:
        for part in (low, high):
            if part.kind not in NUMBERS:
                raise refusal(f"BETWEEN needs numbers, found {part.kind.value}", part.position)
        if _ordered(high.kind, low.kind, operator.lt)(high.value, low.value):
            raise refusal(f"BETWEEN {low.value} AND {high.value}: the first must not be greater", low.position)
    return conjunction([ordered(">=", value, low), ordered("<=", value, high)])


def not_between(value: Operand, low: Operand, high: Operand) -> Operand:
    """Compile NOT BETWEEN; RocketMQ does not check the order of its literals here."""
    return disjunction([ordered("<", value, low), ordered(">", value, high)])

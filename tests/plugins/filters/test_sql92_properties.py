"""Expressions nobody thought of: against an evaluator that is as plain as can be, and against garbage."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from flintmq.core.errors import RefusedError
from flintmq.plugins.filters.comparisons import UnfitError
from flintmq.plugins.filters.sql92 import Sql92Filter, parse

NAMES = ("a", "b", "$c_1")
VALUES = ("5", "-5", "5.0", "x", "it's", "true", "NaN", "2147483648", "", " 5")
Tree = tuple[Any, ...]

numbers = st.sampled_from(["1", "5", "-5", "5.0", ".5", "1e2", "2147483648"]).map(lambda text: ("number", text))
properties = st.sampled_from(NAMES).map(lambda name: ("property", name))
texts = st.sampled_from(VALUES).map(lambda text: ("text", text))
quantities = numbers | properties
leaves = st.one_of(
    st.tuples(st.sampled_from([">", ">=", "<", "<="]), quantities, quantities),
    st.tuples(st.sampled_from(["=", "<>"]), properties, quantities | texts | st.just(("true",))),
    st.tuples(st.just("in"), properties, st.lists(st.sampled_from(VALUES), min_size=1, max_size=6), st.booleans()),
    st.tuples(st.just("is null"), properties, st.booleans()),
    st.tuples(st.just("outside"), properties, numbers, numbers),
    properties,
    st.sampled_from([("true",), ("false",), ("null",)]),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.tuples(st.sampled_from(["and", "or", "=", "<>"]), inner, inner) | st.tuples(st.just("not"), inner),
    max_leaves=12,
)


def written(tree: Tree) -> str:
    match tree:
        case ("number", text):
            return str(text)
        case ("property", name):
            return str(name)
        case ("text", text):
            return "'" + str(text).replace("'", "''") + "'"
        case ("in", one, members, wanted):
            listed = ", ".join(written(("text", member)) for member in members)
            return f"{written(one)} {'IN' if wanted else 'NOT IN'} ({listed})"
        case ("is null", one, wanted):
            return f"{written(one)} IS {'NULL' if wanted else 'NOT NULL'}"
        case ("outside", one, low, high):
            return f"{written(one)} NOT BETWEEN {written(low)} AND {written(high)}"
        case ("not", one):
            return f"NOT ({written(one)})"
        case (word,):
            return str(word).upper()
        case (symbol, one, other):
            return f"({written(one)}) {str(symbol).upper()} ({written(other)})"
    raise AssertionError(tree)


def as_number(text: str, like: Any) -> Any:
    """A text read as the number it is compared with, as Java's valueOf does for the texts of this test."""
    if isinstance(like, float):
        if text.strip() in ("", "x", "it's", "true"):
            raise UnfitError
        return float(text)
    digits = text.removeprefix("-")
    if not digits.isdigit() or not -(2**31) <= int(text) < (2**31 if like < 2**31 else 2**63):
        raise UnfitError
    return int(text)


def compared(symbol: str, one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        if symbol == "=":
            return one == other
        one, other = as_number(one, 1.0), as_number(other, 1.0)
    elif isinstance(one, bool) or isinstance(other, bool):
        if isinstance(one, str):
            return (one == "true") is other
        if isinstance(other, str):
            raise UnfitError
        return bool(one is other)
    elif isinstance(one, str):
        one = as_number(one, other)
    elif isinstance(other, str):
        other = as_number(other, one)
    if one != one or other != other:  # NaN is above everything and equal to itself
        one, other = int(one != one), int(other != other)
    order = int(one > other) - int(one < other)
    return {"=": order == 0, ">": order > 0, ">=": order >= 0, "<": order < 0, "<=": order <= 0}[symbol]


def naive(tree: Tree, message: Mapping[str, str]) -> Any:
    match tree:
        case ("number", text):
            return float(text) if "." in text or "e" in text else int(text)
        case ("property", name):
            return message.get(name)
        case ("text", text):
            return text
        case ("true",):
            return True
        case ("false",):
            return False
        case ("null",):
            return None
        case ("in", one, members, wanted):
            value = naive(one, message)
            return None if value is None else (value in members) == wanted
        case ("is null", one, wanted):
            return (naive(one, message) is None) == wanted
        case ("outside", one, low, high):
            return naive(("or", ("<", one, low), (">", one, high)), message)
        case ("not", one):
            value = truth(one, message)
            return None if value is None else not value
        case (("and" | "or") as word, one, other):
            decides = word == "or"
            first = truth(one, message)
            if first is decides:
                return decides
            second = truth(other, message)
            if second is decides:
                return decides
            return None if first is None or second is None else not decides
        case ("<>", one, other):
            value = naive(("=", one, other), message)
            return None if value is None else not value
        case (symbol, one, other):
            left = naive(one, message)
            if left is None and symbol != "=":
                return None
            right = naive(other, message)
            if left is None or right is None:
                return (True if right is None else None) if left is None else (False if symbol == "=" else None)
            return compared(symbol, left, right)
    raise AssertionError(tree)


def truth(tree: Tree, message: Mapping[str, str]) -> Any:
    """A property by itself is false, and unknown where it is absent."""
    value = naive(tree, message)
    return False if tree[0] == "property" and value is not None else value


def has_null_operand(tree: Any) -> bool:
    """``= NULL`` is refused, so such trees are not asked."""
    if isinstance(tree, tuple):
        if tree[0] in ("=", "<>") and (("null",) in tree[1:]):
            return True
        return any(has_null_operand(part) for part in tree)
    return False


@given(conditions, st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES)))
def test_compiled_expressions_give_the_results_of_a_reference_evaluator(tree: Tree, message: dict[str, str]) -> None:
    """Typed closures are fast and easily wrong; the plain evaluator is slow and easily read."""
    if has_null_operand(tree):
        return
    try:
        expected = truth(tree, message)
    except UnfitError:
        expected = "unfit"
    try:
        found = parse(written(tree)).program(message)
    except UnfitError:
        found = "unfit"
    assert found is expected or found == expected, written(tree)


_AT_ONCE_S = 0.05
WORDS = "a 5 5. .5 'x' ' ( ) , = <> < >= - + -- /* */ ? NOT AND OR BETWEEN IN IS NULL TRUE 1e999 ü"
garbage = st.lists(
    st.sampled_from([*WORDS.split(), "9" * 400, "\ud800", "\0", "\n", " "]),
    max_size=400,
).map(" ".join)


@given(garbage | st.text(max_size=300), st.dictionaries(st.sampled_from(NAMES), st.text(max_size=20)))
@example("(" * 16_000, {})
@example("NOT " * 4_000, {})
@example("-" * 16_000, {})
@example("/*" * 8_000, {})
@example("/**" * 5_000, {})
@example("'" * 16_000, {})
@example("a IN (" + "''," * 5_000, {})
@example("9" * 16_000 + " = a", {})
@example("." + "9" * 16_000 + " = a", {"a": "9" * 30_000})
@example("1 = a OR 1.0 = a", {"a": "9" * 30_000})
def test_random_texts_are_evaluated_as_expressions_or_refused_within_a_short_time(
    expression: str, message: dict[str, str]
) -> None:
    """Any client may send any text: only RefusedError may come of it, and soon."""
    if _refusal_s(expression, message) >= _AT_ONCE_S:
        assert _refusal_s(expression, message) < _AT_ONCE_S  # the first time all tests' garbage may have been collected


def _refusal_s(expression: str, message: dict[str, str]) -> float:
    """What it costs to refuse an expression, or to use it."""
    started_s = time.process_time()
    remark = ""
    try:
        Sql92Filter(expression).matches_properties(message)
    except RefusedError as error:
        remark = error.remark
    assert len(remark) < 400
    return time.process_time() - started_s

"""What the real broker 4.9.7 made of filter expressions: recorded, so that no rule drifts from RocketMQ's."""

from __future__ import annotations

import pytest

from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import MessageFilter
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.filters.comparisons import UnfitError
from flintmq.plugins.filters.sql92 import Sql92Filter, parse, sql92_filter

PROPERTIES = {
    "a": "5",
    "b": "x",
    "d": "5.0",
    "n": "-3",
    "t": "true",
    "s": " 5 ",
    "w": "\u0665",
    "i": "NaN",
    "z": "-0.0",
}

RECORDED = [
    ("a = 5", "true"),
    ("d = 5", "unfit"),
    ("d=5.0", "true"),
    ("a > 5 LIKE 'x'", "false"),
    ("a LIKE 'x'", "false"),
    ("a = 5)", "true"),
    ("- 5 < a", "true"),
    ("-5 = n", "false"),
    ("n = -3", "true"),
    ("n < -3", "false"),
    ("-a = 5", "unknown"),
    ("+5 = a", "true"),
    ("NOT a", "true"),
    ("NOT a > 1", "refused"),
    ("NOT b IN ('x')", "refused"),
    ("5", "refused"),
    ("'x'", "refused"),
    ("NULL", "unknown"),
    ("TRUE", "true"),
    ("TRUE = TRUE", "true"),
    ("t = TRUE", "true"),
    ("TRUE = t", "unfit"),
    ("TRUE = 5", "refused"),
    ("5 = TRUE", "false"),
    ("'x' = TRUE", "false"),
    ("a > d", "false"),
    ("a < d", "false"),
    ("b > a", "unfit"),
    ("a = d", "false"),
    ("5L = a", "true"),
    ("05 = a", "refused"),
    ("a = 05", "false"),
    ("5. = d", "true"),
    (".5 < a", "true"),
    ("1e400 < a", "refused"),
    ("99999999999999999999 > a", "refused"),
    ("9223372036854775807 > a", "true"),
    ("-9223372036854775808 < a", "refused"),
    ("1e-400 < a", "refused"),
    ("0.0 < a", "refused"),
    ("a NOT BETWEEN 6 AND 1", "true"),
    ("a BETWEEN 'a' AND 'b'", "refused"),
    ("a BETWEEN 1 AND d", "true"),
    ("a BETWEEN 5.0 AND 1", "refused"),
    ("a BETWEEN -1 AND -5", "false"),
    ("a BETWEEN 1.5 AND 6", "true"),
    ("a BETWEEN TRUE AND FALSE", "refused"),
    ("a IS NULL IS NULL", "false"),
    ("a = 5 = TRUE", "true"),
    ("(a = 5) = TRUE", "true"),
    ("(a=5) IS NULL", "false"),
    ("(zz=5) IS NULL", "true"),
    ("5 IS NULL", "false"),
    ("NULL IS NULL", "true"),
    ("a AND b", "false"),
    ("a = 5 AND b", "false"),
    ("b IN ()", "refused"),
    ("5 IN ('x')", "refused"),
    ("a.b = 5", "refused"),
    ("a = 5 -- comment", "true"),
    ("a = 5 -- comment\nAND b = 'y'", "false"),
    ("--5 = a", "true"),
    ("a = 5 /* open", "refused"),
    ("a=5/**/", "true"),
    ("a=5/***/ AND b = 'y'", "false"),
    ("'it''s' = 'it''s'", "true"),
    ("'x", "refused"),
    ("a = 5 ;", "refused"),
    ("# a", "refused"),
    ("a = 5 NOT", "refused"),
    ("a = 5 IS", "refused"),
    ("", "refused"),
    ("  ", "refused"),
    ("a <> NULL", "refused"),
    ("NULL = a", "refused"),
    ("a IS NOT NULL", "true"),
    ("a NOT IN ('5')", "false"),
    ("a in ('x',)", "refused"),
    ('b = "x"', "refused"),
    ("(a=5", "refused"),
    ("((a=5))", "true"),
    ("a == 5", "refused"),
    ("a != 5", "refused"),
    ("a >= '5'", "refused"),
    ("a > b", "unfit"),
    ("b < b", "unfit"),
    ("not not t = TRUE", "false"),
    ("1 = 1.0", "true"),
    ("1 = '1'", "true"),
    ("a > 1 > 2", "refused"),
    ("ü = 5", "refused"),
    ("a\xa0= 5", "refused"),
    ("a\x0b= 5", "refused"),
    ("a\x0c= 5", "true"),
    ("$x IS NULL", "true"),
    ("5a", "refused"),
    ("a=1E", "false"),
    ("TRUE IN ('x')", "refused"),
    ("t", "false"),
    ("t AND TRUE", "false"),
    ("zz OR TRUE", "true"),
    ("NULL OR TRUE", "true"),
    ("NULL AND FALSE", "false"),
    ("zz=5 AND a = 4", "false"),
    ("zz > 1 AND a = 5", "unknown"),
    ("b > 1 OR a = 5", "unfit"),
    ("a = 5 OR b > 1", "true"),
    ("b = 1", "unfit"),
    ("b <> 1", "unfit"),
    ("zz <> 'x'", "unknown"),
    ("5 = zz", "false"),
    ("5 <> zz", "true"),
    ("zz = yy", "true"),
    ("d > 4", "unfit"),
    ("a > -n", "unknown"),
    ("- - 5 = a", "true"),
    ("-'x' = a", "unknown"),
    ("-TRUE = a", "unknown"),
    ("+TRUE", "true"),
    ("+b = 'x'", "true"),
    ("(b) IN ('x')", "true"),
    ("a = 5\x00", "refused"),
    ("s = 5", "unfit"),
    ("s = 5.0", "true"),
    ("w = 5", "true"),
    ("w = 5.0", "unfit"),
    ("i > 1e300", "true"),
    ("i = i", "true"),
    ("z < 1.5", "true"),
    ("z < d", "true"),
    ("2147483648 > a", "true"),
    ("a CONTAINS 'x'", "false"),
]


def outcome(expression: str) -> str:
    try:
        program = parse(expression).program
    except RefusedError as error:
        return "refused" if error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED else f"code {error.code}"
    try:
        return {True: "true", False: "false", None: "unknown"}[program(PROPERTIES)]
    except UnfitError:
        return "unfit"


@pytest.mark.parametrize(("expression", "expected"), RECORDED)
def test_sql92_expressions_evaluate_to_the_results_that_were_recorded_with_rocketmq(
    expression: str, expected: str
) -> None:
    """A consumer that moves here from RocketMQ must see the same messages."""
    assert outcome(expression) == expected


def test_a_filter_accepts_a_message_only_if_its_expression_is_true() -> None:
    """Neither unknown nor an unfit property may deliver a message nobody asked for."""
    for expression, expected in RECORDED:
        if expected != "refused":
            assert Sql92Filter(expression).matches_properties(PROPERTIES) is (expected == "true")


def test_an_sql92_filter_decides_by_message_properties_and_ignores_tag_codes() -> None:
    """What the broker asks of a filter: SQL says nothing by the consume queue alone."""
    made: MessageFilter = sql92_filter("a > 5", frozenset({1}))
    assert made.needs_properties
    assert made.matches_tags_code(2)
    assert made.matches_properties({"a": "6"})
    assert not made.matches_properties({})


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("a >", "at character 4: expected a value, a name, NOT or '(', found the end"),
        ("a IN (1)", "at character 7: expected a text, found '1'"),
        ("a BETWEEN 5 AND 1", "at character 11: BETWEEN 5 AND 1: the first value must not be greater than the second"),
        ("a = NULL", "at character 5: NULL cannot be compared; use IS NULL"),
        ("a = 'x", "at character 5: the text has no closing quote"),
        ("a /* x", "at character 3: the comment has no end"),
        ("(a = 1", "at character 7: expected ')', found the end"),
        ("a = 1 ?", "at character 7: '?' begins nothing that is known here"),
        ("5", "at character 1: expected a condition, found an integer"),
    ],
)
def test_the_error_text_of_a_syntax_error_states_its_position_and_the_expected_token(
    expression: str, text: str
) -> None:
    """Whoever wrote the expression sees this remark and nothing else."""
    with pytest.raises(RefusedError) as caught:
        parse(expression)
    assert str(caught.value) == f"parse the consumer's subscription failed: {text}"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("(" * 5_000 + "a" + ")" * 5_000, "filter.depth"),
        ("NOT " * 60 + "a", "filter.depth"),
        ("- " * 60 + "5 = a", "filter.depth"),
        ("a" + " IS NULL" * 60, "filter.depth"),
        ("a = 1" + " = TRUE" * 60, "filter.depth"),
        (" OR ".join(["a = 1"] * 400), "filter.terms"),
        ("a IN (" + ",".join(["'0123456789'"] * 2_000) + ")", "filter.length"),
        ("a = 'ü" + "ü" * 9_000 + "'", "filter.length"),
    ],
)
def test_expressions_that_are_nested_too_deeply_or_have_too_many_terms_or_are_too_long_are_refused(
    expression: str, reason: str
) -> None:
    """One client's expression must not end the broker by recursion, nor hold its loop."""
    with pytest.raises(RefusedError) as caught:
        parse(expression)
    assert caught.value.reason == reason


def test_large_realistic_expressions_are_accepted() -> None:
    """A limit that real subscriptions meet is a fault of ours."""
    assert parse("(" * 40 + "a = 5" + ")" * 40).program(PROPERTIES) is True
    assert parse(" OR ".join(["b = 'y'"] * 200) + " OR a = 5").program(PROPERTIES) is True
    assert parse("b IN (" + ",".join(f"'{n:016}'" for n in range(700)) + ",'x')").program(PROPERTIES) is True

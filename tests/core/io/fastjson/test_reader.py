"""Reading of RocketMQ's JSON dialect must be lenient, because files and bodies of every client are made of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.errors import JsonSyntaxError
from flintmq.core.io import fastjson
from flintmq.core.io.fastjson import ObjectKey


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1,"b":[true,false,null,1.5,-2]}', {"a": 1, "b": [True, False, None, 1.5, -2]}),
        ("{0:3,1:1}", {0: 3, 1: 1}),
        ('{"0":3}', {"0": 3}),
        ("{a:'x',b_c:\"y\",}", {"a": "x", "b_c": "y"}),
        ("[1,2,]", [1, 2]),
        ("{'it\\'s':'\\u4e2d\\n\\x41'}", {"it's": "中\nA"}),
        ("['\\ud83d\\ude00', '\\ud83d']", ["😀", "\ufffd"]),
        ("{a:5L,b:1.0E2,c:NaN}", {"a": 5, "b": 100.0, "c": None}),
        (" \n{ }\t", {}),
        ("{n:9223372036854775807}", {"n": 9223372036854775807}),
    ],
)
def test_the_json_reader_accepts_unquoted_keys_and_single_quotes_and_trailing_commas(text: str, value: object) -> None:
    assert fastjson.loads(text) == value
    assert fastjson.loads(text.encode("utf-8")) == value


@pytest.mark.parametrize(
    "text", ["", "{", "[1", "{a}", "{a:1 b:2}", '"x', "{a:\\u12}", "nope", "{a:1}}", "{:1}", "-", "'\\u12'", "[1 2]"]
)
def test_malformed_json_is_refused(text: str) -> None:
    with pytest.raises(JsonSyntaxError):
        fastjson.loads(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a:" * 100_000, "[" * 100_000 + "]" * 100_000, "{" * 100_000])
def test_json_with_100000_nested_brackets_raises_a_json_syntax_error(text: str) -> None:
    with pytest.raises(JsonSyntaxError):
        fastjson.loads(text)


NESTED = {
    "lists": lambda depth: "[" * depth + "]" * depth,
    "around a value": lambda depth: "[" * depth + "1" + "]" * depth,
    "objects": lambda depth: '{"a":' * depth + "1" + "}" * depth,
    "strings with brackets": lambda depth: '["]",' * depth + "1" + ',"["]' * depth,
    "strings with escaped quotes": lambda depth: '["\\"]",' * depth + "1" + ',"\\"["]' * depth,
    "fastjson's dialect": lambda depth: "{a:" * depth + "1" + "}" * depth,
    "keys that are objects": lambda depth: "{" * depth + "a:1" + "}:1" * (depth - 1) + "}",
}


@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
def test_nesting_deeper_than_64_is_refused(nested: Callable[[int], str]) -> None:
    """The readers in C stop at 900 to 100,000, by interpreter and stack: a body that one broker takes, all must take."""
    fastjson.loads(nested(64))
    for depth in (65, 900, 3_000, 8_000, 20_000):
        for text in (nested(depth), nested(depth).encode()):
            with pytest.raises(JsonSyntaxError, match="nests deeper than 64"):
                fastjson.loads(text)


def test_a_long_json_text_without_deep_nesting_is_accepted() -> None:
    assert fastjson.loads('[{"a":["]"]}' + ',{"a":["["]}' * 1_000 + "]") == [{"a": ["]"]}] + [{"a": ["["]}] * 1_000


def test_invalid_utf8_and_numbers_of_5000_digits_are_refused() -> None:
    with pytest.raises(JsonSyntaxError):
        fastjson.loads(b'{"a":"\xff"}')
    with pytest.raises(JsonSyntaxError):
        fastjson.loads("{a:" + "9" * 5000 + "}")


@given(st.text(alphabet="{}[]:,'\"\\u0123abtnf-.eE \n$%", max_size=60) | st.binary(max_size=40))
def test_parsing_random_text_raises_no_error_except_json_syntax_error(garbage: str | bytes) -> None:
    with contextlib.suppress(JsonSyntaxError):
        fastjson.loads(garbage)


def test_a_json_object_with_another_object_as_a_key_can_be_parsed_and_written() -> None:
    body = fastjson.loads('{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:5}}')
    assert body == {"offsetTable": {ObjectKey({"topic": "T", "queueId": 0, "brokerName": "a"}): 5}}
    assert fastjson.dumps(body) == '{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:5}}'


def test_two_json_objects_used_as_keys_are_equal_if_only_the_order_of_their_members_differs() -> None:
    """Two texts may name the members of one key in another order, and nest objects and lists in it."""
    one, other = ObjectKey({"a": 1, "b": {"c": [1]}}), ObjectKey({"b": {"c": [1]}, "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one != ObjectKey({"a": 2, "b": {"c": [1]}})
    assert one != "a"
    assert (dict(one), len(one)) == ({"a": 1, "b": {"c": [1]}}, 2)


def test_fastjson_references_in_json_are_replaced_by_the_referenced_values() -> None:
    assert fastjson.loads('{"a":{"x":[{"k":1}]},"b":{"$ref":"$.a.x[0]"},"c":{"$ref":"$.no"}}') == {
        "a": {"x": [{"k": 1}]},
        "b": {"k": 1},
        "c": None,
    }
    assert fastjson.loads('{"a":{"$ref":"$"}}') == {"a": None}


def test_json_is_refused_if_its_references_expand_to_too_many_values() -> None:
    """Readers copy what is named: seven thousand numbers named nine hundred times would be six million values."""
    few, many = ('{"a":[' + "1," * 20 + '1],"b":[' + '{"$ref":"$.a"},' * count + "1]}" for count in (3, 30))
    assert fastjson.loads(few)["b"] == [[1] * 21] * 3 + [1]
    assert fastjson.loads(few.replace("1,", "[1],"))["b"][0] == [[1]] * 20 + [1]
    with pytest.raises(JsonSyntaxError, match="more values than allowed"):
        fastjson.loads(many)


def test_json_references_that_copy_too_many_nested_values_are_refused() -> None:
    """Otherwise a list of lists would be counted as short."""
    inner = "[" + "1," * 30 + "1]"
    text = '{"a":[' + ",".join([inner] * 5) + '],"b":[' + ",".join(['{"$ref":"$.a"}'] * 5) + "]}"
    with pytest.raises(JsonSyntaxError, match="more values than allowed"):
        fastjson.loads(text)

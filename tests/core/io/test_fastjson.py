"""RocketMQ's JSON dialect: reading must be lenient, writing exact, for files and bodies are made of it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import assume, given
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
def test_reads_what_the_reference_reads(text: str, value: object) -> None:
    assert fastjson.loads(text) == value
    assert fastjson.loads(text.encode("utf-8")) == value


def test_reads_object_keys_into_something_hashable() -> None:
    body = fastjson.loads('{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:5}}')
    assert body == {"offsetTable": {ObjectKey({"topic": "T", "queueId": 0, "brokerName": "a"}): 5}}
    assert fastjson.dumps(body) == '{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:5}}'


def test_follows_references_within_the_text() -> None:
    assert fastjson.loads('{"a":{"x":[{"k":1}]},"b":{"$ref":"$.a.x[0]"},"c":{"$ref":"$.no"}}') == {
        "a": {"x": [{"k": 1}]},
        "b": {"k": 1},
        "c": None,
    }
    assert fastjson.loads('{"a":{"$ref":"$"}}') == {"a": None}


@pytest.mark.parametrize(
    "text", ["", "{", "[1", "{a}", "{a:1 b:2}", '"x', "{a:\\u12}", "nope", "{a:1}}", "{:1}", "-", "'\\u12'", "[1 2]"]
)
def test_refuses_what_is_broken(text: str) -> None:
    with pytest.raises(JsonSyntaxError):
        fastjson.loads(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a:" * 100_000, "[" * 100_000 + "]" * 100_000, "{" * 100_000])
def test_deep_nesting_is_an_error_and_not_a_crash(text: str) -> None:
    with pytest.raises(JsonSyntaxError):
        fastjson.loads(text)


def test_refuses_bytes_that_are_no_utf8_and_endless_numbers() -> None:
    with pytest.raises(JsonSyntaxError):
        fastjson.loads(b'{"a":"\xff"}')
    with pytest.raises(JsonSyntaxError):
        fastjson.loads("{a:" + "9" * 5000 + "}")


def test_writes_unquoted_or_standard_keys() -> None:
    value = {"b": {1: "ü", 0: None}, "a": None, "c": {"y", "x"}, "d": 0.0, "e": float("nan")}
    assert fastjson.dumps(value) == '{"b":{1:"ü"},"c":["x","y"],"d":0.0,"e":null}'
    assert (
        fastjson.dumps(value, unquoted_int_keys=False, sort_keys=True, ascii_only=True)
        == '{"b":{"1":"\\u00fc"},"c":["x","y"],"d":0.0,"e":null}'
    )
    assert fastjson.dumps({ObjectKey({"q": 1}): 2}, unquoted_int_keys=False) == '{"{\\"q\\":1}":2}'
    with pytest.raises(TypeError):
        fastjson.dumps({"x": b"bytes"})


def test_pretty_text_is_the_reference_file_to_the_byte() -> None:
    offsets = '{\n\t"offsetTable":{\n\t\t"TopicTest@CG":{0:1,1:1,2:3,3:1\n\t\t}\n\t}\n}'
    assert fastjson.dumps_pretty(fastjson.loads(offsets)) == offsets
    delays = '{\n\t"offsetTable":{1:1,3:2\n\t}\n}'
    assert fastjson.dumps_pretty(fastjson.loads(delays)) == delays
    assert fastjson.dumps_pretty({"offsetTable": {}}) == '{\n\t"offsetTable":{}\n}'


_KEYS = st.text(max_size=8) | st.integers(-(2**63), 2**63 - 1)
_VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=20)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(_VALUES)
def test_whatever_is_written_is_read_back(value: object) -> None:
    assume("$ref" not in repr(value))
    assert fastjson.loads(fastjson.dumps(value)) == value
    assert fastjson.loads(fastjson.dumps_pretty(value)) == value


@given(st.text(alphabet="{}[]:,'\"\\u0123abtnf-.eE \n$%", max_size=60) | st.binary(max_size=40))
def test_garbage_is_refused_and_nothing_else_happens(garbage: str | bytes) -> None:
    with contextlib.suppress(JsonSyntaxError):
        fastjson.loads(garbage)

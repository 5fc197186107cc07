"""Reading of RocketMQ's JSON dialect must be lenient, because files and bodies of every client are made of it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.errors import JsonSyntaxError
from flintmq.core.io import fastjson


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
def test_reads_what_rocketmq_reads(text: str, value: object) -> None:
    assert fastjson.loads(text) == value
    assert fastjson.loads(text.encode("utf-8")) == value


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


@given(st.text(alphabet="{}[]:,'\"\\u0123abtnf-.eE \n$%", max_size=60) | st.binary(max_size=40))
def test_garbage_is_refused_and_nothing_else_happens(garbage: str | bytes) -> None:
    with contextlib.suppress(JsonSyntaxError):
        fastjson.loads(garbage)

"""References are followed, but a small text must not stand for more values than it has characters."""

from __future__ import annotations

import pytest

from flintmq.core.errors import JsonSyntaxError
from flintmq.core.io import fastjson


def test_follows_references_within_the_text() -> None:
    assert fastjson.loads('{"a":{"x":[{"k":1}]},"b":{"$ref":"$.a.x[0]"},"c":{"$ref":"$.no"}}') == {
        "a": {"x": [{"k": 1}]},
        "b": {"k": 1},
        "c": None,
    }
    assert fastjson.loads('{"a":{"$ref":"$"}}') == {"a": None}


def test_what_is_named_may_have_as_many_values_as_the_text_has_characters() -> None:
    """Readers copy what is named: seven thousand numbers named nine hundred times would be six million values."""
    few, many = ('{"a":[' + "1," * 20 + '1],"b":[' + '{"$ref":"$.a"},' * count + "1]}" for count in (3, 30))
    assert fastjson.loads(few)["b"] == [[1] * 21] * 3 + [1]
    assert fastjson.loads(few.replace("1,", "[1],"))["b"][0] == [[1]] * 20 + [1]
    with pytest.raises(JsonSyntaxError, match="more than the text has room for"):
        fastjson.loads(many)


def test_values_inside_what_is_named_count_too() -> None:
    """Otherwise a list of lists would be counted as short."""
    inner = "[" + "1," * 30 + "1]"
    text = '{"a":[' + ",".join([inner] * 5) + '],"b":[' + ",".join(['{"$ref":"$.a"}'] * 5) + "]}"
    with pytest.raises(JsonSyntaxError, match="more than the text has room for"):
        fastjson.loads(text)

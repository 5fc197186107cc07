"""Writing must be exact: files are compared byte for byte, and old clients read one form only."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flintmq.core.io import fastjson
from flintmq.core.io.fastjson import ObjectKey


def test_integer_keys_are_written_without_quotes_by_default_and_with_quotes_on_request() -> None:
    value = {"b": {1: "ü", 0: None}, "a": None, "c": {"y", "x"}, "d": 0.0, "e": float("nan")}
    assert fastjson.dumps(value) == '{"b":{1:"ü"},"c":["x","y"],"d":0.0,"e":null}'
    assert (
        fastjson.dumps(value, unquoted_int_keys=False, sort_keys=True, ascii_only=True)
        == '{"b":{"1":"\\u00fc"},"c":["x","y"],"d":0.0,"e":null}'
    )
    assert fastjson.dumps({ObjectKey({"q": 1}): 2}, unquoted_int_keys=False) == '{"{\\"q\\":1}":2}'
    with pytest.raises(TypeError):
        fastjson.dumps({"x": b"bytes"})


def test_pretty_printed_json_equals_rocketmqs_config_files_byte_for_byte() -> None:
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
def test_written_json_is_read_back_unchanged(value: object) -> None:
    assume("$ref" not in repr(value))
    assert fastjson.loads(fastjson.dumps(value)) == value
    assert fastjson.loads(fastjson.dumps_pretty(value)) == value


class Place(msgspec.Struct, frozen=True, rename="camel"):
    """A struct whose fields are not in the order of their names."""

    topic_name: str
    broker_id: int = 0
    note: str | None = None


def test_members_of_structs_are_written_in_alphabetical_order() -> None:
    """fastjson sorts members, and leaves out those that are null; a struct may be a key."""
    assert fastjson.dumps(Place("T", 1)) == '{"brokerId":1,"topicName":"T"}'
    assert fastjson.dumps({Place("T"): {3, 10, 2}}) == '{{"brokerId":0,"topicName":"T"}:[2,3,10]}'
    assert fastjson.dumps({Place("T"): 1}, unquoted_int_keys=False) == (
        '{"{\\"brokerId\\":0,\\"topicName\\":\\"T\\"}":1}'
    )

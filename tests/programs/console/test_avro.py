"""A body of Avro is read as its writer meant it, and one of a liar within bounds: whatever it claims, the console answers."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.programs.console.avro import AvroError, decode

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "who", "type": ["null", "string"]},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["new", "paid"]}},
            {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
            {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
            {"name": "parent", "type": ["null", "Order"]},
            {"name": "raw", "type": "bytes"},
            {"name": "flag", "type": "boolean"},
            {"name": "share", "type": "float"},
        ],
    }
)
BODY = bytes.fromhex(
    "03 02 06 c3bc78 02 02 02 02 61 000000000000f83f 00 00 abcd 00 04 0102 01 0000003f".replace(" ", "")
)
VALUE: dict[str, Any] = {
    "id": -2,
    "who": "üx",
    "state": "paid",
    "lines": [{"a": 1.5}],
    "hash": "abcd",
    "parent": None,
    "raw": "0102",
    "flag": True,
    "share": 0.5,
}


def test_every_avro_type_is_decoded() -> None:
    """The bytes were written by hand, after the specification."""
    assert decode(ORDER, BODY) == VALUE
    assert decode("string", b"\x04ab") == decode('"string"', b"\x04ab") == "ab"


def test_the_header_that_a_schema_registry_puts_before_an_avro_body_is_skipped() -> None:
    assert decode(ORDER, b"\x00\x00\x00\x00\x07" + BODY) == VALUE
    assert decode(ORDER, b"\xc3\x01" + bytes(8) + BODY) == VALUE


@pytest.mark.parametrize(
    ("schema", "body", "said"),
    [
        ("{", b"", "not JSON"),
        ("[" * 100_000, b"", "not JSON"),
        ('{"type":' * 70 + '"int"' + "}" * 70, b"", "nests too deep"),
        ('{"type": "record", "fields": []}', b"", "in the schema has no name"),
        ('{"type": "record", "name": "a", "fields": 7}', b"", "fields of a record"),
        ('{"type": "enum", "name": "e", "symbols": ["a"]}', b"\x02", "no symbol 1"),
        ('["int"]', b"\x02", "no branch 1"),
        ('"nothing"', b"", "that the schema does not define"),
        ("{}", b"", "no type"),
        ('{"type": "fixed", "name": "f"}', b"", "has no valid size"),
        ("5", b"", "that the schema does not define"),
        ("int", b"", "ends before"),
        ("int", b"\x02\x02", "bytes left: 1"),
        ("long", b"\xff" * 11, "longer than ten bytes"),
        ("string", b"\x01", "ends before"),
        ('{"type": "array", "items": "null"}', b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00", "more than 50,000 values"),
        (
            '{"type": "record", "name": "r", "fields": [{"name": "r", "type": ["null", "r"]}]}',
            b"\x02" * 100_000,
            "deeper",
        ),
        ('{"type": "record", "name": "r", "fields": [{"name": "r", "type": "r"}]}', b"", "deeper"),
        ("x" * 200_001, b"", "longer than 200,000"),
    ],
)
def test_invalid_avro_schemas_and_bodies_are_refused(schema: str, body: bytes, said: str) -> None:
    with pytest.raises(AvroError, match=said):
        decode(schema, body)


@given(st.binary(max_size=64))
def test_any_bytes_are_decoded_as_avro_or_refused(body: bytes) -> None:
    """Messages of another schema are looked at by mistake all the time."""
    with contextlib.suppress(AvroError):
        json.dumps(decode(ORDER, body))


def test_avro_bodies_written_by_the_library_fastavro_are_decoded() -> None:
    """Another hand's bytes, where the library is installed."""
    fastavro = pytest.importorskip("fastavro", reason="the extra 'avro' is not installed")
    file = io.BytesIO()
    order = {
        **VALUE,
        "hash": b"\xab\xcd",
        "raw": b"\x01\x02",
        "parent": {**VALUE, "hash": b"\xab\xcd", "raw": b"\x01\x02"},
    }
    fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(ORDER)), order)
    assert decode(ORDER, file.getvalue()) == {**VALUE, "parent": VALUE}

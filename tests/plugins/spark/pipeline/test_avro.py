"""Avro bodies in Python: types, values, headers, and bytes that are no record."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import uuid
from typing import Any

import pytest

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from flintmq.config.errors import ConfigError  # noqa: E402
from flintmq.plugins.spark.pipeline.arrow_decoder import decode_array, reason_array  # noqa: E402
from flintmq.plugins.spark.pipeline.avro import AvroDecoder, avro_type, fingerprint, parse_avro  # noqa: E402  # noqa: E402

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "PAID"]}},
        {"name": "amount", "type": ["int", "long"]},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "items", "type": {"type": "array", "items": {
            "type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}}},
        {"name": "first", "type": ["null", "Item"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
    ],
}  # fmt: skip
ORDER: dict[str, Any] = {
    "id": 7,
    "note": None,
    "paid": decimal.Decimal("12.50"),
    "at": datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC),
    "day": datetime.date(2026, 1, 31),
    "clock": datetime.time(12, 30),
    "ref": uuid.UUID(int=5),
    "kind": "PAID",
    "amount": 2**40,
    "counts": {"a": 1},
    "items": [{"sku": "x"}],
    "first": {"sku": "y"},
    "hash": b"\x01\x02",
}


def encoded(value: dict[str, Any], schema: dict[str, Any] = SCHEMA) -> bytes:
    """The body of a value."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def decode(bodies: list[bytes | None], **framing: Any) -> list[Any]:
    """Bodies as Spark's workers decode them."""
    from pyspark.sql.pandas.types import to_arrow_type

    text = json.dumps(SCHEMA)
    arrow_type = to_arrow_type(avro_type(parse_avro(text)), timezone="UTC")
    return decode_array(pa.array(bodies, pa.binary()), AvroDecoder(text, **framing)(), arrow_type).to_pylist()  # type: ignore[no-any-return]


def test_every_avro_type_becomes_a_column() -> None:
    """Each Avro type that has a counterpart arrives as that type with its value."""
    spark = avro_type(parse_avro(json.dumps(SCHEMA))).simpleString()
    assert spark == (
        "struct<id:bigint,note:string,paid:decimal(10,2),at:timestamp,day:date,clock:string,ref:string,kind:string,"
        "amount:bigint,counts:map<string,int>,items:array<struct<sku:string>>,first:struct<sku:string>,hash:binary>"
    )
    (row,) = decode([encoded(ORDER)])
    expected = ORDER | {"clock": "12:30:00", "ref": str(ORDER["ref"]), "counts": [("a", 1)]}
    assert row == expected


def test_an_undecodable_avro_body_is_null_and_affects_no_other_row() -> None:
    """One body of garbage in a batch of good ones must cost one row, wherever it breaks."""
    good = encoded(ORDER)
    bad = [b"", good[:-1], good + b"x", b"\xff" * 40, None]
    assert [row is None for row in decode([good, *bad, good])] == [False, *(True for _ in bad), False]


def test_the_avro_decoder_returns_a_reason_for_each_body_that_it_cannot_decode() -> None:
    """The reason is the decoder's own, or says which value does not fit its column."""
    schema = {"type": "record", "name": "P", "fields": [{"name": "id", "type": "long"}]}
    make = AvroDecoder(json.dumps(schema), "plain")
    bodies = pa.array([encoded({"id": 7}, schema), b"", None, encoded({"id": 2**40}, schema)], pa.binary())
    reasons = reason_array(bodies, make(), pa.struct([("id", pa.int32())])).to_pylist()
    assert [reason is None for reason in reasons] == [True, False, True, False]
    assert reasons[1].startswith("EOFError")
    assert str(2**40) in reasons[3]


def test_an_avro_body_without_the_expected_header_is_null() -> None:
    """A schema registry's and Avro's own header: without it, or with that of another schema, a body is none."""
    good = encoded(ORDER)
    registry = b"\x00\x00\x00\x00\x07"
    assert [row is None for row in decode([registry + good, good, b"\x00"], framing="confluent")] == [False, True, True]
    single = b"\xc3\x01" + fingerprint(json.dumps(SCHEMA))
    rows = decode([single + good, b"\xc3\x01" + b"\x00" * 8 + good, good], framing="single_object")
    assert [row is None for row in rows] == [False, True, True]


def test_the_schema_fingerprint_equals_that_of_the_avro_specification() -> None:
    """The value that Avro's specification and Java give for the schema "int", little-endian."""
    assert fingerprint('"int"').hex() == "8f5c393f1ad57572"


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "the text is not a valid Avro schema"),
        ('"string"', "must be a record"),
        (
            '{"type": "record", "name": "A", "fields": [{"name": "x", "type": "strin"}]}',
            "the text is not a valid Avro schema",
        ),
        (
            '{"type": "record", "name": "A", "fields": [{"name": "x", "type": ["int", "string"]}]}',
            "record.x is an Avro union",
        ),
        ('{"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "A"]}]}', "contains itself"),
        ('{"type": "record", "name": "A", "fields": [{"name": "x", "type": "null"}]}', "record.x is always null"),
    ],
)
def test_the_error_about_an_unusable_schema_names_the_field(schema: str, says: str) -> None:
    """The mistake must be found before a query runs."""
    with pytest.raises(ConfigError, match=says):
        avro_type(parse_avro(schema))

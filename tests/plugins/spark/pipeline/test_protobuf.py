"""Protobuf bodies in Python, by a descriptor set: types, values, headers, and bytes that are no message."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("google.protobuf")
pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from protobuf_samples import MESSAGE, descriptor_set, new_order  # noqa: E402

from flintmq.config.errors import ConfigError  # noqa: E402
from flintmq.plugins.spark.pipeline.arrow_decoder import decode_array  # noqa: E402
from flintmq.plugins.spark.pipeline.protobuf import (  # noqa: E402  # noqa: E402
    ProtobufDecoder,
    behind_registry_header,
    message_descriptor,
    protobuf_type,
)


def decode(bodies: list[bytes | None]) -> list[Any]:
    """Bodies as Spark's workers decode them."""
    from pyspark.sql.pandas.types import to_arrow_type

    decoder = ProtobufDecoder(descriptor_set(), MESSAGE)
    arrow_type = to_arrow_type(protobuf_type(message_descriptor(descriptor_set(), MESSAGE)), timezone="UTC")
    return decode_array(pa.array(bodies, pa.binary()), decoder(), arrow_type).to_pylist()  # type: ignore[no-any-return]


def test_every_kind_of_protobuf_field_has_a_column() -> None:
    """Scalars, unsigned numbers, enums, messages, lists, maps and well-known types arrive as Spark's own mapping has them."""
    spark = protobuf_type(message_descriptor(descriptor_set(), MESSAGE)).simpleString()
    assert spark == (
        "struct<id:bigint,name:string,big:decimal(20,0),small:bigint,price:double,kind:string,items:array<struct<sku:string>>,"
        "counts:map<string,int>,at:timestamp,data:binary,maybe:int>"
    )
    order = new_order()
    order.id, order.name, order.big, order.small, order.price, order.kind = 7, "ä", 2**64 - 1, 2**32 - 1, 1.5, 1
    order.items.add().sku = "x"
    order.counts["a"] = 3
    order.at.FromDatetime(datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC))
    order.data = b"\x00"
    (row,) = decode([order.SerializeToString()])
    assert row == {
        "id": 7,
        "name": "ä",
        "big": Decimal(2**64 - 1),
        "small": 2**32 - 1,
        "price": 1.5,
        "kind": "PAID",
        "items": [{"sku": "x"}],
        "counts": [("a", 3)],
        "at": datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC),
        "data": b"\x00",
        "maybe": None,
    }


def test_an_empty_body_is_decoded_as_a_protobuf_message_of_default_values() -> None:
    """Protobuf encodes a message of default values as no bytes; only fields with presence are null."""
    (row,) = decode([b""])
    assert (row["id"], row["name"], row["kind"], row["items"], row["at"], row["maybe"]) == (
        0,
        "",
        "NEW",
        [],
        None,
        None,
    )


def test_an_undecodable_protobuf_body_is_null_and_affects_no_other_row() -> None:
    """A timestamp beyond what a column can hold is as bad as garbage."""
    good, late = new_order(), new_order()
    good.id = 1
    late.at.seconds = 10**15
    rows = decode([good.SerializeToString(), b"\xff\xff", late.SerializeToString(), None, good.SerializeToString()])
    assert [row is None for row in rows] == [False, True, True, True, False]


def test_the_schema_registry_header_of_a_protobuf_body_is_removed() -> None:
    """Zero, schema number, then the message's path: 0 alone stands for the first message of the file."""
    assert behind_registry_header(b"\x00\x00\x00\x00\x01\x00body") == b"body"
    assert behind_registry_header(b"\x00\x00\x00\x00\x01\x04\x02\x00body") == b"body"
    for bad in (
        b"",
        b"\x01\x00\x00\x00\x01\x00x",
        b"\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x00\x01\xfe\xff\xff\x7f",
    ):
        with pytest.raises(ValueError, match="registry header"):
            behind_registry_header(bad)


def test_the_error_about_an_unknown_protobuf_message_lists_the_known_messages() -> None:
    """Users often forget the package before the name of the message."""
    with pytest.raises(ConfigError, match=r"the schema has no message 'Order'; its messages are .*shop\.Order"):
        message_descriptor(descriptor_set(), "Order")
    with pytest.raises(ConfigError, match="not a descriptor set"):
        message_descriptor(b"\xff\xff\xff", "x")
    with pytest.raises(ConfigError, match="--include_imports"):
        message_descriptor(descriptor_set(imports=False), MESSAGE)
    with pytest.raises(ConfigError, match="contains itself"):
        protobuf_type(message_descriptor(descriptor_set(), "shop.Tree"))

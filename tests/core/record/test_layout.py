"""The table of a record's fields: what is made from it agrees with records made field by field."""

from __future__ import annotations

import struct

import pytest

from flintmq.core.record.layout import (
    FIELDS,
    HEAD,
    HEAD_AT,
    HEAD_V4,
    head_dtype,
    head_format,
    head_struct,
    hosts_flag,
    picked,
)
from flintmq.core.record.record import RECORD_MIN_BYTES
from flintmq.core.record.sys_flag import BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6
from flintmq.tests.support.records import HOST_V4, HOST_V6, RecordFields


def test_record_header_fields_have_the_same_offsets_and_sizes_as_in_rocketmqs_source_code() -> None:
    """The numbers that RocketMQ's own code has."""
    assert HEAD_V4.size == 88
    assert RECORD_MIN_BYTES == 91
    assert [HEAD_AT[name] for name in ("physical_offset", "sys_flag", "store_timestamp", "body_length")] == [
        28,
        36,
        56,
        84,
    ]
    assert struct.calcsize(">" + head_format(HOSTS_V6)) == 112


@pytest.mark.parametrize(
    ("born", "store", "bits"),
    [
        (HOST_V4, HOST_V4, 0),
        (HOST_V6, HOST_V4, BORN_HOST_V6),
        (HOST_V4, HOST_V6, STORE_HOST_V6),
        (HOST_V6, HOST_V6, HOSTS_V6),
    ],
)
def test_a_record_header_with_ipv4_or_ipv6_hosts_is_read(born: bytes, store: bytes, bits: int) -> None:
    """The bits of the sysFlag decide where every later field lies."""
    raw = RecordFields(born_host=born, store_host=store, reconsume_times=7, body=b"abc").encode(4_096)
    values = dict(zip([field.name for field in HEAD], head_struct(bits).unpack_from(raw), strict=True))
    assert hosts_flag(born, store) == bits
    assert values["size"] == len(raw)
    assert values["physical_offset"] == 4_096
    assert (values["born_host"], values["store_host"]) == (born, store)
    assert (values["reconsume_times"], values["body_length"]) == (7, 3)


def test_selected_record_fields_are_unpacked_in_the_order_in_which_the_record_stores_them() -> None:
    """Hot loops unpack what they look at only."""
    raw = RecordFields(queue_id=3, store_timestamp_ms=5).encode(77)
    assert picked("store_timestamp", "queue_id", "physical_offset").unpack_from(raw) == (3, 77, 5)
    assert picked("size").size == 4


def test_the_numpy_type_of_a_record_header_has_the_field_offsets_of_the_store_format() -> None:
    """One table for both ways of reading."""
    numpy = pytest.importorskip("numpy")
    kind = numpy.dtype(head_dtype())
    assert kind.itemsize == HEAD_V4.size
    assert {name: kind.fields[name][1] for name in kind.names} == HEAD_AT


def test_each_record_field_of_variable_length_comes_after_its_length_field() -> None:
    """A field of bytes names the one that says how long it is, and that one lies before it."""
    names = [field.name for field in FIELDS]
    for at, field in enumerate(FIELDS):
        if field.kind == "bytes":
            assert field.length in names[:at]

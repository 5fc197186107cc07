"""Heads of many records read at once say what each record says alone, and nothing outside the bytes is looked at."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.record.heads import read_heads
from flintmq.core.record.record import RecordError, decode_record, read_fields
from flintmq.tests.support.records import HOST_V4, HOST_V6, RecordFields, encode_all

RECORDS = [
    RecordFields(body=b"b" * number, properties=b"TAGS\x01A" * (number % 2), born_host=born, store_host=store, is_v2=v2)
    for number, (born, store, v2) in enumerate(
        [(HOST_V4, HOST_V4, False), (HOST_V6, HOST_V4, False), (HOST_V4, HOST_V6, True), (HOST_V6, HOST_V6, False)]
    )
]


def test_record_headers_read_in_bulk_equal_those_read_from_single_records() -> None:
    """Whatever the hosts are, and under both magics."""
    raw, starts = encode_all(RECORDS, 4_096)
    heads = read_heads(numpy.frombuffer(raw, numpy.uint8), numpy.array(starts))
    assert heads.bad is None
    for row, start in enumerate(starts):
        record = decode_record(raw, start)
        _values, body_at, topic_at, properties_at, end = read_fields(memoryview(raw), start)
        assert heads.size[row] == record.size_bytes
        assert heads.store_timestamp_ms[row] == record.store_timestamp_ms
        assert heads.raw["physical_offset"][row] == 4_096 + start
        assert (heads.body_at[row], heads.topic_at[row]) == (body_at, topic_at)
        assert (heads.properties_at[row], heads.properties_length[row]) == (properties_at, end - properties_at)
    assert read_heads(numpy.frombuffer(raw, numpy.uint8), numpy.array(starts)).chosen(
        numpy.array([False, True, False, True])
    ).size.tolist() == [len(RECORDS[1].encode(0)), len(RECORDS[3].encode(0))]


@given(at=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_bulk_read_refuses_the_same_damaged_records_as_a_read_of_single_records(at: int, value: int) -> None:
    """One byte is changed, anywhere; the checksum and the text of the topic are for others to look at."""
    raw, starts = encode_all(RECORDS)
    broken = bytearray(raw)
    broken[at % len(raw)] = value
    data = bytes(broken)
    heads = read_heads(numpy.frombuffer(data, numpy.uint8), numpy.array(starts))
    for row, start in enumerate(starts):
        try:
            read_fields(memoryview(data), start)
            whole = True
        except RecordError:
            whole = False
        assert whole == (heads.bad is None or not heads.bad[row])


def test_reading_a_record_header_that_extends_beyond_the_data_is_refused() -> None:
    """A head must lie there as a whole."""
    raw, _starts = encode_all(RECORDS[:1])
    with pytest.raises(ValueError, match="cannot begin at positions"):
        read_heads(numpy.frombuffer(raw, numpy.uint8), numpy.array([len(raw) - 90]))

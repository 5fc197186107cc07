"""The vectorised decoder gives the rows of the parser that reads one record at a time, for whatever lies in a log."""

from __future__ import annotations

import lzma
import struct
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from expected_rows import rows_at, rows_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.plugins.spark.decoder import Decoder, RowFilter, decode
from flintmq.plugins.spark.errors import BadRecordError
from flintmq.plugins.spark.ports import Range
from flintmq.plugins.spark.schema import ALL_NAMES, arrow_schema
from flintmq.tests.support.effort import examples
from flintmq.tests.support.records import HOST_V4, HOST_V6, RecordFields, encode_all

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "REGION", "größe", "a"])
ENTRY = st.tuples(NAMES | st.text("xyz\x01", max_size=3), st.text("abc ü𝄞\x01", max_size=6)).map("\x01".join)
PROPERTIES = st.lists(ENTRY | st.just("") | st.text("ab\x01", max_size=4), max_size=8).map("\x02".join)
HOSTS = st.sampled_from([HOST_V4, HOST_V6, bytes((10, 0, 0, 7)) + struct.pack(">i", 4711)])
RECORDS = st.builds(
    RecordFields,
    topic=st.sampled_from([b"Orders", b"", b"p" * 127, "zürich".encode()]),
    body=st.binary(max_size=40),
    properties=PROPERTIES.map(str.encode) | st.binary(max_size=20),
    queue_id=INT32,
    flag=INT32,
    queue_offset=INT64,
    sys_flag=st.sampled_from([0, 1, 2, 4, 8, 0xC, 0x101, 0x201, 0x301, 0x701]),
    born_timestamp_ms=INT64 | st.just(1_700_000_000_000),
    born_host=HOSTS,
    store_timestamp_ms=INT64 | st.just(1_700_000_000_000),
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset_bytes=INT64,
    is_v2=st.booleans(),
)


@settings(deadline=None, max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(RECORDS, max_size=12), st.data())
def test_random_records_are_decoded_to_the_rows_of_a_reference_parser(records: list[RecordFields], data: Any) -> None:
    """Hosts of both lengths, both magics, odd properties, any numbers, and any ascending subset of them."""
    log, starts = encode_all(records, 4096)
    chosen = [at for at in starts if data.draw(st.booleans())]
    batch = Decoder(broker_name="broker-a").decode(log, chosen)
    batch.validate(full=True)
    assert batch.schema.equals(arrow_schema(ALL_NAMES))
    assert rows_of(batch) == rows_at(log, chosen, "broker-a")


@pytest.mark.parametrize("name", ALL_NAMES)
def test_a_column_has_the_same_values_if_decoded_alone_or_with_all_columns(name: str) -> None:
    """Pruning must not change a column, nor may one need another."""
    records = [RecordFields(properties=b"TAGS\x01a\x02KEYS\x01k", queue_offset=n, born_host=HOST_V6) for n in range(5)]
    log, starts = encode_all(records)
    assert decode(log, starts, [name]).column(0).equals(decode(log, starts).column(name))


@pytest.mark.parametrize("names", [3, 80])
def test_the_last_of_several_properties_with_the_same_name_is_used(names: int) -> None:
    """Java does the same, and batch members have ``WAIT`` twice. The rule also holds with many names."""
    entries = [f"name{n}\x01{n}" for n in range(names)] + ["name1\x01again", "WAIT\x01true", "WAIT\x01false"]
    log, starts = encode_all(
        [RecordFields(properties=b"a\x01b"), RecordFields(properties="\x02".join(entries).encode())]
    )
    second = rows_of(decode(log, starts))[1]["properties"]
    assert len(second) == names + 1
    assert (second["name1"], second["WAIT"]) == ("again", "false")


def test_empty_records_and_records_with_the_largest_allowed_properties_are_decoded() -> None:
    """The limits of the format: 32,767 bytes of properties, and no body, topic or properties at all."""
    most = b"\x02".join(b"n%04d\x01vv" % n for n in range(3_000))[:32_767]
    log, starts = encode_all([RecordFields(b"", b""), RecordFields(properties=most), RecordFields(b"", b"")])
    assert rows_of(decode(log, starts)) == rows_at(log, starts)


def test_a_body_that_is_flagged_as_compressed_but_cannot_be_decompressed_is_returned_unchanged() -> None:
    """zlib, lz4 and zstd; a client that sets the flag without compressing must not stop a pipeline."""
    plain = b"The quick brown fox " * 50

    def compressed(codec: str) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(plain)
        return bytes(sink.getvalue())

    records = [
        RecordFields(body=zlib.compress(plain), sys_flag=1),
        RecordFields(body=zlib.compress(plain), sys_flag=0x301),
        RecordFields(body=compressed("lz4"), sys_flag=0x101),
        RecordFields(body=compressed("zstd"), sys_flag=0x201),
        RecordFields(body=plain, sys_flag=0x301),
        RecordFields(body=plain, sys_flag=0x201),
        RecordFields(body=zlib.compress(plain)[:-9], sys_flag=1),
        RecordFields(body=lzma.compress(plain), sys_flag=0x701),
        RecordFields(body=b"", sys_flag=1),
        RecordFields(body=plain),
    ]
    log, starts = encode_all(records)
    bodies = decode(log, starts, ["body"]).column(0).to_pylist()
    assert bodies[:4] == [plain] * 4
    assert bodies[4:] == [record.body for record in records[4:]]
    raw = Decoder(("body",), raw_body=True).decode(log, starts).column(0).to_pylist()
    assert raw == [record.body for record in records]


def test_prepared_and_rolled_back_messages_never_become_rows() -> None:
    """Consumers never see such messages, so queries must not see them."""
    log, starts = encode_all([RecordFields(queue_offset=n, sys_flag=flag) for n, flag in enumerate((0, 4, 8, 12))])
    assert decode(log, starts, ["queueOffset"]).column(0).to_pylist() == [0, 2]


def test_rows_are_selected_by_tag_and_topic() -> None:
    """The tag itself must match, because "Aa" and "BB" have the same hash."""
    records = [
        RecordFields(topic, properties=b"TAGS\x01" + tag if tag else b"", queue_offset=n)
        for n, (topic, tag) in enumerate(
            [(b"A", b"Aa"), (b"A", b"BB"), (b"B", b"Aa"), (b"A", b""), (b"%RETRY%g", b"Aa")]
        )
    ]
    log, starts = encode_all(records)

    def rows(**conditions: Any) -> list[int]:
        batch = Decoder(("queueOffset",), RowFilter(**conditions)).decode(log, starts)
        return list(batch.column(0).to_pylist())

    assert rows() == [0, 1, 2, 3, 4]
    assert rows(tags=frozenset({"Aa"})) == [0, 2, 4]
    assert rows(tags=frozenset({"Aa"}), topics=frozenset({"A"})) == [0]
    assert rows(system_topics=False) == [0, 1, 2, 3]
    assert rows(topics=frozenset({"C"})) == []


def damaged(at: int, value: bytes) -> tuple[bytes, list[int]]:
    """Three records, the second of them with some bytes changed."""
    log, starts = encode_all([RecordFields(properties=b"a\x01b")] * 3)
    place = starts[1] + at
    return log[:place] + value + log[place + len(value) :], starts


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, b"\x7f\xff\xff\xff"),
        (0, b"\x00\x00\x00\x05"),
        (0, b"\xff\xff\xff\xff"),
        (4, b"\x00\x00\x00\x00"),
        (36, b"\x00\x00\x00\x30"),
        (84, b"\x7f\xff\xff\xff"),
        (84, b"\xff\xff\xff\xff"),
        (84, b"\x00\x00\x00\x04"),
        (93, b"\xff"),
        (100, b"\xff\xff"),
        (100, b"\x00\x00"),
    ],
)
def test_the_option_for_bad_records_decides_whether_a_damaged_record_is_an_error_or_is_skipped(
    at: int, value: bytes
) -> None:
    """No length is followed out of the record; the error says where and which option goes on."""
    log, starts = damaged(at, value)
    with pytest.raises(BadRecordError, match=rf"segment 7: no record at {starts[1]}: .*badRecords=skip"):
        Decoder().decode(log, starts, "segment 7")
    batch = Decoder(bad_records="skip").decode(log, starts)
    assert rows_of(batch) == rows_at(log, [starts[0], starts[2]])


def test_the_option_for_bad_records_decides_whether_an_incomplete_last_record_is_an_error_or_is_skipped() -> None:
    """A crash can leave such a record at the end of the log."""
    log, starts = encode_all([RecordFields()] * 2)
    for missing in (1, 20, len(log) - starts[1] - 1):
        with pytest.raises(BadRecordError):
            Decoder().decode(log[:-missing], starts)
        assert len(Decoder(bad_records="skip").decode(log[:-missing], starts)) == 1


def test_the_option_verify_crc_detects_a_changed_body() -> None:
    """The check reads all bodies, so it is done only with this option."""
    log, starts = encode_all([RecordFields(), RecordFields(crc=1), RecordFields(body=b"")])
    assert len(decode(log, starts)) == 3
    with pytest.raises(BadRecordError, match="CRC"):
        Decoder(verify_crc=True).decode(log, starts)
    assert len(Decoder(verify_crc=True, bad_records="skip").decode(log, starts)) == 2


def test_a_record_with_an_unreadable_body_becomes_a_row_with_the_reason_in_the_column_bad_record() -> None:
    """The rows have all their other columns, and the bodies as they are stored."""
    packed = zlib.compress(b"body" * 9)
    log, starts = encode_all(
        [
            RecordFields(body=packed, sys_flag=1),
            RecordFields(body=packed[:-9], sys_flag=1),
            RecordFields(body=b"no codec", sys_flag=0x701),
            RecordFields(crc=1),
            RecordFields(),
        ]
    )
    decoder = Decoder((*ALL_NAMES, "badRecord"), verify_crc=True, bad_records="keep")
    rows = [row for batch, _ in decoder.batches(log, starts) for row in rows_of(batch)]
    reasons = [row.pop("badRecord") for row in rows]
    assert rows == rows_at(log, starts)
    assert [bool(reason) for reason in reasons] == [False, True, True, True, False]
    assert "decompress" in reasons[1]
    assert "CRC" in reasons[3]
    alone = Decoder(("badRecord",), verify_crc=True, bad_records="keep")
    assert [row["badRecord"] for batch, _ in alone.batches(log, starts) for row in batch.to_pylist()] == reasons


@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_row_of_a_damaged_record_has_only_broker_name_and_position_and_size_and_error(at: int) -> None:
    """The row of a record of a broker's answer has the physical offset that the record names."""
    log, starts = encode_all([RecordFields(properties=b"a\x01b")] * 3)
    place = starts[at] + 84
    log = log[:place] + b"\x00\x00\x00\x04" + log[place + 4 :]
    decoder = Decoder((*ALL_NAMES, "badRecord"), bad_records="keep", broker_name="b")
    found = list(decoder.batches(log, starts))
    assert sum(count for _batch, count in found) == 3
    rows = [row for batch, _ in found for row in rows_of(batch)]
    assert [row["badRecord"] is not None for row in rows] == [number == at for number in range(3)]
    assert {name for name, value in rows[at].items() if value is not None} == {
        "brokerName",
        "physicalOffset",
        "storeSize",
        "badRecord",
    }
    assert (rows[at]["physicalOffset"], rows[at]["storeSize"]) == (starts[at], len(log) // 3)


def test_the_json_format_of_properties_equals_the_json_format_of_rocketmq_spark() -> None:
    """Queries written for rocketmq-spark read a JSON string for each message."""
    log, starts = encode_all([RecordFields(properties='a\x01ü\x02b\x01"'.encode()), RecordFields()])
    batch = Decoder(("properties",), properties_format="json").decode(log, starts)
    assert batch.column(0).to_pylist() == ['{"a":"ü","b":"\\""}', "{}"]


def test_decoding_no_records_gives_an_empty_batch_with_the_same_schema() -> None:
    """Spark compares the schema of the first batch, whatever it holds."""
    batch = decode(b"", np.empty(0, np.int64))
    assert batch.num_rows == 0
    assert batch.schema.equals(arrow_schema(ALL_NAMES))


def test_the_memory_of_a_batch_is_bounded_even_if_small_compressed_bodies_become_very_large() -> None:
    """A batch of 16 MiB of records could take gigabytes: the sender chooses how well a body compresses."""
    body = zlib.compress(bytes(8 * 1024 * 1024))
    records = [RecordFields(body=body, sys_flag=0x301, queue_offset=at) for at in range(21)]
    records += [RecordFields(body=b"plain", queue_offset=21)]
    log, starts = encode_all(records, 64 * 1024)
    offsets: list[int] = []
    before = pa.total_allocated_bytes()
    for batch, count in Decoder(("body", "queueOffset")).batches(log, starts):
        assert batch.num_rows == count
        assert batch.nbytes < 40 * 1024 * 1024
        assert pa.total_allocated_bytes() - before < 64 * 1024 * 1024
        offsets += batch.column("queueOffset").to_pylist()
    assert offsets == list(range(22))
    (whole,) = Decoder(("queueOffset",)).batches(log, starts)
    assert whole[1] == 22


def test_a_record_with_a_body_larger_than_the_batch_limit_is_a_batch_of_its_own() -> None:
    """A body longer than the limit must still be read, or the query would never pass it."""
    log, starts = encode_all([RecordFields(body=zlib.compress(bytes(40 * 1024 * 1024)), sys_flag=0x301)], 64 * 1024)
    ((batch, count),) = Decoder(("body",)).batches(log, starts)
    assert (count, len(batch.column("body")[0].as_py())) == (1, 40 * 1024 * 1024)


@pytest.mark.parametrize(("count", "body_bytes"), [(40, 1 << 20), pytest.param(560, 4 << 20, marks=pytest.mark.slow)])
def test_decompressed_bodies_count_toward_the_size_limit_of_a_batch(count: int, body_bytes: int) -> None:
    """Bodies of megabytes are stored as kilobytes: 560 of 4 MiB once were one batch, which no Arrow array can hold."""
    packed = zlib.compress(bytes(body_bytes))
    fields = [RecordFields(body=packed, sys_flag=1) if row % 10 else RecordFields(body=b"x") for row in range(count)]
    log, starts = encode_all(fields, 0)
    rows = done = 0
    for batch, read in Decoder(("body",), RowFilter()).batches(log, np.array(starts), batch_bytes=8 << 20):
        assert batch.num_rows > 0
        assert batch.nbytes <= (8 << 20) + 1024 * batch.num_rows
        rows += batch.num_rows
        assert read == batch.num_rows
        done += read
    assert done == count


def test_the_number_of_rows_read_includes_rows_that_a_filter_omits() -> None:
    """Each step must return rows, and rows that the filter omits must not be read again."""
    packed = zlib.compress(bytes(1 << 20))
    fields = [RecordFields(body=packed, sys_flag=1, queue_offset=row) for row in range(6)]
    log, starts = encode_all(fields, 0)
    some = RowFilter(queue_offset=Range(1, 4))
    found = list(Decoder(("queueOffset", "body"), some).batches(log, np.array(starts), batch_bytes=10))
    assert [batch.column(0).to_pylist() for batch, _ in found] == [[1], [2], [3], [4]]
    assert [read for _, read in found] == [2, 1, 1, 2]
    raw = list(Decoder(("body",), some, raw_body=True).batches(log, np.array(starts), batch_bytes=10))
    assert [(batch.num_rows, read) for batch, read in raw] == [(4, 6)]

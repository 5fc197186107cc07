"""Everything else is derived from the record: it must come back as it was written, and garbage must never be taken for one."""

from __future__ import annotations

import string
import struct
import zlib

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flintmq.core.record import record as rec
from flintmq.core.record.batch_records import batch_records, record_sizes
from flintmq.core.record.host import pack_host
from flintmq.core.record.record import (
    MessageExtBrokerInner,
    Record,
    RecordError,
    decode_record,
    decode_records,
    encode_blank,
    encode_record,
    record_size,
    store_timestamp_at,
)
from flintmq.core.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from flintmq.testing.store import batch, message
from flintmq.tests.support.effort import examples
from flintmq.tests.support.records import RecordFields
from flintmq.tests.support.strict_reader import strict_record

V4 = pack_host("10.1.2.3", 65535)
V6 = pack_host("fd00::2", 10911)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PLACES32 = st.integers(0, 2**31 - 1)
PLACES64 = st.integers(0, 2**63 - 1)
TOPICS = st.text(string.ascii_letters + string.digits + "%|_-", min_size=1, max_size=127)


@attrs.frozen
class Placed:
    """A message and where it is put."""

    message: MessageExtBrokerInner
    queue_offset: int
    physical: int
    store_timestamp_ms: int

    def encode(self) -> bytes:
        size = record_size(self.message)
        pieces = encode_record(self.message, size, self.queue_offset, self.physical, self.store_timestamp_ms)
        raw = b"".join(pieces)
        assert len(raw) == size
        return raw


def hosts() -> st.SearchStrategy[bytes]:
    ips = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
    return st.builds(lambda ip, port: ip + struct.pack(">i", port), ips, st.integers(0, 65_535))


@st.composite
def placed(draw: st.DrawFn) -> Placed:
    inner = MessageExtBrokerInner(
        draw(TOPICS),
        draw(PLACES32),
        draw(st.binary(max_size=300)),
        {},
        draw(st.binary(max_size=300)),
        draw(INT64),
        draw(hosts()),
        draw(hosts()),
        draw(INT32),
        draw(INT32) & ~(BORN_HOST_V6 | STORE_HOST_V6),
        draw(INT32),
        draw(INT64),
    )
    return Placed(inner, draw(PLACES64), draw(INT64), draw(INT64))


def flags_of(inner: MessageExtBrokerInner) -> int:
    v6 = (BORN_HOST_V6 if len(inner.born_host) == 20 else 0) | (STORE_HOST_V6 if len(inner.store_host) == 20 else 0)
    return inner.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | v6


def expected(item: Placed, size: int) -> Record:
    inner = item.message
    return Record(
        inner.topic,
        inner.queue_id,
        item.queue_offset,
        item.physical,
        size,
        inner.flag,
        flags_of(inner),
        zlib.crc32(inner.body) & 0x7FFFFFFF,
        inner.born_timestamp_ms,
        inner.born_host,
        item.store_timestamp_ms,
        inner.store_host,
        inner.reconsume_times,
        inner.prepared_transaction_offset_bytes,
        inner.body,
        inner.properties_bytes,
    )


EMPTY = Placed(MessageExtBrokerInner("T", 0, b"", {}, b"", 0, bytes(8), bytes(8)), 0, 0, 0)
LARGEST = Placed(
    MessageExtBrokerInner("t" * 127, 2**31 - 1, b"b" * 70_000, {}, b"p" * 32_767, 2**63 - 1, V6, V6), 2**63 - 1, 0, 1
)


@given(placed(), st.binary(max_size=8), st.binary(max_size=8))
@example(EMPTY, b"", b"")
@example(LARGEST, b"x", b"y")
def test_an_encoded_record_is_decoded_unchanged(item: Placed, before: bytes, after: bytes) -> None:
    raw = item.encode()
    assert decode_record(before + raw + after, len(before)) == expected(item, len(raw))
    assert store_timestamp_at(memoryview(before + raw), len(before)) == item.store_timestamp_ms


def test_an_empty_message_needs_the_minimum_record_size_plus_the_length_of_its_topic_name() -> None:
    assert len(EMPTY.encode()) == rec.RECORD_MIN_BYTES + len(EMPTY.message.topic)


@given(st.lists(placed(), max_size=4))
def test_consecutive_records_are_decoded_in_order(items: list[Placed]) -> None:
    raw = [item.encode() for item in items]
    assert decode_records(b"".join(raw)) == [expected(item, len(one)) for item, one in zip(items, raw, strict=True)]


@given(placed(), st.data())
@settings(max_examples=examples(300))
def test_decoding_damaged_bytes_never_reads_out_of_bounds(item: Placed, data: st.DataObject) -> None:
    raw = bytearray(item.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for damaged in (bytes(raw), bytes(raw[:cut])):
        try:
            record = decode_record(damaged)
        except RecordError:
            continue
        assert record.size_bytes <= len(damaged)


@given(st.binary(max_size=200))
def test_random_bytes_after_a_record_header_are_refused_or_decoded_with_the_size_in_the_header(tail: bytes) -> None:
    for magic in (rec.MAGIC_V1, rec.MAGIC_V2):
        try:
            record = decode_record(struct.pack(">II", 8 + len(tail), magic) + tail)
        except RecordError:
            continue
        assert record.size_bytes == 8 + len(tail)


@pytest.mark.parametrize("at", range(4))
def test_a_record_with_a_changed_size_field_is_refused(at: int) -> None:
    raw = bytearray(Placed(message("T", body=b"abc"), 1, 2, 3).encode())
    raw[at] ^= 0x01
    with pytest.raises(RecordError):
        decode_record(bytes(raw) + bytes(16))


def test_a_record_with_a_changed_body_is_refused_only_if_the_crc_is_checked() -> None:
    raw = bytearray(Placed(message("T", body=b"abc"), 1, 2, 3).encode())
    raw[88] ^= 0xFF
    with pytest.raises(RecordError, match="CRC"):
        decode_record(raw)
    assert decode_record(raw, check_crc=False).body == bytes((0x61 ^ 0xFF,)) + b"bc"


def test_a_v2_record_with_a_long_topic_is_read() -> None:
    raw = Placed(message("T", body=b"abc", tags="a"), 7, 0, 3).encode()
    topic = b"t" * 300
    head, properties = raw[:91], raw[93:]
    size = len(head) + 2 + len(topic) + len(properties)
    v2 = struct.pack(">II", size, rec.MAGIC_V2) + head[8:] + struct.pack(">H", len(topic)) + topic + properties
    record = decode_record(v2)
    assert (record.topic, record.body, record.properties, record.size_bytes) == ("t" * 300, b"abc", {"TAGS": "a"}, size)


EDGES = {
    "topic": ["t" * 127, "t" * 128, "t" * 255, "t" * 300, "", "a/b", "..", "é" * 64, "a b", "\ud800"],
    "queue_id": [0, -1, 2**31 - 1, 2**31],
    "body": [b"", b"body"],
    "properties_bytes": [b"p" * length for length in (32_766, 32_767, 32_768, 40_000, 65_535, 65_536)],
    "born_timestamp_ms": [-1, 2**63 - 1, 2**63],
    "born_host": [V6, V4[:4] + b"\x7f\xff\xff\xff", V4[:4] + b"\xff" * 4, V4[:7], b"", bytes(12), bytes(21)],
    "store_host": [V6, V6[:16] + b"\x00\x01\x00\x00", V4[:4], bytes(9), bytes(20)],
    "flag": [-1, 2**31 - 1, 2**31, -(2**31) - 1],
    "sys_flag": [0x30, -1, 2**31],
    "reconsume_times": [-1, 2**31],
    "prepared_transaction_offset_bytes": [-1, 2**63],
}
"""Values around the ends of each field's range."""


@st.composite
def any_fields(draw: st.DrawFn) -> Placed:
    """A message as whoever calls the encoder may hand it over: a sound one, but for a field or two."""
    inner = message(body=b"x", KEY="value")
    for name in draw(st.lists(st.sampled_from(sorted(EDGES)), max_size=3, unique=True)):
        setattr(inner, name, draw(st.sampled_from(EDGES[name])))
    place = st.sampled_from([0, 1, 2**63 - 1, -1, 2**63])
    return Placed(inner, draw(place), draw(st.sampled_from([0, 2**40, 2**63])), draw(st.sampled_from([1, -1, 2**63])))


@given(any_fields())
@settings(max_examples=examples(200))
@example(Placed(message(body=b"x", KEY="p" * 32_766), 0, 0, 0))
@example(attrs.evolve(EMPTY, queue_offset=-1))
def test_every_encoded_record_is_decoded_by_a_reader_with_rocketmqs_strict_checks(item: Placed) -> None:
    """A record that one reader refuses ends its log for RocketMQ, and a pull's answer for its clients: none may be made."""
    try:
        raw = item.encode()
    except (ValueError, struct.error):
        return
    read = strict_record(raw)
    assert (read.topic, read.body, read.queue_offset) == (item.message.topic, item.message.body, item.queue_offset)
    assert decode_record(raw) == expected(item, len(raw))


@given(any_fields(), st.integers(1, 5))
@settings(max_examples=examples(100))
def test_every_record_of_an_encoded_batch_is_decoded_by_a_reader_with_rocketmqs_strict_checks(
    item: Placed, count: int
) -> None:
    """Batches have an encoder of their own."""
    inner = item.message
    place = item.queue_offset, item.physical, item.store_timestamp_ms
    try:
        several = batch([inner] * count)
        sizes = record_sizes(several)
        pieces, positions = batch_records(several, sizes, *place)
    except (ValueError, struct.error, OverflowError):
        return
    raw = b"".join(pieces)
    assert sum(sizes) == len(raw)
    for position, size in zip(positions, sizes, strict=True):
        at = position - item.physical
        assert strict_record(raw[at : at + size]).topic == inner.topic


def lying(topic: bytes, properties: bytes) -> bytes:
    """A record whose lengths were written without a sign, as no reader in Java takes them."""
    return RecordFields(topic=topic, properties=properties, body=b"body").encode(0)


@pytest.mark.parametrize(("topic", "properties"), [(b"T", b"p" * 32_768), (b"T", b"p" * 65_535), (b"t" * 128, b"")])
def test_a_record_is_refused_if_java_would_read_one_of_its_length_fields_as_negative(
    topic: bytes, properties: bytes
) -> None:
    """Our own readers must see what ends other readers' logs."""
    raw = lying(topic, properties)
    with pytest.raises(ValueError, match="length of -"):
        strict_record(raw)
    with pytest.raises(RecordError, match="length -"):
        decode_record(raw)


def test_encoding_a_topic_of_128_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="127"):
        record_size(message("t" * 128))


def test_the_ipv6_bits_of_sys_flag_are_set_from_the_addresses_of_born_host_and_store_host() -> None:
    """A client chooses the sysFlag it sends, and a copy of an IPv6 record may get an IPv4 store host."""
    for born in (V4, V6):
        item = Placed(message("T", body=b"x", born_host=born, store_host=V4, sys_flag=0x31), 0, 0, 0)
        record = decode_record(item.encode())
        assert record.sys_flag == (0x11 if born is V6 else 0x01)
        assert (record.born_host, record.store_host, record.body) == (born, V4, b"x")


def test_a_blank_record_begins_with_its_size_followed_by_the_blank_magic_code() -> None:
    assert encode_blank(9) == struct.pack(">II", 9, 0xCBD43194)
    with pytest.raises(RecordError, match="magic"):
        decode_record(encode_blank(200) + bytes(192))


def test_the_tags_code_of_a_message_is_the_java_hash_of_its_tags() -> None:
    assert message(tags="TagA").tags_code == 2_598_919
    assert message().tags_code == 0

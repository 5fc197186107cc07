"""The little codecs around the record: each has one peer that decides what is right, RocketMQ."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flintmq.core.io import lazy_numpy
from flintmq.core.limits import BATCH_MAX_MESSAGES
from flintmq.core.record import java_hash as java_hash_module
from flintmq.core.record import properties as properties_module
from flintmq.core.record import sys_flag
from flintmq.core.record.batch import (
    BatchError,
    BatchItem,
    MessageBatch,
    decode_batch,
    decode_columns,
    encode_batch,
    look_into,
    look_into_steps,
)
from flintmq.core.record.host import (
    MessageId,
    batch_message_id,
    decode_message_id,
    host_text,
    offset_message_id,
    pack_host,
    unpack_host,
)
from flintmq.core.record.java_hash import index_key_hash, java_hash, tags_hash
from flintmq.core.record.properties import (
    AlikeProperties,
    has_nul,
    index_columns,
    may_wait,
    properties_to_string,
    stored_properties,
    stored_value,
    string_to_properties,
    with_shared,
)


def plain_java_hash(text: str) -> int:
    """The definition, one UTF-16 unit after the other."""
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(raw), 2):
        value = (31 * value + int.from_bytes(raw[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


ANY_TEXT = st.text(st.characters(), max_size=40) | st.text("0123456789ABCDEFGHIJKLMN:;<=>?@", max_size=600)


@given(ANY_TEXT)
@example("")
@example("FD0000000000000000000000000000020EE94E0E2F2A671989890000")
@example("1_2")
@example(" 1")
@example("+1")
@example("\ud800")
@example("A" * 255)
@example("A" * 256)
@example("a" * 600)
@example("深圳😀")
def test_java_hash_follows_the_definition_of_string_hash_code(text: str) -> None:
    assert java_hash(text) == tags_hash(text) == plain_java_hash(text)


@pytest.mark.parametrize("fast", [True, False], ids=["numpy", "plain"])
@pytest.mark.parametrize(
    "text", ["a" * 256, "AZ09" * 200, "ü" * 255 + "深", "深圳😀" * 300, "k " * 16_000, "\xff" * 511]
)
def test_long_texts_have_the_same_hash_as_in_java_whether_numpy_is_used_or_not(
    text: str, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tags and keys of 32 KB are hashed by other means than ordinary ones, with numpy and without."""
    monkeypatch.setattr(lazy_numpy, "ready", lambda: fast)
    assert java_hash(text) == plain_java_hash(text)


def test_hashes_of_long_tags_are_not_cached() -> None:
    """65,536 of them would be two gigabytes that a stranger filled."""
    tags_hash("short")
    before = java_hash_module._remembered.cache_info().currsize
    for number in range(100):
        tags_hash(f"{number}" + "x" * 64)
    assert java_hash_module._remembered.cache_info().currsize == before


@given(st.text("AZaz09_-%|", max_size=127), ANY_TEXT)
@example("T", "k" * 511)
@example("T", "k" * 512)
def test_the_index_hash_combines_topic_and_key(topic: str, key: str) -> None:
    value = plain_java_hash(f"{topic}#{key}")
    assert index_key_hash(topic, key) == (0 if value == -(2**31) else abs(value))


def test_a_key_whose_java_hash_is_the_smallest_integer_has_the_index_hash_0() -> None:
    key = _key_of_min_value()
    assert plain_java_hash("#" + key) == -(2**31)
    assert index_key_hash("", key) == 0


def _key_of_min_value() -> str:
    """Greedy digits of 2**31 in base 31 behind the '#' that a topic of nothing leaves."""
    length = 7
    rest = (0x80000000 - ord("#") * 31**length) & 0xFFFFFFFF
    rest += 1 << 32
    units = []
    for place in range(length - 1, -1, -1):
        unit = min(rest // 31**place, 0xD7FF)
        units.append(unit)
        rest -= unit * 31**place
    assert rest == 0
    return "".join(map(chr, units))


# properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b\x02c\x01d\x02", {"a": "b", "c": "d"}),
        ("a\x01\x02c\x01d", {"c": "d"}),
        ("\x01b\x02c\x01d", {"c": "d"}),
        ("ab\x02c\x01d", {"c": "d"}),
        ("\x02\x02c\x01d\x02\x02", {"c": "d"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
        ("a\x01b\x01c", {"a": "b\x01c"}),
        ("WAIT\x01true\x02地区\x01深圳", {"WAIT": "true", "地区": "深圳"}),
    ],
)
def test_malformed_properties_are_read_as_rocketmq_reads_them(text: str, properties: dict[str, str]) -> None:
    assert string_to_properties(text) == properties


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12)


@given(st.dictionaries(WORDS, WORDS, max_size=6), st.booleans())
def test_message_properties_are_parsed_with_or_without_a_separator_at_the_end(
    properties: dict[str, str], old: bool
) -> None:
    text = properties_to_string(properties)
    assert not text.endswith("\x02")
    assert string_to_properties(text + "\x02" * (old and bool(text))) == properties


STORED = st.lists(
    st.sampled_from(
        ["UNIQ_KEY\x01", "TAGS\x01", "KEYS\x01", "XUNIQ_KEY\x01", "A", "B1", "ü", "\x02", "\x02UNIQ_KEY\x01"]
    ),
    max_size=7,
).map("".join)


@given(st.lists(STORED, min_size=1, max_size=4), st.integers(1, 3))
@example(["UNIQ_KEY\x01A", "UNIQ_KEY\x01\x02"], 1)
@example(["UNIQ_KEY\x01A\x02UNIQ_KEY\x01B"], 2)
@example(["TAGS\x01UNIQ_KEY\x01A"], 2)
@example(["UNIQ_KEY\x01ü"], 2)
@example(["UNIQ_KEY\x01A\x02TAGS\x01B", "UNIQ_KEY\x01B\x02TAGS\x01A"], 1)
def test_bulk_parsing_returns_the_same_message_properties_as_parsing_each_message_separately(
    texts: list[str], times: int
) -> None:
    """Messages that are alike are taken apart once; whatever lies between their keys, nobody may be given another's."""
    texts = texts * times
    expected = [string_to_properties(text) for text in texts]
    stored = [text.encode() for text in texts]
    for column in (stored, AlikeProperties.found_in(stored)):
        if column is None:
            continue
        assert [*column] == stored
        tags, keys, uniq_keys = index_columns(column)
        assert [*zip(tags, keys, [one.decode() for one in uniq_keys], strict=True)] == [
            (one.get("TAGS", ""), one.get("KEYS", ""), one.get("UNIQ_KEY", "")) for one in expected
        ]


@given(st.lists(st.text("0123456789ABCDEF", min_size=6, max_size=6), min_size=1, max_size=5))
def test_bulk_parsing_finds_the_unique_keys_of_messages_that_differ_only_in_these_keys(ids: list[str]) -> None:
    """The short way itself, which random texts seldom take, and parts of what it finds."""
    stored = [f"UNIQ_KEY\x01{one}\x02WAIT\x01true\x02TAGS\x01T\x02KEYS\x01k".encode() for one in ids]
    alike = AlikeProperties.found_in(stored)
    assert alike is not None
    tags, keys, uniq_keys = index_columns(alike)
    assert [one.decode() for one in uniq_keys] == ids
    assert [*zip(tags, keys, strict=True)] == [("T", "k")] * len(ids)
    assert [alike[number] for number in range(len(alike))] == stored
    assert [*alike[1:]] == stored[1:]
    assert {alike.length} == {*map(len, stored)}


@given(st.lists(STORED, min_size=1, max_size=4), STORED)
@example(["UNIQ_KEY\x01A", "UNIQ_KEY\x01B"], "UNIQ_KEY\x01C")
@example(["UNIQ_KEY\x01A", "UNIQ_KEY\x01B"], "TAGS\x01C")
@example(["UNIQ_KEY\x01A\x02", "UNIQ_KEY\x01B\x02"], "")
def test_properties_of_a_batch_are_appended_to_the_properties_of_each_message(texts: list[str], shared: str) -> None:
    """One separator between them, whichever form the column has; and what is shared may bring another UNIQ_KEY."""
    own = [text.encode() for text in texts]
    expected = [one + (b"" if not one or one.endswith(b"\x02") else b"\x02") + shared.encode() for one in own]
    for column in (own, AlikeProperties.found_in(own) or own):
        joined = with_shared(column, shared.encode())
        assert [*joined] == expected
        assert [*map(list, index_columns(joined))] == [*map(list, index_columns(expected))]
        assert has_nul(with_shared(column, b"\0"))
        assert not has_nul(joined)


def test_a_nul_byte_in_the_properties_of_any_message_of_a_batch_is_detected() -> None:
    """Alike are only messages whose ids are proven to have none, so that nobody looks at each id again."""
    keys = [b"A\0", b"AB"]
    assert AlikeProperties.of(b"UNIQ_KEY\x01", keys, b"") is None
    assert has_nul([b"UNIQ_KEY\x01" + key for key in keys])
    for before, behind in ((b"a\x01\0\x02", b""), (b"", b"\x02a\x01\0")):
        alike = AlikeProperties.of(before + b"UNIQ_KEY\x01", [b"AA", b"AB"], behind)
        assert alike is not None
        assert has_nul(alike)


@pytest.mark.parametrize(("tag", "remembered"), [("t", 1), ("t" * 600, 0)])
def test_tags_and_keys_shared_by_all_messages_of_a_batch_are_cached_only_if_they_are_short(
    tag: str, remembered: int
) -> None:
    """Its length is the client's choice: a thousand long ones would be megabytes."""
    behind = f"\x02TAGS\x01{tag}\x02KEYS\x01k of {tag}".encode()
    properties_module._tags_and_keys.cache_clear()
    for keys in ([b"AA", b"AB"], [b"BA", b"BB"]):
        alike = AlikeProperties.of(b"UNIQ_KEY\x01", keys, behind)
        assert alike is not None
        assert index_columns(alike) == ([tag] * 2, [f"k of {tag}"] * 2, keys)
    assert properties_module._tags_and_keys.cache_info().currsize == remembered


@pytest.mark.parametrize("text", ["TAGS\x01t{0}", "TAGS\x01t{0}\x02KEYS\x01k{1}", "KEYS\x01k\x02UNIQ_KEY\x01{1:05}"])
@pytest.mark.parametrize("count", [1, 255, 256, 700])
def test_parsing_a_batch_in_several_steps_gives_the_same_tags_and_keys_as_parsing_it_at_once(
    count: int, text: str
) -> None:
    """The index must not depend on how many messages the broker dispatches together."""
    all_stored = [text.format(number % 3, number).encode() for number in range(count)]
    stored = AlikeProperties.found_in(all_stored) or all_stored
    whole, pieces = (
        MessageBatch("T", 0, [0] * count, [b""] * count, stored, 0, b"\0" * 8, b"\0" * 8) for _ in range(2)
    )
    for step in look_into_steps(pieces):
        step()
    assert pieces.found is not None
    assert [list(column) for column in look_into(whole)] == [list(column) for column in pieces.found]


@given(st.dictionaries(WORDS, WORDS, max_size=4))
def test_stored_message_properties_behave_like_a_dict(properties: dict[str, str]) -> None:
    """Dispatchers and filters are promised a map, however late it is taken apart."""
    found = stored_properties(properties_to_string(properties).encode())
    assert isinstance(found, Mapping)
    assert found == properties == dict(found)
    assert len(found) == len(properties)
    assert list(found) == list(found.keys()) == list(properties)
    assert list(found.values()) == list(properties.values())
    assert list(found.items()) == list(properties.items())
    assert "\1" not in found
    assert found.get("\1") is None
    assert found.get("\1", "x") == "x"
    assert all(name in found and found[name] == found.get(name) == value for name, value in properties.items())


# batches

ITEMS = st.builds(BatchItem, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50), st.binary(max_size=50))


@given(st.lists(ITEMS, max_size=5))
def test_an_encoded_batch_is_decoded_unchanged(items: list[BatchItem]) -> None:
    assert decode_batch(encode_batch(items)) == items


@given(st.lists(ITEMS, min_size=1, max_size=3), st.data())
def test_a_damaged_batch_raises_only_batch_error(items: list[BatchItem], data: st.DataObject) -> None:
    raw = bytearray(encode_batch(items))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    for damaged in (bytes(raw), bytes(raw[: data.draw(st.integers(0, len(raw)))])):
        try:
            decode_batch(damaged)
        except BatchError:
            continue


@given(st.lists(st.tuples(st.binary(min_size=9, max_size=9), st.binary(min_size=5, max_size=5)), max_size=8), st.data())
def test_batch_items_are_decoded_unchanged_whether_or_not_their_sizes_are_equal(
    pairs: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    """It must yield to the general decoder as soon as any item differs in size or in its fields."""
    items = [BatchItem(number, body, stored) for number, (body, stored) in enumerate(pairs)]
    assert decode_batch(encode_batch(items)) == items
    if items:
        other = BatchItem(7, data.draw(st.binary(max_size=20)), data.draw(st.binary(max_size=20)))
        items.insert(data.draw(st.integers(0, len(items))), other)
        assert decode_batch(encode_batch(items)) == items
        flags, bodies, own = decode_columns(encode_batch(items))
        assert list(map(BatchItem, flags, bodies, own)) == items


def test_a_batch_of_too_many_messages_is_refused() -> None:
    item = BatchItem(0, b"", b"")
    assert len(decode_batch(encode_batch([item] * BATCH_MAX_MESSAGES))) == BATCH_MAX_MESSAGES
    with pytest.raises(BatchError, match="more than"):
        decode_batch(encode_batch([item] * (BATCH_MAX_MESSAGES + 1)))


# hosts and message ids


@given(st.ip_addresses(), st.integers(0, 65_535))
def test_packed_hosts_are_unpacked_unchanged(ip: object, port: int) -> None:
    packed = pack_host(str(ip), port)
    assert len(packed) in (8, 20)
    assert unpack_host(packed) == (str(ip), port)
    assert unpack_host(memoryview(packed)) == (str(ip), port)


def test_the_ipv6_address_of_a_host_is_formatted_in_brackets() -> None:
    assert host_text(pack_host("10.0.0.1", 10911)) == "10.0.0.1:10911"
    assert host_text(pack_host("fe80::1%eth0", 10911)) == "[fe80::1]:10911"


@given(st.ip_addresses(), st.integers(0, 65_535), st.integers(0, 2**63 - 1))
def test_an_encoded_message_id_is_decoded_to_its_host_and_physical_offset(ip: object, port: int, physical: int) -> None:
    text = offset_message_id(pack_host(str(ip), port).hex().upper(), physical)
    assert len(text) in (32, 56)
    assert decode_message_id(text) == decode_message_id(text.lower()) == MessageId(str(ip), port, physical)


def test_a_message_id_of_a_java_broker_is_decoded() -> None:
    assert decode_message_id("7F00000100002A9F000000000000010E") == MessageId("127.0.0.1", 10911, 270)


@pytest.mark.parametrize("text", ["AC1100010A7C18B4AAC20B4B2AD50000", "AC110001BF7C18B4AAC20B4B2AD50000"])
def test_decoding_a_unique_key_as_a_message_id_raises_an_error(text: str) -> None:
    """Both have 32 digits; what would be the port of the sender's is none, and no socket connects to it."""
    with pytest.raises(ValueError, match="must be 0 to 65535, not"):
        decode_message_id(text)


@pytest.mark.parametrize("text", ["", "7F", "7F" * 15, "ZZ" * 16, "7F" * 17, "é" * 32])
def test_a_malformed_message_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hex"):
        decode_message_id(text)


def test_transaction_bits_of_sys_flag_are_read_and_removed() -> None:
    assert sys_flag.transaction_type(0x1 | sys_flag.TRANSACTION_COMMIT) == sys_flag.TRANSACTION_COMMIT
    assert sys_flag.without_transaction(0x31 | sys_flag.TRANSACTION_ROLLBACK) == 0x31


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5))
def test_the_message_id_of_a_batch_is_the_comma_separated_list_of_the_ids_of_its_messages(offsets: list[int]) -> None:
    """A client takes the answer apart at the commas."""
    host = pack_host("127.0.0.1", 10911).hex().upper()
    assert batch_message_id(host, offsets).split(",") == [offset_message_id(host, one) for one in offsets]


@given(
    st.lists(
        st.sampled_from(
            [b"TAGS\x01a", b"TAGS\x01", b"TAGS", b"xTAGS\x01b", b"KEYS\x01k", b"\x01", b"", b"TAGS\x01\xe4\xb8"]
        )
        | st.binary(max_size=6).map(lambda raw: raw.replace(b"\x02", b""))
    ),
    st.sampled_from([b"TAGS", b"KEYS"]),
)
def test_reading_one_property_from_raw_bytes_gives_the_same_value_as_parsing_all_properties(
    entries: list[bytes], name: bytes
) -> None:
    """The log is read without taking all properties apart: repeated names, empty values, bytes that are no UTF-8."""
    stored = b"\x02".join(entries)
    assert stored_value(b"\x02" + stored + b"\x02", name) == stored_properties(stored).get(name.decode(), "")


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TRAN_MSG"])
@pytest.mark.parametrize("alike", [True, False])
def test_delayed_and_transactional_messages_in_a_batch_are_detected_by_their_properties(name: str, alike: bool) -> None:
    """Steps look at the members of such a batch only."""
    before, behind = b"TAGS\x01a\x02UNIQ_KEY\x01", b"\x02WAIT\x01true"
    for first, last in ((before, behind), (b"%b\x011\x02%b" % (name.encode(), before), behind)):
        stored = AlikeProperties.of(first, [b"1" * 32, b"2" * 32], last)
        assert stored is not None
        assert may_wait(stored if alike else list(stored)) is (first is not before)
    last = b"%b\x02%b\x01true" % (behind, name.encode())
    stored = AlikeProperties.of(before, [b"1" * 32, b"2" * 32], last)
    assert stored is not None
    assert may_wait(stored if alike else list(stored))


def test_a_batch_whose_items_have_different_sizes_is_decoded_unchanged() -> None:
    """Their lengths come out even. The second was taken for what the first one's lengths say, and swallowed the third."""
    properties = b"UNIQ_KEY\x01%032d\x02WAIT\x01true"
    alone = BatchItem(0, b"x", properties % 2).size_bytes
    items = [
        BatchItem(0, bytes(alone + 10), properties % 1),
        BatchItem(0, b"x", properties % 2),
        BatchItem(0, bytes(10), properties % 3),
    ]
    body = encode_batch(items)
    assert len(body) == 2 * items[0].size_bytes
    assert decode_batch(body) == items

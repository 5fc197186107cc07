"""Ext files hold what a queue unit has no room for: written as RocketMQ does, never lied by after a crash."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from flintmq.config.rocketmq.system_topics import DELETED_TOPIC
from flintmq.core.errors import StoreFormatError, StoreFullError
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.kernel.ports import DispatchRequest, MessageFilter, RecordBatch
from flintmq.core.record.java_hash import tags_hash
from flintmq.core.record.queue_unit import MAX_ADDRESS, is_address
from flintmq.core.store.message_store import MessageStore, open_store
from flintmq.core.store.opened_store import recover
from flintmq.dispatchers.consume_queue.consume_queue_ext import ConsumeQueueExt, ExtUnit
from flintmq.plugins.filters.plugin import TagFilter
from flintmq.testing.store import message, opened, snapshot, store_spec
from flintmq.tests.support.faulty_disk import FaultyDisk

LEAST_LONG = -(2**63)
ON: dict[str, Any] = {"consume_queue_ext_enable": True, "consume_queue_ext_file_bytes": 1024}
OFF: dict[str, Any] = {**ON, "consume_queue_ext_enable": False}
QUEUES = ("consumequeue", "consumequeue_ext")


def request(number: int, bit_map: bytes | None = None, tags_code: int = 65) -> DispatchRequest:
    return DispatchRequest("T", 0, number * 100, 100, tags_code, 1_000 + number, number, "", "", 0, 0, {}, bit_map)


def ext_of(root: Path, file_bytes: int = 128) -> ConsumeQueueExt:
    return ConsumeQueueExt(OS_DISK, root, "T", 0, file_bytes)


def stream(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "T" / "0").iterdir()))


class BitMaps:
    """Sets a bit map, as the dispatcher before the queues does."""

    def dispatch(self, batch: RecordBatch) -> None:
        for entry in batch.requests():
            entry.bit_map = bytes([entry.queue_offset % 256])


class WantsEven:
    """A filter that believes the bit map of :class:`BitMaps`."""

    needs_properties = False

    def __init__(self) -> None:
        self.asked: list[int] = []

    def matches_tags_code(self, tags_code: int) -> bool:
        self.asked.append(tags_code)
        return True

    def matches_bit_map(self, bit_map: bytes, store_timestamp_ms: int) -> bool:
        return bit_map[0] % 2 == 0

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        return True


def opened_with_bit_maps(root: Path, **options: Any) -> MessageStore:
    return open_store(store_spec(root, **options), lambda opened: [BitMaps(), opened.consume_queues, opened.index])


def fill(store: MessageStore, count: int, tags: Sequence[str] = ("A", "B", "C")) -> None:
    for number in range(count):
        store.put([message(tags=tags[number % len(tags)], keys=f"k{number}")])
        store.dispatch()


def offsets(store: MessageStore, wanted: MessageFilter | None) -> list[int]:
    found: list[int] = []
    at = 0
    while at < store.reader.max_queue_offset("T", 0):
        result = store.reader.get_message("T", 0, at, 1, wanted)
        if result.message_count:
            found.append(result.next_begin_offset - 1)
        at = result.next_begin_offset
    return found


# --- the stream ---


def test_ext_files_of_consume_queues_have_the_same_format_as_in_rocketmq(tmp_path: Path) -> None:
    """Size, tags code, store time, bit map; a file that is full ends with -1 and holds nothing in its last four bytes."""
    ext = ext_of(tmp_path)
    assert ext.put([request(0), request(1, b"\x01\x02", -5)]) == [LEAST_LONG, LEAST_LONG + 20]
    assert ext.put([request(2, bytes(62)), request(3, bytes(63))]) == [LEAST_LONG + 42, LEAST_LONG + 128]
    first = struct.pack(">hqqh", 20, 65, 1000, 0) + struct.pack(">hqqh", 22, -5, 1001, 2) + b"\x01\x02"
    third = struct.pack(">hqqh", 82, 65, 1002, 62) + bytes(62)
    fourth = struct.pack(">hqqh", 83, 65, 1003, 63) + bytes(63)
    assert len(first + third) == 128 - 4
    assert stream(tmp_path) == first + third + b"\xff\xff\0\0" + fourth + bytes(128 - len(fourth))
    assert ext.get(LEAST_LONG + 20) == ExtUnit(-5, 1001, b"\x01\x02")
    assert ext.get(LEAST_LONG + 128) == ExtUnit(65, 1003, bytes(63))
    ext.close()


def test_extension_units_written_in_batches_or_singly_give_the_same_ext_files(tmp_path: Path) -> None:
    """How records are batched depends on the load; the bytes must not."""
    requests = [request(n, bytes(n % 40) if n % 3 else None) for n in range(60)]
    one, many = ext_of(tmp_path / "one"), ext_of(tmp_path / "many")
    assert [ext_code for entry in requests for ext_code in one.put([entry])] == many.put(requests)
    assert stream(tmp_path / "one") == stream(tmp_path / "many")
    one.close()
    many.close()


def test_a_bit_map_too_large_for_a_consume_queue_ext_file_is_not_stored(tmp_path: Path) -> None:
    """A bit map larger than a file, or beyond the size field, has no place; the message must be found all the same."""
    ext = ext_of(tmp_path)
    assert ext.put([request(0, bytes(105))]) == [65]
    assert ext.put([request(1, bytes(104))]) == [LEAST_LONG]
    ext.close()


def test_ext_addresses_are_distinguished_from_tags_codes() -> None:
    """Every Java hash and every delivery time is greater than every address."""
    assert is_address(MAX_ADDRESS)
    assert not any(is_address(code) for code in (MAX_ADDRESS + 1, -(2**31), 0, 2**31 - 1, 2**62))


def test_reading_an_ext_address_where_no_valid_unit_begins_returns_none(tmp_path: Path) -> None:
    """After a crash an address may lead to zeros, to rubbish, or past the end."""
    ext = ext_of(tmp_path)
    assert ext.get(LEAST_LONG) is None
    ext.put([request(0)])
    for address in (LEAST_LONG + 20, LEAST_LONG + 3, LEAST_LONG + 127, LEAST_LONG + 128, 65, 0):
        assert ext.get(address) is None
    file = ext.files.files[0]
    file.region.write(0, struct.pack(">h", 19))
    assert ext.get(LEAST_LONG) is None
    file.region.write(0, struct.pack(">hqqh", 20, 1, 1, 500))
    assert ext.get(LEAST_LONG) is None
    ext.close()


@pytest.mark.parametrize("kept", range(0, 12))
def test_truncating_and_refilling_ext_files_gives_the_original_bytes(tmp_path: Path, kept: int) -> None:
    """Recovery cuts behind the last address that the queue knows: what was behind leaves no trace."""
    requests = [request(n, bytes([n + 1]) * (n * 5 % 23)) for n in range(12)]
    ext = ext_of(tmp_path)
    addresses = ext.put(requests)
    whole = stream(tmp_path)
    ext.close()
    again = ext_of(tmp_path)
    again.load()
    again.end_after(addresses[kept - 1] if kept else None)
    if not kept:
        assert not any(stream(tmp_path))
    assert again.put(requests[kept:]) == addresses[kept:]
    assert stream(tmp_path) == whole
    again.close()


def test_the_ext_address_of_a_damaged_extension_unit_is_not_reused_for_a_new_unit(tmp_path: Path) -> None:
    """Else an old message would be filtered by the tag of a new one."""
    ext = ext_of(tmp_path)
    addresses = ext.put([request(n) for n in range(3)])
    ext.files.files[0].region.write(40, bytes(20))
    ext.end_after(addresses[2])
    assert ext.put([request(9)]) == [LEAST_LONG + 128]
    assert ext.get(addresses[2]) is None
    assert ext.get(addresses[1]) is not None
    ext.end_after(LEAST_LONG + 128 * 7 + 20)
    assert not list((tmp_path).iterdir())
    assert ext.put([request(10)]) == [LEAST_LONG + 128 * 8]
    ext.close()


# --- in the store ---


def test_filtered_reads_return_the_same_messages_with_and_without_consume_queue_ext_files(tmp_path: Path) -> None:
    """Tags filter alike whether their codes lie in the queue or beside it; without a filter nothing is looked up."""
    for name, options in (("off", OFF), ("on", ON)):
        with opened(tmp_path / name, **options) as store:
            fill(store, 40)
            assert offsets(store, TagFilter(frozenset({tags_hash("B")}))) == list(range(1, 40, 3))
            assert offsets(store, None) == list(range(40))
    assert not (tmp_path / "off" / "consumequeue_ext").exists()
    units = [raw[2] for raw in struct.iter_unpack(">qiq", b"".join(snapshot(tmp_path / "on", "consumequeue").values()))]
    assert units[:40] == [LEAST_LONG + 20 * n for n in range(40)]


def test_old_consume_queue_extensions_are_still_read_after_extensions_are_disabled(tmp_path: Path) -> None:
    """Switching the option off must not blind the broker to what it wrote; new messages have their codes in the queue."""
    with opened(tmp_path, **ON) as store:
        fill(store, 7)
    before = snapshot(tmp_path, "consumequeue_ext")
    with opened(tmp_path, **OFF) as store:
        fill(store, 6)
        assert offsets(store, TagFilter(frozenset({tags_hash("A")}))) == [0, 3, 6, 7, 10]
        queue = store.consume_queues.find("T", 0)
        assert queue is not None
        assert [unit[2] for unit in queue.units(5, 5)] == [tags_hash(tag) for tag in "CAABC"]
    assert snapshot(tmp_path, "consumequeue_ext") == before
    with opened(tmp_path, **ON) as store:
        fill(store, 3)
        assert offsets(store, TagFilter(frozenset({tags_hash("A")}))) == [0, 3, 6, 7, 10, 13]


def test_a_message_filter_uses_the_bit_map_that_was_stored_for_the_message(tmp_path: Path) -> None:
    """That is what they are for; a message stored without one is judged by its tags code."""
    store = opened_with_bit_maps(tmp_path, **ON)
    fill(store, 10)
    wanted = WantsEven()
    assert offsets(store, wanted) == [0, 2, 4, 6, 8]
    assert wanted.asked == []
    store.close()
    with opened(tmp_path, **ON) as plain:
        fill(plain, 2)
        assert offsets(plain, wanted) == [0, 2, 4, 6, 8, 10, 11]
        assert wanted.asked == [tags_hash("A"), tags_hash("B")]


def test_a_tag_filter_excludes_no_message_whose_ext_file_was_deleted(tmp_path: Path) -> None:
    """Nothing that can be consumed may be hidden: the client looks at the tag itself."""
    with opened(tmp_path, **ON) as store:
        fill(store, 5)
    shutil.rmtree(tmp_path / "consumequeue_ext")
    with opened(tmp_path, **ON) as store:
        assert offsets(store, TagFilter(frozenset({tags_hash("B")}))) == [0, 1, 2, 3, 4]
        fill(store, 5)
        assert offsets(store, TagFilter(frozenset({tags_hash("B")}))) == [0, 1, 2, 3, 4, 6, 9]


def test_deleted_files_of_consume_queues_are_rebuilt_byte_for_byte_from_the_commit_log(tmp_path: Path) -> None:
    """Queues and what lies beside them are derived: deleted together or apart, they come back byte for byte."""
    store = opened_with_bit_maps(tmp_path, **ON)
    fill(store, 90)
    store.close()
    before = snapshot(tmp_path, *QUEUES)
    assert len(before) > 10
    for gone in (QUEUES, QUEUES[:1]):
        for folder in gone:
            shutil.rmtree(tmp_path / folder)
        opened_with_bit_maps(tmp_path, **ON).close()
        assert snapshot(tmp_path, *QUEUES) == before


def test_recovery_restores_queue_and_ext_files_byte_for_byte_after_a_crash(tmp_path: Path) -> None:
    """After a crash the queue's end is behind the log's; both kinds of units are written again where they were."""
    store = opened_with_bit_maps(tmp_path, **ON)
    fill(store, 60)
    store.close()
    before = snapshot(tmp_path, *QUEUES)
    newest = sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:20].ljust(newest.stat().st_size, b"\0"))
    (tmp_path / "abort").touch()
    opened_with_bit_maps(tmp_path, **ON).close()
    assert snapshot(tmp_path, *QUEUES) == before


@pytest.mark.parametrize(
    ("within", "after"), [("consumequeue", 0), ("consumequeue", 5), ("consumequeue_ext", 0), ("consumequeue_ext", 1)]
)
def test_consume_queue_files_are_complete_after_the_disk_was_temporarily_full(
    tmp_path: Path, within: str, after: int
) -> None:
    """What could not be described is described later, in the same place, whichever of the two files had no room."""
    with opened(tmp_path / "whole", **ON) as store:
        fill(store, 90)
    disk = FaultyDisk()
    with opened(tmp_path / "full", disk=disk, **ON) as store:
        fault = disk.fail("map_file", within=within, after=after, times=1)
        for number in range(90):
            if store.reput.error is not None:
                store.dispatch()
            store.put([message(tags="ABC"[number % 3], keys=f"k{number}")])
            store.dispatch()
        assert fault.hits == 1
        assert store.reput.error is None
    assert snapshot(tmp_path / "full", *QUEUES) == snapshot(tmp_path / "whole", *QUEUES)


def test_ext_files_are_deleted_if_their_messages_expire_or_their_topic_is_deleted(tmp_path: Path) -> None:
    """Files of messages that are gone would fill the disk."""
    with opened(tmp_path, **ON) as store:
        fill(store, 120)
        store.consume_queues.flush(0)
        queue = store.consume_queues.find("T", 0)
        assert queue is not None
        assert queue.ext is not None
        starts = [file.start for file in queue.ext.files.files]
        unit = queue.unit(70)
        assert unit is not None
        queue.expire(lambda physical: physical < unit[0])
        assert [file.start for file in queue.ext.files.files] == starts[1:]
        assert offsets_from(store, 70) == list(range(70, 120))
        store.delete_topic("T")
    assert [folder.name for folder in (tmp_path / "consumequeue_ext").iterdir()] == [DELETED_TOPIC]


def offsets_from(store: MessageStore, queue_offset: int) -> list[int]:
    return [
        offset
        for offset in range(queue_offset, store.reader.max_queue_offset("T", 0))
        if store.reader.get_message(
            "T", 0, offset, 1, TagFilter(frozenset({tags_hash(tag) for tag in "ABC"}))
        ).message_count
    ]


def test_a_store_does_not_open_if_the_configured_size_of_its_ext_files_has_changed(tmp_path: Path) -> None:
    """The address says where in the stream a unit is, so the size must be the one it was written with."""
    with opened(tmp_path, **ON) as store:
        fill(store, 1)
    with pytest.raises(StoreFormatError, match="mappedFileSizeConsumeQueueExt"):
        recover(store_spec(tmp_path, consume_queue_ext_file_bytes=2048))


def test_putting_an_ext_unit_on_a_full_disk_raises_store_full_error(tmp_path: Path) -> None:
    """The queues' dispatcher stands still on a full disk, it does not go on without."""
    disk = FaultyDisk()
    disk.fail("map_file", within="consumequeue_ext")
    ext = ConsumeQueueExt(disk, tmp_path / "consumequeue_ext", "T", 0, 128)
    with pytest.raises(StoreFullError):
        ext.put([request(0)])

"""What a pull sees: RocketMQ's table of statuses, and its limits (docs/internals/algorithms.md, Pull)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from flintmq.core.record.record import RECORD_MIN_BYTES, decode_records
from flintmq.core.store.message_reader import GetMessageResult, GetMessageStatus
from flintmq.core.store.message_store import MessageStore
from flintmq.testing.store import message, opened

S = GetMessageStatus


@attrs.frozen
class Filter:
    """Tags codes, and maybe a property."""

    codes: frozenset[int]
    needs_properties: bool = False

    def matches_tags_code(self, tags_code: int) -> bool:
        return tags_code in self.codes

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        return properties.get("ok") == "yes"


def seen(result: GetMessageResult) -> list[int]:
    return [record.queue_offset for piece in result.slices for record in decode_records(piece)]


def filled(store: MessageStore, count: int, size_bytes: int = 100, **properties: str) -> None:
    body = b"b" * (size_bytes - RECORD_MIN_BYTES - 1)
    for _ in range(count):
        store.put([message(body=body, **properties)])
    while store.dispatch():
        pass


@pytest.mark.parametrize(
    ("count", "asked", "status", "following"),
    [
        (0, 0, S.NO_MATCHED_LOGIC_QUEUE, 0),
        (0, 9, S.NO_MATCHED_LOGIC_QUEUE, 0),
        (5, 0, S.FOUND, 5),
        (5, 4, S.FOUND, 5),
        (5, 5, S.OFFSET_OVERFLOW_ONE, 5),
        (5, 6, S.OFFSET_OVERFLOW_BADLY, 5),
        (5, 2**62, S.OFFSET_OVERFLOW_BADLY, 5),
        (5, -1, S.OFFSET_TOO_SMALL, 0),
        (10, 3, S.FOUND, 10),
        (12, 3, S.FOUND, 10),
        (12, 10, S.FOUND, 12),
    ],
)
def test_reading_a_queue_at_any_offset_returns_the_same_status_as_in_rocketmq(
    tmp_path: Path, count: int, asked: int, status: GetMessageStatus, following: int
) -> None:
    """Ten units a queue file: a read ends with its file, and the next one begins there."""
    with opened(tmp_path) as store:
        filled(store, count)
        result = store.reader.get_message("T", 0, asked, 32, None)
        assert (result.status, result.next_begin_offset) == (status, following)
        assert (result.min_offset, result.max_offset) == ((0, count) if count else (0, 0))
        assert seen(result) == (list(range(asked, following)) if status is S.FOUND else [])
        assert result.message_count == len(seen(result))
        assert result.size_bytes == sum(len(piece) for piece in result.slices)


def test_reading_an_unknown_topic_creates_no_queue(tmp_path: Path) -> None:
    """In RocketMQ every question about an unknown topic makes queue objects: a leak not copied."""
    with opened(tmp_path) as store:
        store.reader.get_message("nobody", 0, 0, 32, None)
        assert store.reader.max_queue_offset("nobody", 0) == store.reader.min_queue_offset("nobody", 0) == 0
        assert store.reader.queue_offset_by_time("nobody", 0, 1) == 0
        assert store.reader.earliest_message_store_time("nobody", 0) == -1
        assert store.reader.topics() == set()
        assert not (tmp_path / "consumequeue").exists()


def test_reading_an_empty_queue_returns_the_status_no_message_in_queue(tmp_path: Path) -> None:
    """A queue whose log was lost: there is an object, and nothing in it."""
    with opened(tmp_path) as store:
        filled(store, 1)
        queue = store.consume_queues.find("T", 0)
        assert queue is not None
        queue.truncate_physical(0)
        assert store.reader.get_message("T", 0, 0, 32, None).status is S.NO_MESSAGE_IN_QUEUE


def test_a_read_below_the_minimum_queue_offset_returns_offset_too_small(tmp_path: Path) -> None:
    """Old messages were deleted: the consumer is told where the queue begins."""
    with opened(tmp_path) as store:
        filled(store, 25, 1000)
        store.commit_log.queue.delete_before(2 * 4096)
        store.consume_queues.correct_min_offsets(store.commit_log.min_offset_bytes)
        low = store.reader.min_queue_offset("T", 0)
        assert low == 8
        result = store.reader.get_message("T", 0, 3, 32, None)
        assert (result.status, result.next_begin_offset) == (S.OFFSET_TOO_SMALL, low)
        assert seen(store.reader.get_message("T", 0, low, 2, None)) == [8, 9]
        assert store.reader.message_store_time("T", 0, 3) == -1


def test_a_read_skips_records_whose_log_file_was_just_deleted(tmp_path: Path) -> None:
    """The queue still says 0, the log begins later: the read goes on with the first file there is."""
    with opened(tmp_path, consume_queue_file_bytes=2000) as store:
        filled(store, 25, 1000)
        store.commit_log.queue.delete_before(2 * 4096)
        assert seen(store.reader.get_message("T", 0, 0, 5, None)) == [8, 9, 10, 11, 12]
        all_gone = store.reader.get_message("T", 0, 0, 32, Filter(frozenset({1})))
        assert (all_gone.status, all_gone.next_begin_offset) == (S.NO_MATCHED_MESSAGE, 25)
        store.commit_log.queue.delete_before(2**40)
        queue = store.consume_queues.find("T", 0)
        assert queue is not None
        queue.truncate_physical(store.commit_log.min_offset_bytes)
        gone = store.reader.get_message("T", 0, 0, 32, None)
        assert gone.status is S.MESSAGE_WAS_REMOVING
        assert gone.next_begin_offset == gone.max_offset


@pytest.mark.parametrize(
    ("options", "max_num", "expected"),
    [
        ({}, 32, 32),
        ({}, 5, 5),
        ({}, 64, 32),
        ({"max_transfer_count_in_memory": 64}, 64, 50),
        ({"max_transfer_bytes_in_memory": 1000}, 32, 10),
        ({"max_transfer_bytes_in_memory": 999}, 32, 9),
        ({"max_transfer_bytes_in_memory": 1}, 32, 1),
        ({}, 0, 1),
        ({"access_in_memory_ratio": 0}, 32, 8),
        ({"access_in_memory_ratio": 0, "max_transfer_bytes_in_disk": 300}, 32, 3),
        ({"access_in_memory_ratio": 0, "max_transfer_bytes_in_disk": 50}, 32, 1),
    ],
)
def test_a_read_is_limited_by_the_number_of_messages_and_by_their_total_size(
    tmp_path: Path, options: dict[str, Any], max_num: int, expected: int
) -> None:
    """In memory and on disk have limits of their own; the first message is always given."""
    with opened(tmp_path, consume_queue_file_bytes=20_000, commit_log_file_bytes=16_384, **options) as store:
        filled(store, 50)
        result = store.reader.get_message("T", 0, 0, max_num, None)
        assert seen(result) == list(range(expected))
        assert result.next_begin_offset == expected


def test_messages_adjacent_in_the_log_are_returned_as_a_single_slice(tmp_path: Path) -> None:
    """Fewer pieces to send; a file's end or another queue's message ends a slice."""
    with opened(tmp_path, consume_queue_file_bytes=2000) as store:
        filled(store, 45)
        result = store.reader.get_message("T", 0, 0, 32, None)
        assert [len(piece) for piece in result.slices] == [3200]
        assert [len(piece) for piece in store.reader.get_message("T", 0, 30, 32, None).slices] == [1000, 500]
        for queue_id in (1, 2, 1, 1):
            store.put([message(queue_id=queue_id)])
        store.dispatch()
        assert len(store.reader.get_message("T", 1, 0, 32, None).slices) == 2


def test_a_filter_is_applied_to_the_tag_code_and_then_to_properties(tmp_path: Path) -> None:
    """Messages that do not match are skipped, and the next pull begins after them."""
    with opened(tmp_path, consume_queue_file_bytes=20_000) as store:
        for number in range(12):
            store.put([message(tags="AB"[number % 2], ok="yes" if number % 3 == 0 else "no")])
        store.dispatch()
        code_a = message(tags="A").tags_code
        by_code = store.reader.get_message("T", 0, 0, 32, Filter(frozenset({code_a})))
        assert seen(by_code) == [0, 2, 4, 6, 8, 10]
        assert by_code.next_begin_offset == 12
        limited = store.reader.get_message("T", 0, 1, 2, Filter(frozenset({code_a})))
        assert (seen(limited), limited.next_begin_offset) == ([2, 4], 5)
        both = store.reader.get_message("T", 0, 0, 32, Filter(frozenset({code_a}), needs_properties=True))
        assert (both.status, seen(both)) == (S.FOUND, [0, 6])
        none = store.reader.get_message("T", 0, 0, 32, Filter(frozenset()))
        assert (none.status, none.next_begin_offset, none.slices) == (S.NO_MATCHED_MESSAGE, 12, [])


def test_a_read_examines_at_most_800_consume_queue_units(tmp_path: Path) -> None:
    """A filter that matches nothing must not hold the loop for a whole queue."""
    sizes = {"consume_queue_file_bytes": 40_000, "commit_log_file_bytes": 1 << 20}
    with opened(tmp_path, **sizes) as store:
        store.put([message() for _ in range(1000)])
        store.dispatch()
        result = store.reader.get_message("T", 0, 0, 32, Filter(frozenset({1})))
        assert (result.status, result.next_begin_offset) == (S.NO_MATCHED_MESSAGE, 800)
        assert store.reader.get_message("T", 0, 800, 32, Filter(frozenset({1}))).next_begin_offset == 1000


def test_message_slices_of_a_read_stay_readable_after_the_store_is_closed(tmp_path: Path) -> None:
    """An answer that is being sent while the broker stops must not read unmapped memory."""
    with opened(tmp_path) as store:
        filled(store, 3)
        result = store.reader.get_message("T", 0, 0, 32, None)
    assert seen(result) == [0, 1, 2]


def test_get_message_suggests_the_slave_if_the_offset_is_far_behind_the_end_of_the_log(tmp_path: Path) -> None:
    """Such a read needs the disk of the master, so a slave can serve it better."""
    with opened(tmp_path, access_in_memory_ratio=0) as store:
        filled(store, 3)
        assert store.reader.get_message("T", 0, 0, 1, None).suggest_slave
        assert not store.reader.check_in_mem_by_consume_offset("T", 0, 0)
        assert store.reader.check_in_mem_by_consume_offset("T", 0, 99)
    with opened(tmp_path) as store:
        assert not store.reader.get_message("T", 0, 0, 1, None).suggest_slave
        assert store.reader.check_in_mem_by_consume_offset("T", 0, 0)

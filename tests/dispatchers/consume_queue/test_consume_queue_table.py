"""A queue file is read by offset alone: where a unit lies is what it means."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.core.errors import StoreFormatError, StoreFullError
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.kernel.ports import DispatchRequest, RecordBatch
from flintmq.core.log.mapped_file_queue import MappedFile
from flintmq.dispatchers.consume_queue.consume_queue import ConsumeQueue
from flintmq.dispatchers.consume_queue.consume_queue_table import ConsumeQueueTable
from flintmq.testing.store import message, opened, snapshot
from flintmq.tests.support.effort import examples
from flintmq.tests.support.faulty_disk import FaultyDisk

FILE_BYTES = 200


def request(number: int, queue_offset: int | None = None, topic: str = "T", queue_id: int = 0) -> DispatchRequest:
    """The number-th record of 100 bytes."""
    at = queue_offset if queue_offset is not None else number
    return DispatchRequest(topic, queue_id, number * 100, 100, -number, number, at, "", "", 0, 0, {})


def table(path: Path, disk: FaultyDisk | None = None) -> ConsumeQueueTable:
    made = ConsumeQueueTable(disk or OS_DISK, path, FILE_BYTES)
    made.load()
    made.recover()
    return made


def unit(number: int) -> tuple[int, int, int]:
    return number * 100, 100, -number


def test_a_queue_that_another_thread_deletes_during_a_read_has_no_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that syncs the queues must not end because a topic was deleted between two of its steps."""
    queues = table(tmp_path)
    queues.dispatch(RecordBatch.of_requests([request(number) for number in range(3)]))
    queue = queues.find("T", 0)
    assert queue is not None
    find = queue.files.find

    def find_and_delete(position: int) -> object:
        file = find(position)
        queues.delete_queue("T", 0)
        return file

    monkeypatch.setattr(queue.files, "find", find_and_delete)
    assert queue.unit(1) is None
    assert queues.find("T", 0) is None
    queues.close()


def test_a_queue_that_another_thread_deletes_during_a_sync_does_not_stop_the_sync_of_other_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics may be deleted at any time; the syncs of all queues would end until the next start."""
    queues = table(tmp_path)
    queues.dispatch(RecordBatch.of_requests([request(0), request(1, 0, "U")]))
    flush = MappedFile.flush

    def delete_and_flush(file: MappedFile) -> int:
        queues.delete_queue("T", 0)
        return flush(file)

    monkeypatch.setattr(MappedFile, "flush", delete_and_flush)
    queues.flush(0)
    other = queues.find("U", 0)
    assert other is not None
    assert [(file.flushed, file.wrote) for file in other.files.files] == [(20, 20)]
    assert queues.find("T", 0) is None
    queues.close()


def test_a_queue_whose_files_cannot_be_deleted_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = table(tmp_path)
    queues.dispatch(RecordBatch.of_requests([request(0)]))
    queue = queues.find("T", 0)
    assert queue is not None

    def fail(_queue: ConsumeQueue) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "destroy", fail)
        with pytest.raises(OSError, match="no"):
            queues.delete_queue("T", 0)
    assert queues.find("T", 0) is queue
    queues.close()


@pytest.mark.parametrize("first", [0, 1, 9, 10, 13, 1_000_003])
def test_a_queue_can_begin_at_any_offset(tmp_path: Path, first: int) -> None:
    """Its first file is filled up with units of no message, also after a restart.

    See docs/internals/store-format.md, Consume queue.
    """
    queues = table(tmp_path)
    queues.dispatch(RecordBatch.of_requests([request(first + n) for n in range(12)]))
    for made in (queues, table(tmp_path)):
        made.correct_min_offsets(0)
        queue = made.find("T", 0)
        assert queue is not None
        assert (queue.min_queue_offset, queue.max_queue_offset) == (first, first + 12)
        assert [queue.unit(first + n) for n in range(12)] == [unit(first + n) for n in range(12)]
        assert queue.max_physical_offset_bytes == (first + 12) * 100
        made.close()
    raw = (tmp_path / "T/0" / f"{first // 10 * FILE_BYTES:020d}").read_bytes()
    for filler in range(first % 10):
        assert struct.unpack_from(">qiq", raw, filler * 20) == (0, 0x7FFFFFFF, 0)


@given(st.lists(st.integers(1, 15), max_size=12), st.data())
@settings(max_examples=examples(50))
def test_records_dispatched_to_a_queue_twice_are_added_to_the_queue_only_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    """After a crash records come again: from any earlier one on, in batches of any size."""
    queues = table(tmp_path_factory.mktemp("queue"))
    done = 0
    for size in sizes:
        start = data.draw(st.integers(0, done))
        queues.dispatch(RecordBatch.of_requests([request(n) for n in range(start, done + size)]))
        done += size
    queue = queues.find("T", 0)
    if queue is not None:
        assert queue.max_queue_offset == done
        assert [queue.unit(n) for n in range(done)] == [unit(n) for n in range(done)]
        assert queue.unit(done) is None
    queues.close()


@pytest.mark.parametrize("cut", range(0, 26))
def test_a_truncated_and_refilled_queue_has_the_same_files_as_a_queue_that_was_never_truncated(
    tmp_path: Path, cut: int
) -> None:
    """Cut anywhere, also at a file's edge: what remains is what a queue of so many messages is, byte for byte."""
    queues = table(tmp_path / "a")
    queues.dispatch(RecordBatch.of_requests([request(n) for n in range(25)]))
    queues.truncate(cut * 100 + 50)
    kept = min(cut, 25)
    queue = queues.find("T", 0)
    assert queue is not None
    assert queue.max_queue_offset == kept
    assert queue.max_physical_offset_bytes == (kept * 100 if kept else -1)
    queues.close()
    again = table(tmp_path / "a")
    found = again.find("T", 0)
    assert found is not None
    assert found.max_queue_offset == kept
    again.dispatch(RecordBatch.of_requests([request(n) for n in range(kept, 30)]))
    again.close()
    whole = table(tmp_path / "b")
    whole.dispatch(RecordBatch.of_requests([request(n) for n in range(30)]))
    whole.close()
    assert snapshot(tmp_path / "a") == snapshot(tmp_path / "b")


@pytest.mark.parametrize("first", [0, 7, 20])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_dispatching_a_batch_again_after_a_disk_full_error_adds_only_the_missing_queue_units(
    tmp_path: Path, first: int, after: int
) -> None:
    """The units that had room are there; the same batch again goes on behind them."""
    disk = FaultyDisk()
    queues = table(tmp_path, disk)
    batch = [request(first + n) for n in range(35)]
    disk.fail("map_file", after=after)
    with pytest.raises(StoreFullError):
        queues.dispatch(RecordBatch.of_requests(batch))
    disk.heal()
    queues.dispatch(RecordBatch.of_requests(batch))
    queue = queues.find("T", 0)
    assert queue is not None
    assert queue.max_queue_offset == first + 35
    assert [queue.unit(first + n) for n in range(35)] == [unit(first + n) for n in range(35)]
    queues.close()


def test_a_new_queue_file_is_removed_if_its_filler_units_cannot_be_written_on_a_full_disk(tmp_path: Path) -> None:
    """Left there half filled, the queue would begin at the wrong offset."""
    disk = FaultyDisk()
    queues = ConsumeQueueTable(disk, tmp_path, 200_000)
    disk.fail("allocate")
    batch = [request(9_000 + n) for n in range(3)]
    with pytest.raises(StoreFullError):
        queues.dispatch(RecordBatch.of_requests(batch))
    assert snapshot(tmp_path) == {}
    disk.heal()
    queues.dispatch(RecordBatch.of_requests(batch))
    queue = queues.find("T", 0)
    assert queue is not None
    assert queue.unit(9_001) == unit(9_001)
    queues.close()


def test_queue_files_are_allocated_before_they_are_written(tmp_path: Path) -> None:
    """A queue file found on disk may be sparse: it is backed before it is written on, or a full disk ends the process."""
    queues = table(tmp_path, FaultyDisk())
    queues.dispatch(RecordBatch.of_requests([request(n) for n in range(5)]))
    queues.close()
    again = table(tmp_path, FaultyDisk())
    again.dispatch(RecordBatch.of_requests([request(n) for n in range(5, 8)]))
    again.truncate(600)
    again.close()


def test_the_minimum_queue_offset_is_the_first_unit_whose_message_is_still_in_the_log(tmp_path: Path) -> None:
    """The first unit whose message still exists; past the end when none does."""
    queues = table(tmp_path)
    queues.dispatch(RecordBatch.of_requests([request(n) for n in range(25)]))
    queue = queues.find("T", 0)
    assert queue is not None
    for physical, minimum in ((0, 0), (1, 1), (100, 1), (1_850, 19), (2_400, 24), (2_401, 25), (99_999, 25)):
        queue.correct_min_offset(physical)
        assert queue.min_queue_offset == minimum
    assert queue.next_file_queue_offset(13) == 20
    queues.close()


def test_deleting_a_topic_deletes_its_queues_but_not_the_queues_of_other_topics(tmp_path: Path) -> None:
    """Files, folders, offsets; the next message begins at 0. The records stay in the log."""
    with opened(tmp_path) as store:
        store.put([message("A", queue_id) for queue_id in (0, 1, 3)] + [message("B", 0), message("A", 0)])
        store.dispatch()
        assert store.reader.topics() == {"A", "B"}
        store.delete_topic("A")
        assert store.reader.topics() == {"B"}
        assert not (tmp_path / "consumequeue" / "A").exists()
        assert store.reader.max_queue_offset("A", 0) == 0
        store.put([message("A", 0)])
        store.dispatch()
        assert (store.reader.min_queue_offset("A", 0), store.reader.max_queue_offset("A", 0)) == (0, 1)
        assert store.reader.max_queue_offset("B", 0) == 1
        store.delete_topic("never seen"[:5])


@pytest.mark.parametrize("topic", ["..", "a/b", "", "x" * 128, "a b", "a\x00b", "."])
def test_a_record_whose_topic_name_is_invalid_is_refused_and_creates_no_queue(tmp_path: Path, topic: str) -> None:
    """Names come from clients and from records; checked a second time where they become folders."""
    queues = table(tmp_path)
    with pytest.raises(StoreFormatError):
        queues.dispatch(RecordBatch.of_requests([request(0, topic=topic)]))
    assert snapshot(tmp_path) == {}

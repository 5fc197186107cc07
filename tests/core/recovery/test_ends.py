"""What a store has noted of itself is read back whole, or not at all; what was taken back does not count."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from flintmq.core.errors import StoreFormatError
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.io.paths import ends_path
from flintmq.core.log.mapped_file_queue import MappedFile
from flintmq.core.recovery.ends import Ends, EndsFile, QueueEnd, Tail, counter_of, notes_of_files
from flintmq.core.recovery.last_stop import boot_path
from flintmq.core.store import ends_noter
from flintmq.testing.store import message, open_store, opened, snapshot

ENDS = Ends(is_stop=True, log_end=77, queues=[QueueEnd("T", 0, 1, 9), QueueEnd("U", 3, 0, 4)])


def test_the_file_with_the_end_positions_of_log_and_queues_is_read_back_unchanged(tmp_path: Path) -> None:
    EndsFile(OS_DISK, tmp_path).write(ENDS)
    found = EndsFile(OS_DISK, tmp_path)
    assert (found.noted, found.was_in_use, found.damage) == (ENDS, False, "")


def test_a_store_is_not_marked_as_cleanly_stopped_after_a_broker_starts_to_use_the_store(
    tmp_path: Path,
) -> None:
    """That the store is as it was at a stop, and the end of a queue that is deleted; half a line is none."""
    file = EndsFile(OS_DISK, tmp_path)
    file.write(ENDS)
    file.note_use()
    file.note_deleted("T", 0)
    with ends_path(tmp_path).open("ab") as torn:
        torn.write(b'0000 {"deleted":["U",')
    found = EndsFile(OS_DISK, tmp_path)
    assert found.was_in_use
    assert found.noted is not None
    assert not found.noted.is_stop
    assert found.noted.queues == [QueueEnd("U", 3, 0, 4)]


@pytest.mark.parametrize("spoil", [lambda raw: b"", lambda raw: bytes(len(raw)), lambda raw: raw[:-9]])
def test_a_damaged_file_with_the_end_positions_of_log_and_queues_is_ignored_and_reported(
    tmp_path: Path, spoil: object
) -> None:
    EndsFile(OS_DISK, tmp_path).write(ENDS)
    path = ends_path(tmp_path)
    assert callable(spoil)
    path.write_bytes(spoil(path.read_bytes()))
    found = EndsFile(OS_DISK, tmp_path)
    assert found.noted is None
    assert found.damage


def test_the_version_counter_of_a_json_table_is_found_at_the_beginning_of_the_file() -> None:
    """Ours and RocketMQ's files begin with their version; another's has none."""
    assert counter_of(b'{\n\t"dataVersion":{\n\t\t"counter":17,\n\t\t"timestamp":1}') == 17
    assert counter_of(b"{}") == counter_of(b'{"counter":"x"}') == -1


def test_the_list_of_store_files_is_the_same_with_or_without_sizes_and_checksums(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"dataVersion":{"counter":3}}')
    (tmp_path / "config" / "topics.json.tmp").write_text("half")
    whole, counters = notes_of_files(OS_DISK, tmp_path, whole=True)
    names, _ = notes_of_files(OS_DISK, tmp_path, whole=False)
    assert whole.keys() == names.keys() == {"config/topics.json", "checkpoint", "flint/epochs"}
    assert whole["config/topics.json"].size_bytes == 29
    assert counters == {"topics.json": 3}


def test_a_start_is_refused_if_the_log_disk_is_not_mounted_even_if_no_checkpoint_was_written(tmp_path: Path) -> None:
    """The checkpoint vouches for nothing yet, and the machine was rebooted: queues described only what was synced."""
    root, log = tmp_path / "store", tmp_path / "log"
    where = {"commit_log_paths": (str(log),)}
    store = open_store(root, **where)
    store.put([message("T", body=b"1")])
    store.dispatch()
    store.services.flusher.run_once()
    shutil.copytree(root, tmp_path / "left")
    store.close()
    boot_path(tmp_path / "left").unlink()
    (tmp_path / "left" / "lock").unlink()
    shutil.rmtree(log)
    before = snapshot(tmp_path / "left", "consumequeue")
    with pytest.raises(StoreFormatError, match="not mounted"):
        open_store(tmp_path / "left", **where)
    assert snapshot(tmp_path / "left", "consumequeue") == before != {}


def test_a_store_starts_if_the_file_with_the_end_positions_of_log_and_queues_is_outdated(tmp_path: Path) -> None:
    """It knows nothing of the notes: the log, the queues and the index go further, and nothing is refused or made again."""
    with opened(tmp_path) as store:
        store.put([message("T", body=b"1")])
        store.dispatch()
    old = ends_path(tmp_path).read_bytes()
    with opened(tmp_path) as store:
        for number in range(30):
            store.put([message("T", number % 2, body=b"2" * 99)])
        store.dispatch()
        store.delete_queue("T", 1)
    ends_path(tmp_path).write_bytes(old)
    with opened(tmp_path) as store:
        assert store.mended == []
        assert store.reader.max_queue_offset("T", 0) == 16


def test_a_topic_created_again_after_deletion_begins_at_queue_offset_0(tmp_path: Path) -> None:
    """Deleting a queue takes back what was noted of it, also where the broker is killed then."""
    live = tmp_path / "live"
    store = open_store(live)
    for _ in range(9):
        store.put([message("T")])
    store.dispatch()
    store.noter.after_round(is_thorough=True)
    store.delete_topic("T")
    store.put([message("T")])
    store.dispatch()
    shutil.copytree(live, tmp_path / "left")
    store.close()
    with opened(live) as again:
        assert again.mended == []
        assert again.reader.max_queue_offset("T", 0) == 1
    with opened(tmp_path / "left") as again:
        assert again.mended == []


def test_a_log_file_that_is_deleted_while_its_end_is_read_is_left_out_of_the_recorded_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention deletes files on another thread; the syncs of the queues, which record the ends, must not stop."""
    with opened(tmp_path, commit_log_file_bytes=4096) as store:
        while len(store.commit_log.queue.files) < 4:
            store.put([message("T", body=bytes(900))])
        store.dispatch()
        store.commit_log.flush(0)
        read = ends_noter.tail_of_full

        def delete_and_read(file: MappedFile) -> Tail:
            if file.start == 0:
                store.commit_log.queue.detach_first().region.close()
            return read(file)

        monkeypatch.setattr(ends_noter, "tail_of_full", delete_and_read)
        store.noter.after_round(is_thorough=True)
        noted = EndsFile(OS_DISK, tmp_path).noted
        assert noted is not None
        assert [tail.start_offset_bytes for tail in noted.tails] == [4096, 2 * 4096, 3 * 4096]


@pytest.mark.slow
def test_writing_and_reading_the_end_positions_of_10000_queues_takes_less_than_50_ms(tmp_path: Path) -> None:
    """It is done at each start and stop, and now and then between them."""
    ends = Ends(
        is_stop=True, queues=[QueueEnd(f"topic-{number // 4}", number % 4, 0, number) for number in range(10_000)]
    )
    file = EndsFile(OS_DISK, tmp_path)
    took = []
    for _ in range(5):
        began_s = time.process_time()
        file.write(ends)
        assert EndsFile(OS_DISK, tmp_path).noted == ends
        took.append(time.process_time() - began_s)
    assert min(took) < 0.05

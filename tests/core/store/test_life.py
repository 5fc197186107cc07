"""Opening, closing, crashing: a store belongs to one broker, says what is wrong with its files, and loses nothing."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flintmq
from flintmq.core.errors import StoreError, StoreFormatError, StoreLockedError
from flintmq.core.log.store_lock import StoreLock
from flintmq.core.record.record import MAGIC_V1, RECORD_MIN_BYTES, record_size
from flintmq.core.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from flintmq.core.store.message_store import MessageStore
from flintmq.core.store.opened_store import recover
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import BY_HAND, message, open_store, opened, snapshot, store_spec
from flintmq.tests.support.effort import examples
from flintmq.tests.support.faulty_disk import FaultyDisk

FILE_BYTES = 4096
DERIVED = ("consumequeue", "index")


def fill(store: MessageStore, count: int = 1, body: bytes = b"body", queue_id: int = 0) -> None:
    for number in range(count):
        store.put([message("T", queue_id, body, keys=f"k{number}", uniq_key=f"U{number}")])
    while store.dispatch():
        pass


# the lock

_TRY = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        sys.exit(7)
"""


def taken_elsewhere(root: Path) -> bool:
    """Whether another process finds the store locked, as a Java broker would look."""
    code = subprocess.run([sys.executable, "-I", "-S", "-c", _TRY, str(root / "lock")], check=False).returncode
    assert code in (0, 7)
    return code == 7


def descriptors() -> int:
    """Return the number of open files of this process, 0 if the system has no ``/proc``."""
    folder = Path("/proc/self/fd")
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def test_a_store_opened_by_a_broker_cannot_be_opened_by_a_second_broker(tmp_path: Path) -> None:
    """Two brokers on one log would overwrite each other: not in this process, and not in another."""
    store = open_store(tmp_path)
    before = descriptors()
    for _ in range(3):
        with pytest.raises(StoreLockedError, match=r"store\.path"):
            open_store(tmp_path)
    assert descriptors() <= before
    assert taken_elsewhere(tmp_path)  # a refused attempt must not have dropped the lock
    assert (tmp_path / "lock").read_bytes() == b"lock"
    store.close()
    assert not taken_elsewhere(tmp_path)
    open_store(tmp_path).close()


def test_a_store_locked_by_another_process_cannot_be_opened(tmp_path: Path) -> None:
    """The Java broker locks the same byte."""
    hold = "import sys\nexec(sys.argv[2])\nprint('held', flush=True)\nsys.stdin.read()"
    take = "import fcntl\nfile = open(sys.argv[1], 'w+b')\nfcntl.lockf(file, fcntl.LOCK_EX, 1, 0)"
    other = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", hold, str(tmp_path / "lock"), take],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(StoreLockedError):
            open_store(tmp_path)
        other.communicate(b"")
    open_store(tmp_path).close()


def test_releasing_a_lock_twice_does_not_release_a_new_lock_on_the_same_store(tmp_path: Path) -> None:
    """Closing twice must not drop somebody else's lock."""
    first = StoreLock(tmp_path)
    first.release()
    second = StoreLock(tmp_path)
    first.release()
    with pytest.raises(StoreLockedError):
        StoreLock(tmp_path)
    second.release()


def test_a_folder_that_cannot_be_created_raises_a_store_error(tmp_path: Path) -> None:
    """The message names the path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        open_store(tmp_path / "file" / "store")


# files that do not fit


@pytest.mark.parametrize(
    ("sizes", "key"),
    [
        ({"commit_log_file_bytes": 8192}, "mappedFileSizeCommitLog"),
        ({"consume_queue_file_bytes": 400}, "mappedFileSizeConsumeQueue"),
        ({"max_hash_slot_num": 17}, "maxHashSlotNum"),
        ({"max_index_num": 65}, "maxIndexNum"),
    ],
)
def test_the_error_names_the_size_setting_that_does_not_match_the_existing_files_of_a_store(
    tmp_path: Path, sizes: dict[str, Any], key: str
) -> None:
    """The failed start must leave the store unchanged and unlocked."""
    with opened(tmp_path) as store:
        fill(store, 3)
    before = snapshot(tmp_path)
    with pytest.raises(StoreFormatError, match=key):
        open_store(tmp_path, **sizes)
    assert snapshot(tmp_path) == before
    open_store(tmp_path).close()


@pytest.mark.parametrize(
    ("path", "size"),
    [
        ("commitlog/notes.txt", FILE_BYTES),
        ("commitlog/4096", FILE_BYTES),
        ("commitlog/00000000000000008192", FILE_BYTES),
        ("checkpoint", 100),
    ],
)
def test_an_unexpected_or_invalid_file_in_the_store_prevents_the_start_and_is_not_changed(
    tmp_path: Path, path: str, size: int
) -> None:
    """Something that does not belong there may be somebody's only copy."""
    with opened(tmp_path) as store:
        fill(store)
    (tmp_path / path).write_bytes(b"z" * size)
    with pytest.raises(StoreFormatError, match=Path(path).name):
        open_store(tmp_path)
    assert (tmp_path / path).read_bytes() == b"z" * size


# restarts


def test_a_store_restarted_several_times_writes_the_same_files_as_a_store_that_ran_without_restarts(
    tmp_path: Path,
) -> None:
    """Offsets continue, nothing is dispatched twice, and the files are those of a broker that never stopped."""
    for start in range(0, 30, 5):
        clock = ManualClock()
        with opened(tmp_path / "a", clock=clock) as store:
            assert store.started_clean
            assert (tmp_path / "a" / "abort").exists()
            for number in range(start, start + 5):
                store.put([message("T", number % 2, b"x" * (number * 20), keys=f"k{number}")])
            store.dispatch()
        assert not (tmp_path / "a" / "abort").exists()
    with opened(tmp_path / "b") as store:
        for number in range(30):
            store.put([message("T", number % 2, b"x" * (number * 20), keys=f"k{number}")])
        store.dispatch()
    assert snapshot(tmp_path / "a", "commitlog", "consumequeue") == snapshot(
        tmp_path / "b", "commitlog", "consumequeue"
    )
    assert list(snapshot(tmp_path / "a", "index").values()) == list(snapshot(tmp_path / "b", "index").values())


def test_closing_a_store_dispatches_all_remaining_records(tmp_path: Path) -> None:
    """A clean store has complete queues, though nobody asked for them."""
    store = open_store(tmp_path)
    store.put([message() for _ in range(5)])
    store.close()
    store.close()
    found = recover(store_spec(tmp_path))
    assert found.started_clean
    assert found.reader.max_queue_offset("T", 0) == 5
    found.close()


@given(st.lists(st.integers(0, 900), max_size=25), st.integers(0, 25), st.integers(0, 25))
@settings(max_examples=examples(40))
def test_a_killed_broker_loses_no_record_and_rebuilds_queues_and_index(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], dispatched: int, synced: int
) -> None:
    """A copy of the folder at any moment is what kill -9 leaves: all of the log is there, and queues and index like new."""
    root = tmp_path_factory.mktemp("store")
    store = open_store(root / "a", strategy=BY_HAND, max_index_num=8)
    for number, size in enumerate(sizes):
        store.put([message("T", number % 2, b"x" * size, keys=f"a{number} b{number}")])
        if number < dispatched:
            store.dispatch()
            if number % 3 == 0:
                store.index.query("T", "", 1, 0, 0)  # writes what waits
        if number < synced:
            store.commit_log.flush(0)
    end = store.commit_log.wrote_offset_bytes
    shutil.copytree(root / "a", root / "b")
    store.close()
    again = open_store(root / "b", max_index_num=8)
    assert not again.started_clean
    assert again.commit_log.max_offset_bytes == end
    assert again.recovered is None or again.recovered.cut is None
    assert sum(again.reader.max_queue_offset("T", queue_id) for queue_id in (0, 1)) == len(sizes)
    again.close()
    assert snapshot(root / "b", "commitlog", "consumequeue") == snapshot(root / "a", "commitlog", "consumequeue")
    assert list(snapshot(root / "b", "index").values()) == list(snapshot(root / "a", "index").values())


@pytest.mark.parametrize("keep", [0, 1, 50, RECORD_MIN_BYTES, 150])
def test_a_torn_record_is_cut_and_the_next_append_begins_at_its_offset(tmp_path: Path, keep: int) -> None:
    """The next message takes its place and its queue offset; no unit and no byte of the torn one stays in the store."""
    store = open_store(tmp_path / "a", strategy=BY_HAND)
    fill(store, 5, b"b" * 60)
    start = store.commit_log.wrote_offset_bytes
    fill(store, 1, b"torn" * 20, queue_id=3)
    fill(store, 1, b"torn" * 20)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    store.close()
    path = tmp_path / "b/commitlog/00000000000000000000"
    raw = path.read_bytes()
    path.write_bytes(raw[: start + keep].ljust(FILE_BYTES, b"\0"))
    with opened(tmp_path / "b") as store:
        assert store.commit_log.max_offset_bytes == start
        assert store.recovered is not None
        assert (store.recovered.cut is not None) == bool(raw[start : start + keep].strip(b"\0"))
        assert store.reader.max_queue_offset("T", 0) == 5
        assert store.reader.max_queue_offset("T", 3) == 0
        fill(store, 1)
        assert store.reader.max_queue_offset("T", 0) == 6
    shutil.copytree(tmp_path / "b", tmp_path / "c", ignore=shutil.ignore_patterns(*DERIVED))
    open_store(tmp_path / "c").close()
    left = {name: raw for name, raw in snapshot(tmp_path / "b", "consumequeue").items() if raw.strip(b"\0")}
    assert left == snapshot(tmp_path / "c", "consumequeue")


@pytest.mark.parametrize("flags", [0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6])
@pytest.mark.parametrize("left", [8, 40, RECORD_MIN_BYTES, RECORD_MIN_BYTES + 12, RECORD_MIN_BYTES + 23])
@pytest.mark.parametrize("check_crc", [True, False])
def test_a_start_ignores_garbage_at_the_end_of_a_full_log_file(
    tmp_path: Path, flags: int, left: int, check_crc: bool
) -> None:
    """A head that says IPv6 where too few bytes are left must not be read beyond its file."""
    with opened(tmp_path) as store:
        item = message("T")
        store.put([message("T", body=b"b" * (FILE_BYTES - left - record_size(item)))])
        end = store.commit_log.wrote_offset_bytes
        assert end == FILE_BYTES - left
    path = tmp_path / "commitlog/00000000000000000000"
    garbage = struct.pack(">IIIiiqqi", left, MAGIC_V1, 0, 0, 0, 0, end, flags)
    path.write_bytes(path.read_bytes()[:end] + garbage[: left - 1].ljust(left - 1, b"\0") + b"\x01")
    (tmp_path / "abort").write_bytes(b"")
    with opened(tmp_path, check_crc_on_recover=check_crc) as store:
        assert store.commit_log.max_offset_bytes == end
        assert store.reader.max_queue_offset("T", 0) == 1


def test_bytes_cut_by_each_recovery_are_quarantined_in_a_separate_file(tmp_path: Path) -> None:
    """Two crashes in a row at the same place: the first one's bytes are not overwritten by the second one's."""
    with opened(tmp_path) as store:
        fill(store)
        end = store.commit_log.wrote_offset_bytes
    path = tmp_path / "commitlog/00000000000000000000"
    for garbage in (b"first", b"second", b"third"):
        raw = bytearray(path.read_bytes())
        raw[end : end + len(garbage)] = garbage
        path.write_bytes(raw)
        open_store(tmp_path).close()
    kept = [raw.split(b"\n", 1)[1] for raw in snapshot(tmp_path, "flint/quarantine").values()]
    assert sorted(kept) == [b"first\n", b"second\n", b"third\n"]


def test_invalid_bytes_stay_at_the_end_of_the_log_if_saving_a_copy_of_them_fails(tmp_path: Path) -> None:
    """No room for the copy: the store does not open, and the bytes are still where they were."""
    with opened(tmp_path) as store:
        fill(store)
        end = store.commit_log.wrote_offset_bytes
    path = tmp_path / "commitlog/00000000000000000000"
    raw = bytearray(path.read_bytes())
    raw[end : end + 5] = b"bytes"
    path.write_bytes(raw)
    disk = FaultyDisk()
    disk.fail("write_file", within="quarantine")
    with pytest.raises(StoreError):
        open_store(tmp_path, disk=disk)
    assert path.read_bytes() == raw
    open_store(tmp_path).close()
    assert b"bytes" in next(iter(snapshot(tmp_path, "flint/quarantine").values()))


def test_closing_a_store_removes_the_preallocated_log_file(tmp_path: Path) -> None:
    """Nothing foreign may lie in the log's folder of a stopped store."""
    with opened(tmp_path, preallocate=True) as store:
        fill(store, 3, b"b" * 3000)
    assert len(snapshot(tmp_path, "commitlog")) == 3
    open_store(tmp_path).close()


def test_the_timestamps_in_the_checkpoint_advance_only_after_the_log_and_the_queues_are_synced(tmp_path: Path) -> None:
    """Recovery starts from it: each time must be one that the disk can vouch for, not the newest one."""
    clock = ManualClock(1_000_000)
    store = open_store(tmp_path, strategy=BY_HAND, clock=clock)
    checkpoint = store.checkpoint
    fill(store)
    assert (checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms) == (0, 0)
    store.commit_log.flush(0)
    assert checkpoint.physic_msg_timestamp_ms == 1_000_000
    clock.advance_ms(5_000)
    fill(store)
    assert checkpoint.physic_msg_timestamp_ms == 1_000_000
    assert checkpoint.min_timestamp_ms == 0
    store.close()
    assert struct.unpack_from(">qqq", (tmp_path / "checkpoint").read_bytes()) == (1_005_000, 1_005_000, 0)
    with opened(tmp_path) as store:
        assert store.checkpoint.min_timestamp_ms == 1_002_000


def test_the_tests_import_flintmq_from_this_checkout() -> None:
    """Otherwise nothing above says anything about it."""
    assert Path(str(flintmq.__file__)).parent == Path(__file__).resolve().parents[3]

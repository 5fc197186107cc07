"""A log that is not where it is looked for is a mistake: nothing of what is still there may be deleted for it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
from msgspec import structs

from flintmq.core.errors import StoreFormatError
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.io.paths import ends_path
from flintmq.core.recovery.ends import Ends
from flintmq.core.recovery.last_stop import LastStop, boot_path
from flintmq.core.recovery.missing_log import check_end, may_be_lost
from flintmq.core.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from flintmq.testing.journaled_files import JournalReplay
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.testing.store import BY_HAND, message, open_store, opened, snapshot, start_store, store_spec

FILE_BYTES = 4096
ROOT = Path("/store")
COUNT = 100
SIZES = {"commit_log_file_bytes": FILE_BYTES, "max_index_num": 1_000}


def fill(store: MessageStore, clock: ManualClock) -> None:
    for number in range(COUNT):
        store.put([message("T", number % 2, b"body" * 20, keys=f"k{number}")])
        store.dispatch()
        clock.advance_ms(1_000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that was stopped, with several files in its log."""
    clock = ManualClock(1_000_000)
    with opened(tmp_path / "store", clock=clock, **SIZES) as store:
        fill(store, clock)
    return tmp_path / "store"


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def left(root: Path, last_stop: LastStop) -> None:
    """Has a store look as if its broker had ended so."""
    if last_stop is not LastStop.CLEAN:
        (root / "abort").touch()
    if last_stop is LastStop.KILLED:
        boot_path(root).write_text(OS_DISK.incarnation(root))
    else:
        boot_path(root).unlink(missing_ok=True)


def kept(root: Path) -> dict[str, bytes]:
    """The store but for its index, whose newest file is made again after every crash."""
    return {name: raw for name, raw in snapshot(root).items() if not name.startswith("index/")}


def messages_of(store: MessageStore) -> int:
    return sum(store.reader.max_queue_offset("T", queue_id) for queue_id in (0, 1))


@pytest.mark.parametrize("last_stop", LastStop)
@pytest.mark.parametrize("missing", ["all", "the last", "one in the middle"])
def test_a_start_is_refused_if_synced_log_files_are_missing(
    root: Path, tmp_path: Path, last_stop: LastStop, missing: str
) -> None:
    """A folder that is not mounted, after whatever end: nothing is changed, and with the files back all is there."""
    files = log_files(root)
    gone = {"all": files, "the last": files[-2:], "one in the middle": files[3:4]}[missing]
    left(root, last_stop)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in gone:
        path.rename(elsewhere / path.name)
    before = kept(root)
    for _ in range(2):
        with pytest.raises(StoreFormatError, match=r"not mounted.*commit_log_paths"):
            open_store(root, **SIZES)
        assert kept(root) == before
    for path in gone:
        (elsewhere / path.name).rename(path)
    with opened(root, **SIZES) as store:
        assert messages_of(store) == COUNT


@pytest.mark.parametrize("missing", ["all", "the last", "one in the middle"])
def test_a_start_after_a_crash_accepts_the_loss_of_unsynced_log_files(root: Path, missing: str) -> None:
    """The checkpoint vouches for nothing of it: the start goes on with what is there."""
    files = log_files(root)
    for path in {"all": files, "the last": files[-2:], "one in the middle": files[-2:-1]}[missing]:
        path.unlink()
    (root / "checkpoint").unlink()
    ends_path(root).unlink()
    left(root, LastStop.CRASHED)
    with opened(root, **SIZES) as store:
        assert (messages_of(store) == 0) is (missing == "all")
        found = len(list(store.commit_log.requests(store.commit_log.min_offset_bytes, store.watermarks.wrote)))
        assert found < COUNT


def test_a_start_without_log_files_deletes_the_consume_queues_in_strict_compatibility_mode(root: Path) -> None:
    """Queues without a log are deleted."""
    shutil.rmtree(root / "commitlog")
    with opened(root, **SIZES, compat="strict") as store:
        assert messages_of(store) == 0


def test_a_store_without_its_consume_queue_folder_starts_with_the_remaining_log_files(root: Path) -> None:
    """The error proposes this for log files that are lost for good; no queue offset may be given twice."""
    for path in log_files(root)[-2:]:
        path.unlink()
    shutil.rmtree(root / "consumequeue")
    with opened(root, **SIZES) as store:
        last = messages_of(store)
        assert last == COUNT
        assert 0 < len(list(store.commit_log.requests(0, store.watermarks.wrote))) < COUNT
        store.put([message("T", 0)])
        while store.dispatch():
            pass
        assert messages_of(store) == last + 1


def test_a_store_without_messages_starts_after_its_commit_log_folder_is_deleted(tmp_path: Path) -> None:
    """It was started, and nothing was sent: it may have no log."""
    open_store(tmp_path, **SIZES).close()
    shutil.rmtree(tmp_path / "commitlog", ignore_errors=True)
    open_store(tmp_path, **SIZES).close()


@pytest.mark.parametrize("first_bytes", [b"", b"\0" * 200, b"\xff" * 200])
def test_a_log_file_may_be_missing_after_a_machine_crash_if_the_next_file_contains_no_records(
    first_bytes: bytes,
) -> None:
    """The one before it may be lost, unless nothing can be."""
    assert may_be_lost(LastStop.CRASHED, 2**62, None, FILE_BYTES, memoryview(first_bytes))
    assert not may_be_lost(LastStop.KILLED, 2**62, None, FILE_BYTES, memoryview(first_bytes))


IN_USE = Ends(log_end=2 * FILE_BYTES)
AT_A_STOP = Ends(log_end=2 * FILE_BYTES, is_stop=True)
NOTHING_YET = Ends()


@pytest.mark.parametrize(
    ("noted", "end_offset_bytes", "vouches", "is_missed"),
    [
        (IN_USE, FILE_BYTES, False, True),
        (IN_USE, 2 * FILE_BYTES, True, False),  # the clock was set back: younger records lie before the missing ones
        (AT_A_STOP, FILE_BYTES, False, True),
        (AT_A_STOP, 2 * FILE_BYTES, True, True),  # another broker may have written the missing ones
        (AT_A_STOP, 2 * FILE_BYTES, False, False),
        (NOTHING_YET, FILE_BYTES, True, True),
        (NOTHING_YET, FILE_BYTES, False, False),
        (None, FILE_BYTES, True, True),
        (None, FILE_BYTES, False, False),
    ],
)
def test_only_log_files_after_the_last_synced_position_may_be_missing_at_a_start(
    noted: Ends | None, end_offset_bytes: int, vouches: bool, is_missed: bool
) -> None:
    """In the middle of the log and at its end: positions that were synced are missed, later ones are not."""
    with opened(ROOT, disk=SimulatedDisk(), clock=(clock := ManualClock())) as store:
        store.put([message()])
        next_file, stored_ms = store.commit_log.queue.files[0].view, clock.now_ms()
    trusted_ms = stored_ms if vouches else stored_ms - 1
    assert may_be_lost(LastStop.CRASHED, trusted_ms, noted, end_offset_bytes, next_file) is not is_missed
    end = (noted, end_offset_bytes, 9 * FILE_BYTES)
    with pytest.raises(StoreFormatError) if is_missed else contextlib.nullcontext():
        check_end(LastStop.CRASHED, trusted_ms, stored_ms - 1, *end)


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_store_recovers_from_a_power_cut_after_the_clock_was_set_back(is_noted: bool) -> None:
    """The checkpoint vouches for a time that only an earlier record of the log has; its last file was never synced."""
    clock = ManualClock(1_000_000)
    disk = SimulatedDisk()
    spec = store_spec(ROOT, disk=disk, clock=clock, strategy=BY_HAND, **SIZES)
    store = start_store(structs.replace(spec, runs=False))
    store.put([message(body=b"1")])
    store.dispatch()
    store.commit_log.flush(0)
    store.services.flusher.flush(0)
    if is_noted:
        store.noter.after_round(is_thorough=True)
    clock.set_wall_clock(900_000)
    store.put([message(body=b"2")])
    store.put([message(body=bytes(FILE_BYTES - 200))])
    store.dispatch()
    store.commit_log.flush(0)
    store.consume_queues.flush(0)
    lost = SimulatedDisk(JournalReplay(disk).advance(len(disk.journal)).synced(), boot="another")
    with opened(ROOT, disk=lost, clock=clock, **SIZES) as again:
        assert again.watermarks.wrote <= FILE_BYTES
        assert again.reader.max_queue_offset("T", 0) == 2


@pytest.mark.parametrize("is_noted", [True, False])
def test_log_files_created_after_the_last_clean_stop_may_be_missing_after_a_crash(is_noted: bool) -> None:
    """It did not sync before it dispatched, whatever the strategy was before that stop."""
    noted = Ends(log_end=FILE_BYTES, is_synchronous=True, is_stop=is_noted)
    with contextlib.nullcontext() if is_noted else pytest.raises(StoreFormatError):
        check_end(LastStop.CRASHED, 1_000, 1_000, noted, FILE_BYTES, 2 * FILE_BYTES)

"""The plan of a start is a value: computed from what lies on disk, the same each time, and nothing is changed for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec import structs

from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.io.paths import ends_path
from flintmq.core.record import record as rec
from flintmq.core.recovery.last_stop import LastStop, boot_path
from flintmq.core.recovery.plan import RecoveryPlan
from flintmq.core.store import opened_store
from flintmq.testing.clock import ManualClock
from flintmq.testing.journaled_files import Image
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.testing.store import BY_HAND, message, snapshot, start_store, store_spec

FILE_BYTES = 4096
COUNT = 100


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A copy of a store in use: several log files, dispatched, with the checkpoint not yet written."""
    clock = ManualClock(1_000_000)
    spec = store_spec(tmp_path / "live", clock=clock, commit_log_file_bytes=FILE_BYTES, max_index_num=1_000)
    store = start_store(structs.replace(spec, runs=False))
    try:
        for number in range(COUNT):
            store.put([message("T", number % 2, b"body" * 20, keys=f"k{number}")])
            store.dispatch()
            clock.advance_ms(1_000)
        store.index.flush()
        shutil.copytree(tmp_path / "live", tmp_path / "copy")
    finally:
        store.close()
    return tmp_path / "copy"


def plan_of(root: Path) -> RecoveryPlan:
    return opened_store.plan_of(store_spec(root, commit_log_file_bytes=FILE_BYTES, max_index_num=1_000))


def log_end(root: Path) -> int:
    plan = plan_of(root)
    assert plan.walked is not None
    return plan.walked.end_offset_bytes


def edit_log(root: Path, position: int, data: bytes) -> None:
    """Overwrites bytes of the log, within one file."""
    path = root / "commitlog" / f"{position - position % FILE_BYTES:020d}"
    raw = bytearray(path.read_bytes())
    raw[position % FILE_BYTES : position % FILE_BYTES + len(data)] = data
    path.write_bytes(raw)


def test_computing_the_recovery_plan_changes_no_file(crashed: Path) -> None:
    """Made twice the plan is the same value, although the tail is torn and would be cut."""
    edit_log(crashed, log_end(crashed), b"torn")
    plan_of(crashed)  # a lock file may be made
    before = snapshot(crashed)
    plans = [plan_of(crashed) for _ in range(2)]
    assert plans[0] == plans[1]
    assert plans[0].changes_log
    assert snapshot(crashed) == before


def test_the_recovery_plan_of_a_store_without_a_commit_log_deletes_the_consume_queues(crashed: Path) -> None:
    """A new epoch begins as well if the old one began after the end of the empty log."""
    shutil.rmtree(crashed / "commitlog")
    ends_path(crashed).unlink()
    plan = plan_of(crashed)
    assert (plan.walked, plan.begins_epoch, plan.dispatched_from_offset_bytes) == (None, False, 0)
    assert plan.because == "there is no log: the queues are deleted"


def test_the_recovery_plan_after_a_clean_stop_changes_nothing(crashed: Path) -> None:
    """The third-last file is the first one walked, and dispatch goes on at the end."""
    (crashed / "abort").unlink()
    ends_path(crashed).unlink()  # it says that the store is in use
    plan = plan_of(crashed)
    assert plan.last_stop is LastStop.CLEAN
    files = sorted(int(path.name) for path in (crashed / "commitlog").iterdir())
    assert plan.walked_from_offset_bytes == files[-3]
    assert plan.walked is not None
    assert plan.dispatched_from_offset_bytes == plan.walked.end_offset_bytes == plan.described_to_offset_bytes
    assert not plan.begins_epoch
    assert not plan.changes_log
    assert plan.rewritten_from_offset_bytes is None
    assert plan.rewinds_checkpoint_to_ms is None
    assert plan.indexed_from_offset_bytes is None


def test_recovery_starts_a_new_epoch_of_the_log_after_a_power_failure_but_not_after_a_process_kill(
    crashed: Path,
) -> None:
    """Only the latter may have taken acknowledged records, so only then an epoch begins and the log is written again."""
    powered = plan_of(crashed)
    boot_path(crashed).write_text(OS_DISK.incarnation(crashed))
    killed = plan_of(crashed)
    assert (powered.last_stop, killed.last_stop) == (LastStop.CRASHED, LastStop.KILLED)
    assert (powered.begins_epoch, killed.begins_epoch) == (True, False)
    assert powered.rewritten_from_offset_bytes == 0
    assert killed.rewritten_from_offset_bytes is None
    assert powered.walked == killed.walked


def test_recovery_cuts_bytes_after_the_last_record_unless_all_are_zero(crashed: Path) -> None:
    """They are what a file holds that was never written; any other byte is kept in the quarantine, so the plan names it."""
    end = log_end(crashed)
    plan = plan_of(crashed)
    assert plan.walked is not None
    assert plan.walked.cut is None
    edit_log(crashed, end + 700, b"x")
    plan = plan_of(crashed)
    assert plan.walked is not None
    assert plan.walked.cut is not None
    assert plan.walked.cut.offset_bytes == end
    assert plan.begins_epoch


def test_recovery_dispatches_records_again_from_the_first_damaged_position_in_the_log(crashed: Path) -> None:
    """Records that are lost leave units to be taken back, and the checkpoint vouches for them no longer."""
    (crashed / "abort").unlink()
    ends_path(crashed).unlink()  # it says that the store is in use
    plan = plan_of(crashed)
    hole = plan.walked_from_offset_bytes
    edit_log(crashed, hole + 4, b"bad")
    plan = plan_of(crashed)
    assert plan.walked is not None
    assert [one.start_offset_bytes for one in plan.walked.holes] == [hole]
    assert plan.dispatched_from_offset_bytes == hole
    assert plan.rewinds_checkpoint_to_ms is not None


def last_record(root: Path) -> int:
    """Return the physical offset of the log's last record."""
    end = log_end(root)
    raw = memoryview((root / "commitlog" / f"{end - end % FILE_BYTES:020d}").read_bytes())
    at, size = 0, 0
    while at + size < end % FILE_BYTES:
        at += size
        size = rec.decode_record(raw[at:]).size_bytes
    return end - size


def test_recovery_rebuilds_the_index_files_that_refer_to_a_record_cut_from_the_log(crashed: Path) -> None:
    """Index files that refer to a record that is cut go, and the walk begins before the other records they referred to."""
    (crashed / "abort").unlink()
    ends_path(crashed).unlink()  # it says that the store is in use
    before = plan_of(crashed)
    assert before.indexed_from_offset_bytes is None
    edit_log(crashed, last_record(crashed), b"torn")
    plan = plan_of(crashed)
    assert plan.indexed_from_offset_bytes == 0, "its only file is gone"
    assert before.walked_from_offset_bytes > plan.walked_from_offset_bytes == 0
    assert plan.because == "the index is rebuilt from position 0, and the scan includes that part"


def test_recovery_does_not_rebuild_a_missing_index_after_a_clean_stop(crashed: Path) -> None:
    """Records without keys leave its last file far behind the log's end: that is no reason to walk the log from there."""
    (crashed / "abort").unlink()
    ends_path(crashed).unlink()  # it says that the store is in use
    shutil.rmtree(crashed / "index")
    plan = plan_of(crashed)
    assert plan.because == "after a clean stop, the last three files are scanned"
    assert plan.indexed_from_offset_bytes is None


def test_recovery_examines_all_unsynced_records_even_if_the_clock_was_set_back() -> None:
    """Store times alone would choose the last file, whose first record is older than the checkpoint."""
    clock, disk, root = ManualClock(1_000_000), SimulatedDisk(), Path("/store")
    spec = store_spec(root, disk=disk, clock=clock, strategy=BY_HAND, commit_log_file_bytes=FILE_BYTES)
    spec = structs.replace(spec, runs=False, indexes=False)  # where an index is made again, all that it lacks is walked
    store = start_store(spec)
    store.put([message(body=b"synced")])
    store.dispatch()
    store.commit_log.flush(0)
    store.services.flusher.flush(0)
    store.noter.after_round(is_thorough=True)
    clock.set_wall_clock(900_000)
    places = [store.put([message(body=bytes(900))]).records[0].commit_log_offset_bytes for _ in range(9)]
    files = {**disk.image().files}
    path = root / "commitlog" / f"{FILE_BYTES:020d}"
    lost_from = next(place for place in places if place > FILE_BYTES) - FILE_BYTES
    files[path] = files[path][:lost_from] + bytes(512) + files[path][lost_from + 512 :]
    cut = SimulatedDisk(Image(files, disk.image().folders), boot="another")
    plan = opened_store.plan_of(structs.replace(spec, disk=cut))
    assert plan.walked is not None
    assert [hole.start_offset_bytes for hole in plan.walked.holes] == [FILE_BYTES + lost_from]

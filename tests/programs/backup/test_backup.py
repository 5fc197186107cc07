"""A backup of a store in use is a prefix of its log, the next one adds to it, and what ends one early takes nothing away."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import attrs
import pytest

from flintmq.config.sections.models import BrokerConfig, StoreSection
from flintmq.core.errors import StoreError, StoreFormatError, StoreFullError, StoreLockedError
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.io.paths import RESTORE_MARK, RESTORE_NOT_FINISHED, ends_path
from flintmq.programs.backup.backup import DamagedLogError
from flintmq.programs.backup.check import check_backup
from flintmq.programs.backup.manifest import read_manifest
from flintmq.testing.store import snapshot

from .conftest import FILE_BYTES, SEGMENT_BYTES, EndedError, EndingWriter, Live, prefix, verified


def test_a_backup_of_a_store_in_use_contains_exactly_the_records_dispatched_before_the_backup(live: Live) -> None:
    """What was not visible when it was made is not in it; the rest is, byte for byte, with queues, index and offsets."""
    live.put(40)
    live.commit(behind=3)
    live.put(3, dispatch=False)
    made = live.back_up()
    assert made.manifest.told_by == "queues"
    assert made.manifest.end_offset_bytes == live.store.watermarks.dispatched < live.store.watermarks.wrote
    live.put(20)
    root, restored = live.restore()
    end = made.manifest.end_offset_bytes
    assert restored.log_end_offset_bytes == end
    assert prefix(live.log(root), 0, end) == prefix(live.log(), 0, end)
    assert not any(prefix(live.log(root), end, 2**62))
    report = verified(root)
    assert report.is_sound
    assert report.records == 40 == restored.records
    offsets = json.loads((root / "config" / "consumerOffset.json").read_text().replace("{0:", '{"0":'))
    assert offsets["offsetTable"]["T@billing"] == {"0": 37}


def test_the_next_backup_copies_only_new_bytes(live: Live) -> None:
    """And nothing of what it has is written again but the file that grows."""
    live.put(40)
    first = live.back_up()
    inodes = {path: path.stat().st_mtime_ns for path in live.target.glob("log/*")}
    live.put(60)
    second = live.back_up()
    assert second.new_bytes == live.store.watermarks.dispatched - first.manifest.end_offset_bytes
    assert second.records == 60
    grown = [path for path, at_ns in inodes.items() if path.stat().st_mtime_ns != at_ns]
    assert [int(path.name) for path in grown] == [first.manifest.log[-1].start_offset_bytes]
    third = live.back_up()
    assert (third.new_bytes, third.records, third.manifest.number) == (0, 0, 3)
    root, _ = live.restore()
    assert verified(root).records == 100


def test_a_backup_interrupted_at_any_step_leaves_the_former_or_the_new_backup_undamaged(live: Live) -> None:
    """The one before stays whole, and the next one needs nobody's help."""
    live.put(30)
    live.commit()
    live.back_up()
    before = read_manifest(live.target)
    live.put(50)
    live.commit()
    kept = live.folder / "kept"
    shutil.copytree(live.target, kept)
    whole = EndingWriter()
    live.back_up(whole)
    assert len(whole.steps) > 20
    committed = whole.steps.index(("replace", "manifest.json"))
    for end_at in range(len(whole.steps)):
        shutil.rmtree(live.target)
        shutil.copytree(kept, live.target)
        with pytest.raises(EndedError):
            live.back_up(EndingWriter(end_at))
        checked = check_backup(live.target)
        assert checked.is_sound, (end_at, checked.findings)
        assert (checked.manifest == before) == (end_at <= committed)
        live.back_up()
        assert check_backup(live.target).records == 80
        assert {path.name for path in live.target.glob("tables/*")} == {str(read_manifest(live.target).number)}  # type: ignore[union-attr]


def test_all_files_are_synced_before_the_manifest_is_replaced(live: Live) -> None:
    """A power cut must not leave a manifest of what is not there."""
    live.put(50)
    writer = EndingWriter()
    live.back_up(writer)
    steps = [(kind, name) for kind, name in writer.steps if kind != "remove"]
    *before, replace, folder = steps
    assert replace == ("replace", "manifest.json")
    assert folder == ("sync", live.target.name)
    written = {name for kind, name in before if kind in ("write", "file", "grow", "cut")}
    for name in written:
        last_write = max(at for at, step in enumerate(before) if step[1] == name and step[0] != "sync")
        assert ("sync", name) in before[last_write:], name
    for name in ("log", "1", live.target.name):
        assert ("sync", name) in before, name


def test_a_full_disk_ends_a_backup_without_damage_to_the_former_backup(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the file; with room it goes on."""
    live.put(30)
    live.back_up()
    before = read_manifest(live.target)
    live.put(60)
    real = os.pwrite
    left = [3]

    def no_room(fd: int, data: bytes, position: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return real(fd, data, position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", no_room)
        with pytest.raises(StoreFullError, match=r"log/0000.*the disk is full"):
            live.back_up()
    assert read_manifest(live.target) == before
    assert check_backup(live.target).is_sound


def test_a_damaged_store_is_backed_up_only_with_the_option_keep_damage(live: Live) -> None:
    """Unless it is wanted as it is: then the backup says so, and a restore takes it out as a start would."""
    live.put(20)
    first = live.back_up()
    live.put(20)
    place = first.manifest.end_offset_bytes + 120
    path = live.root / "commitlog" / f"{place // FILE_BYTES * FILE_BYTES:020d}"
    with path.open("r+b") as file:
        file.seek(place % FILE_BYTES)
        file.write(b"\xff")
    with pytest.raises(DamagedLogError, match=rf"commit log {first.manifest.end_offset_bytes}\.\.\d+: .*--keep-damage"):
        live.back_up()
    assert read_manifest(live.target) == first.manifest
    made = live.back_up(keep_damage=True)
    assert [one.start_offset_bytes for one in made.manifest.damage] == [first.manifest.end_offset_bytes]
    assert made.records == 19
    live.put(5)
    again = live.back_up()
    assert again.manifest.damage == made.manifest.damage
    assert check_backup(live.target).is_sound
    root, restored = live.restore()
    assert restored.damage == made.manifest.damage
    assert verified(root).is_sound
    assert [path.suffix for path in (root / "flint" / "quarantine").iterdir()] == [".lost"]


def test_making_a_backup_of_a_store_without_its_log_folder_is_refused(live: Live) -> None:
    """A command that was not told where would make an empty backup, night after night, and say that all is well."""
    live.put(20)
    elsewhere = live.folder / "elsewhere"
    (live.root / "commitlog").rename(elsewhere)
    for _ in "running", "stopped":
        with pytest.raises(DamagedLogError, match=r"messages up to \d+, .*end at 0; .*--set store\.commit_log_paths="):
            live.back_up()
        live.store.close()
    assert read_manifest(live.target) is None
    config = BrokerConfig(store=StoreSection(commit_log_paths=(str(elsewhere),)))
    assert live.back_up(config=config).records == 20
    elsewhere.rename(live.root / "commitlog")
    live.open()


def test_a_backup_is_refused_if_the_log_of_a_cleanly_stopped_store_has_a_damaged_end(live: Live) -> None:
    """After a crash it is a torn tail, which nobody was promised; after a clean stop it is damage."""
    live.put(20)
    live.store.close()
    path = max((live.root / "commitlog").iterdir())
    data = path.read_bytes().rstrip(b"\0")
    with path.open("r+b") as file:
        file.seek(len(data) - 30)
        file.write(b"\xff")
    with pytest.raises(DamagedLogError, match=r"last stop was clean.*its end is damaged"):
        live.back_up()
    assert live.back_up(keep_damage=True).records == 19
    (live.root / "abort").touch()
    assert live.back_up(target=live.folder / "second").records == 19
    live.open()


def test_a_backup_of_a_folder_with_the_stores_of_several_brokers_is_refused(live: Live) -> None:
    """Each of ``--brokers`` has a store of its own; what lies beside them is no store without messages."""
    live.put(1)
    (live.folder / "config").mkdir()
    with pytest.raises(StoreFormatError, match=r"holds the stores of several brokers.*: store$"):
        live.back_up(store=live.folder, target=live.folder.with_name("backup"))


def test_a_backup_into_the_backup_folder_of_another_store_is_refused(live: Live, tmp_path: Path) -> None:
    """Also one whose log is longer."""
    live.put(20)
    live.back_up()
    other = Live(tmp_path / "other")
    try:
        other.put(60)
        with pytest.raises(StoreFormatError, match=r"is a backup of the store [0-9a-f]+ .*name another folder"):
            other.back_up(target=live.target)
        shutil.rmtree(other.root / "flint")
        with pytest.raises(StoreFormatError, match="of a broker that gives it no id"):
            other.back_up(target=live.target)
        manifest = read_manifest(live.target)
        assert manifest is not None
    finally:
        other.store.close()


def test_a_backup_is_refused_if_the_log_was_truncated_since_the_last_backup(live: Live) -> None:
    """It has other bytes where the backup has those that a power cut took."""
    live.put(30)
    live.back_up()
    live.store.close()
    end = live.store.watermarks.wrote
    place = end - 300
    path = live.root / "commitlog" / f"{place // FILE_BYTES * FILE_BYTES:020d}"
    with path.open("r+b") as file:
        file.seek(place % FILE_BYTES)
        file.write(bytes(min(300, FILE_BYTES - place % FILE_BYTES)))
    (live.root / "abort").touch()
    (live.root / "flint" / "boot").unlink()
    ends_path(live.root).unlink()  # it says that the stop was in order
    with pytest.raises(StoreFormatError, match=r"has other bytes|was truncated"):
        live.back_up()
    live.open()
    with pytest.raises(
        StoreFormatError, match=rf"its log ends at \d+, before the backup in .* ends \({end}\): the log was truncated"
    ):
        live.back_up()
    live.put(30)
    with pytest.raises(StoreFormatError, match=r"has other bytes .* its log was truncated and continued"):
        live.back_up()
    assert check_backup(live.target).is_sound
    live.back_up(target=live.folder / "second")


def test_a_backup_of_a_stopped_store_contains_the_log_to_its_end(live: Live) -> None:
    """What no queue names yet is in the log all the same."""
    live.put(10)
    live.put(3, dispatch=False)
    live.store.close()
    made = live.back_up()
    assert (made.manifest.told_by, made.records) == ("walk", 13)
    assert made.manifest.end_offset_bytes == live.store.watermarks.wrote
    live.open()


def test_messages_deleted_by_retention_stay_in_the_backup_unless_pruning_is_requested(live: Live) -> None:
    """Either is whole; a part that was never backed up is told, and only a pruned backup can go on behind it."""
    live.put(60)
    first = live.back_up()
    begin = first.manifest.begin_offset_bytes
    assert begin == 0
    _delete_oldest(live)
    live.put(5)
    kept = live.back_up()
    assert (kept.manifest.begin_offset_bytes, kept.pruned_files) == (0, 0)
    root, restored = live.restore()
    assert restored.records == 65
    pruned = live.back_up(prune=True)
    assert (pruned.manifest.begin_offset_bytes, pruned.pruned_files) == (FILE_BYTES, 1)
    assert min(int(path.name) for path in live.target.glob("log/*")) == FILE_BYTES
    root, _ = live.restore()
    assert verified(root).is_sound
    live.put(100)
    while live.store.commit_log.min_offset_bytes <= pruned.manifest.end_offset_bytes:
        _delete_oldest(live)
    with pytest.raises(StoreFormatError, match=r"retention has deleted \d+\.\.\d+ before it was backed up.*--prune"):
        live.back_up()
    assert check_backup(live.target).is_sound
    left = live.back_up(prune=True)
    assert left.manifest.begin_offset_bytes == live.store.commit_log.min_offset_bytes
    root, _ = live.restore()
    assert verified(root).is_sound


def _delete_oldest(live: Live) -> None:
    file = live.store.commit_log.queue.detach_first()
    file.region.close()
    file.path.unlink()


def test_a_backup_fails_if_a_log_file_is_deleted_during_the_backup(live: Live) -> None:
    """Retention does not wait for a backup."""
    live.put(60)

    class Deleting(EndingWriter):
        def step(self, kind: str, path: Path) -> None:
            if kind == "cut":
                shutil.rmtree(live.root / "commitlog")
            super().step(kind, path)

    with pytest.raises(StoreError, match=r"was deleted by retention during the backup.*run the command again"):
        live.back_up(Deleting())


@pytest.mark.parametrize("where", ["in", "around", "file", "foreign"])
def test_a_backup_target_that_overlaps_the_store_or_contains_foreign_files_is_refused(live: Live, where: str) -> None:
    """Nothing of anybody is overwritten."""
    live.put(3)
    target = {"in": live.root / "b", "around": live.folder, "file": live.folder / "f", "foreign": live.folder / "x"}[
        where
    ]
    if where == "file":
        target.write_bytes(b"mine")
    if where == "foreign":
        target.mkdir()
        (target / "thesis.txt").touch()
    with pytest.raises(StoreFormatError, match=r"may be neither inside|is a file|'thesis.txt', which does not belong"):
        live.back_up(target=target)


def test_a_second_concurrent_backup_is_refused(live: Live) -> None:
    """Two of one cron must not mix."""
    live.put(3)
    live.target.mkdir()
    release = OS_DISK.lock(live.target / "lock")
    try:
        with pytest.raises(StoreLockedError, match="another process makes a backup into it"):
            live.back_up()
    finally:
        release()
    live.back_up()


def test_a_backup_changes_no_file_of_the_store(live: Live) -> None:
    """Not a byte, and no file."""
    live.put(30)
    live.commit()
    before = snapshot(live.root)
    live.back_up()
    assert snapshot(live.root) == before


def test_adding_to_a_damaged_backup_is_refused(live: Live) -> None:
    """Its own bytes are checked where the new ones are joined on."""
    live.put(5)
    live.back_up()
    path = next(live.target.glob("log/*"))
    with path.open("r+b") as file:
        file.seek(-10, os.SEEK_END)
        file.write(b"\0")
    live.put(5)
    with pytest.raises(StoreFormatError, match="of the backup have changed since they were written"):
        live.back_up()
    with path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(StoreFormatError, match="is missing or too short in the backup"):
        live.back_up()


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("count", [0, 5])
@pytest.mark.parametrize("kind", ["flip", "cut", "gone"])
def test_a_backup_run_reports_damage_in_its_target_folder_even_if_there_are_no_new_messages(
    live: Live, kind: str, count: int, segments: int
) -> None:
    """An operator who backs up a quiet store each night must not be told for months that all is well."""
    while live.store.commit_log.wrote_offset_bytes < segments * SEGMENT_BYTES - 500:
        live.put()
    live.back_up()
    path = next(live.target.glob("log/*"))
    if kind == "gone":
        path.unlink()
    else:
        with path.open("r+b") as file:
            file.seek(-10, os.SEEK_END)
            file.write(b"\0") if kind == "flip" else file.truncate()
    live.put(count)
    before = (live.target / "manifest.json").read_bytes()
    wanted = "have changed since they were written" if kind == "flip" else "is missing or too short in the backup"
    with pytest.raises(StoreFormatError, match=wanted):
        live.back_up()
    assert (live.target / "manifest.json").read_bytes() == before


def test_a_backup_run_reports_that_the_first_log_file_of_the_backup_is_missing(live: Live) -> None:
    """Nothing is joined on to it any more, so that only a look finds it."""
    while live.store.commit_log.wrote_offset_bytes < 3 * FILE_BYTES:
        live.put()
    live.back_up()
    sorted(live.target.glob("log/*"))[0].unlink()
    for count in (0, 3):
        live.put(count)
        with pytest.raises(StoreFormatError, match="is missing or too short in the backup"):
            live.back_up()


def test_a_backup_of_a_store_whose_restore_is_not_finished_is_refused(live: Live) -> None:
    """Its backup would look like one of a whole store."""
    live.put(3)
    live.back_up()
    root, _ = live.restore()
    (root / "commitlog" / RESTORE_MARK).touch()
    with pytest.raises(StoreFormatError, match=RESTORE_NOT_FINISHED):
        live.back_up(store=root, target=live.folder / "second")


def test_unused_space_of_log_files_is_not_copied(live: Live) -> None:
    """Files are made ahead at their full size: a backup has what is in them."""
    live.put(3)
    made = live.back_up()
    path = next(live.target.glob("log/*"))
    assert path.stat().st_size == made.manifest.end_offset_bytes < FILE_BYTES
    assert attrs.asdict(made)["new_bytes"] == path.stat().st_size

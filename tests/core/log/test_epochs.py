"""Epochs: whoever remembers a position of the log can tell whether the same bytes still lie there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flintmq.core.errors import StoreError, StoreFormatError
from flintmq.core.log.epochs import MASTER, RECOVERED, Epoch, EpochFile, Epochs, epochs_path, read_epochs
from flintmq.core.store.message_store import MessageStore
from flintmq.testing.store import message, opened
from flintmq.tests.support.faulty_disk import FaultyDisk

ABORT = "abort"


def fill(store: MessageStore, count: int = 3) -> None:
    store.put([message("T", body=b"%d" % number) for number in range(count)])
    store.dispatch()


def crash_copy(source: Path, target: Path) -> Path:
    """The store as a killed process leaves it; another place, so that nothing vouches for what was not synced."""
    shutil.copytree(source, target)
    (target / ABORT).touch()
    return target


def test_a_new_store_has_an_id_and_a_single_epoch(tmp_path: Path) -> None:
    """Readers and slaves must be able to tell one store from another from its first byte on."""
    with opened(tmp_path / "a") as store:
        epochs = store.epochs.epochs
        assert [(epoch.number, epoch.start_offset_bytes) for epoch in epochs.entries] == [(1, 0)]
    assert read_epochs(tmp_path / "a") == epochs
    with opened(tmp_path / "b") as other:
        assert other.epochs.epochs.store_id != epochs.store_id
    assert read_epochs(tmp_path / "c") is None


def test_a_clean_restart_begins_no_new_epoch_of_the_log(tmp_path: Path) -> None:
    """An epoch too many would make every reader look whether its position still counts."""
    with opened(tmp_path) as store:
        fill(store)
        before = store.epochs.epochs
    with opened(tmp_path) as store:
        fill(store)
        assert store.epochs.epochs == before
    with opened(tmp_path) as store:
        assert store.epochs.epochs == before


def test_a_power_cut_begins_an_epoch_at_the_end_of_the_recovered_log(tmp_path: Path) -> None:
    """A reader may have seen records that were not synced and are gone, so their positions need another epoch."""
    with opened(tmp_path / "a") as store:
        fill(store)
        end = store.watermarks.wrote
    copied = crash_copy(tmp_path / "a", tmp_path / "b")
    with opened(copied) as store:
        found = store.epochs.epochs
    assert [(epoch.number, epoch.start_offset_bytes) for epoch in found.entries] == [(1, 0), (2, end)]
    assert found.current.cause == RECOVERED
    assert found.store_id == read_epochs(tmp_path / "a").store_id  # type: ignore[union-attr]


def test_a_new_epoch_begins_at_the_position_where_recovery_cuts_off_a_damaged_record(tmp_path: Path) -> None:
    """Whoever has seen the bytes that are cut must find out, and know from where on to read again."""
    with opened(tmp_path) as store:
        fill(store)
        last = store.put([message("T", body=b"torn")]).records[0].commit_log_offset_bytes
    log = tmp_path / "commitlog" / f"{0:020d}"
    raw = bytearray(log.read_bytes())
    raw[last + 90] ^= 1  # in the body: its CRC is wrong now
    log.write_bytes(raw)
    with opened(tmp_path) as store:
        assert store.watermarks.wrote == last
        assert store.epochs.epochs.current.start_offset_bytes == last
        again = store.epochs.epochs
    with opened(tmp_path) as store:
        assert store.epochs.epochs == again


def test_a_new_epoch_is_on_disk_before_any_byte_of_the_log_is_cut(tmp_path: Path) -> None:
    """A crash between the two must not leave a shorter log that claims to be the same."""
    with opened(tmp_path) as store:
        fill(store)
        last = store.put([message("T", body=b"torn")]).records[0].commit_log_offset_bytes
    log = tmp_path / "commitlog" / f"{0:020d}"
    raw = bytearray(log.read_bytes())
    raw[last + 90] ^= 1
    log.write_bytes(raw)
    disk = FaultyDisk()
    disk.fail("write_file", within="epochs.tmp")
    with pytest.raises(StoreError), opened(tmp_path, disk=disk):
        pass
    assert log.read_bytes() == raw


def test_a_store_whose_log_was_deleted_begins_a_new_epoch_at_offset_0(tmp_path: Path) -> None:
    """An empty log is not the one that readers knew, though the store's id is."""
    with opened(tmp_path) as store:
        fill(store)
        store.epochs.begin(store.watermarks.wrote, MASTER)
    shutil.rmtree(tmp_path / "commitlog")
    shutil.rmtree(tmp_path / "consumequeue")
    with opened(tmp_path) as store:
        assert [(e.number, e.start_offset_bytes) for e in store.epochs.epochs.entries] == [(3, 0)]


def test_a_new_epoch_replaces_all_epochs_that_begin_after_its_start() -> None:
    """They speak of bytes that are gone; their numbers must not come again."""
    epochs = Epochs.new().begun(100, MASTER).begun(200, MASTER)
    cut = epochs.begun(100, RECOVERED)
    assert [(e.number, e.start_offset_bytes) for e in cut.entries] == [(1, 0), (4, 100)]
    assert cut.current.id not in {epoch.id for epoch in epochs.entries}


def test_looking_up_a_log_position_returns_the_epoch_that_contains_the_position() -> None:
    """The epoch of a position is what makes it a name; deleted files take their epochs with them."""
    epochs = Epochs.new().begun(100, MASTER).begun(200, MASTER)
    first, second, third = epochs.entries
    assert [epochs.at(offset) for offset in (0, 99, 100, 199, 200, 10_000)] == [
        first,
        first,
        second,
        second,
        third,
        third,
    ]
    assert [epochs.end_offset_bytes(epoch, 300) for epoch in epochs.entries] == [100, 200, 300]
    assert epochs.kept_from(99).entries == epochs.entries
    assert epochs.kept_from(100).entries == (second, third)
    assert epochs.kept_from(10_000).entries == (third,)
    assert epochs.kept_from(150).at(0) == second
    assert epochs.cut_at(150).entries == (first, second)
    assert Epochs("0" * 32, (second,)).cut_at(50).entries == (second,)


def test_epochs_are_read_back_from_their_file(tmp_path: Path) -> None:
    """The file is the only memory of it."""
    disk = FaultyDisk()
    file = EpochFile(disk, epochs_path(tmp_path), 4096)
    file.begin(5000, MASTER)
    assert read_epochs(tmp_path) == file.epochs == Epochs.from_bytes(file.epochs.to_bytes())
    assert not [path for path in file.path.parent.iterdir() if path != file.path]


def test_a_failed_write_of_the_epoch_file_leaves_the_epochs_in_memory_and_on_disk_unchanged(tmp_path: Path) -> None:
    """The epochs in memory and on disk must stay equal."""
    disk = FaultyDisk()
    file = EpochFile(disk, epochs_path(tmp_path))
    before = file.epochs
    disk.fail("write_file", within="epochs.tmp")
    with pytest.raises(StoreError, match="epochs"):
        file.begin(1, MASTER)
    assert file.epochs == before == read_epochs(tmp_path)


def damaged(change: str) -> bytes:
    content = json.loads(
        Epochs("ab" * 16, (Epoch(1, 0, "cd" * 8, "created"), Epoch(2, 9, "ef" * 8, "master"))).to_bytes()
    )
    match change:
        case "bit":
            content["epochs"][1]["start_offset_bytes"] = 8
        case "format":
            content["format"] = 2
        case "crc":
            del content["crc32"]
        case "shape":
            return b"[1]"
        case "torn":
            return json.dumps(content).encode()[:50]
        case "zeros":
            return bytes(100)
        case "bytes":
            return b"\xff\xfe"
        case "deep":
            return b"[" * 100_000
    return json.dumps(content).encode()


@pytest.mark.parametrize("change", ["bit", "format", "crc", "shape", "torn", "zeros", "bytes", "deep"])
def test_the_error_about_a_damaged_epoch_file_says_to_move_the_file_away(tmp_path: Path, change: str) -> None:
    """A damaged file must not be taken for none: the store would get another id, silently."""
    path = epochs_path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(damaged(change))
    with pytest.raises(StoreFormatError, match=r"epochs is damaged .*move it away"):
        read_epochs(tmp_path)
    with pytest.raises(StoreFormatError), opened(tmp_path):
        pass


@pytest.mark.parametrize(
    "entries",
    [
        (),
        (Epoch(1, 0, "cd" * 8, "created"), Epoch(1, 9, "cd" * 8, "master")),
        (Epoch(1, 9, "cd" * 8, "created"), Epoch(2, 9, "cd" * 8, "master")),
        (Epoch(1, -1, "cd" * 8, "created"),),
        (Epoch(1, 0, "x" * 16, "created"),),
        (Epoch(1, 0, "cd" * 8, "moon"),),
        (Epoch(1, 2**63, "cd" * 8, "created"),),
        (Epoch(True, 0, "cd" * 8, "created"),),
    ],
)
def test_an_epoch_file_with_inconsistent_epochs_is_refused(entries: tuple[Epoch, ...]) -> None:
    """They also come from another broker, with a checksum that is right."""
    with pytest.raises(ValueError, match=r"epoch|number"):
        Epochs.from_bytes(Epochs("ab" * 16, entries).to_bytes())

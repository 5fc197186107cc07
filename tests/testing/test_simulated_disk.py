"""Authors of plugins test against this disk: it must fail where it is told to, and lose what a real one would."""

from __future__ import annotations

import errno
import random
import threading
from pathlib import Path

import pytest

from flintmq.core.errors import StoreError, StoreFullError
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.tests.support.crash_states import KINDS, CrashPoint, states

FOLDER = Path("/store")
FILE = FOLDER / "log"


def mapped(disk: SimulatedDisk) -> None:
    """Write two pages to a file through a map, and sync the first one."""
    disk.make_folder(FOLDER)
    region = disk.map_file(FILE, 8192, create=True, allocate=8192)
    region.write(0, b"a" * 4096)
    region.sync()
    region.write(4096, b"b" * 4096)


def test_a_simulated_process_kill_keeps_all_writes_and_a_power_cut_can_lose_unsynced_writes() -> None:
    """The two crashes that a store is built for."""
    disk = SimulatedDisk()
    mapped(disk)
    point = CrashPoint(disk).advance(len(disk.journal))
    assert point.killed().files[FILE] == b"a" * 4096 + b"b" * 4096
    assert point.power_cut("lost", random.Random(1)).files[FILE] == b"a" * 4096 + bytes(4096)
    assert point.power_cut("kept", random.Random(1)).files[FILE] == b"a" * 4096 + b"b" * 4096


def test_a_power_cut_can_remove_a_file_whose_folder_was_not_synced() -> None:
    """To sync a file does not sync the folder that names it."""
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    disk.write_at(FILE, 0, b"x")
    point = CrashPoint(disk).advance(len(disk.journal))
    assert FILE in point.killed().files
    assert FILE not in point.power_cut("lost", random.Random(1)).files
    disk.sync_folder(FOLDER)
    point.advance(len(disk.journal))
    assert FILE in point.power_cut("lost", random.Random(1)).files


def test_the_simulated_disk_generates_equal_crash_states_from_equal_seeds() -> None:
    """A failure that a crash test finds must be had again."""
    disk = SimulatedDisk()
    mapped(disk)
    numbers = range(len(disk.journal) + 1)
    found = [(at, kind, image.key()) for at, kind, image in states(disk, numbers, 7)]
    assert {kind for _at, kind, _key in found} == {"killed", "cut", *KINDS}
    assert found == [(at, kind, image.key()) for at, kind, image in states(disk, numbers, 7)]


def test_a_scripted_disk_failure_can_occur_once_or_at_every_call() -> None:
    """The errors are those of the store, as with a real disk."""
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    disk.fail(0, errno.ENOSPC, operation="create")
    with pytest.raises(StoreFullError, match="no room for a file of 4096 bytes"):
        disk.map_file(FILE, 4096, create=True, allocate=4096)
    assert not disk.exists(FILE)
    region = disk.map_file(FILE, 4096, create=True, allocate=4096)
    disk.fail(0, errno.EIO, for_ever=True, operation="sync", within="log")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            region.sync()
    disk.write_file(FOLDER / "other", b"x")
    assert disk.hits == 3
    disk.heal()
    region.sync()


def test_a_failed_file_creation_removes_the_folder_that_was_created_for_the_file() -> None:
    """Nobody would make its name durable."""
    disk = SimulatedDisk()
    disk.fail(0, errno.EIO, operation="resize")
    with pytest.raises(StoreError, match="cannot be opened"):
        disk.map_file(FILE, 4096, create=True, allocate=0)
    assert not disk.exists(FOLDER)
    assert not disk.exists(FILE)


def test_a_write_beyond_the_allocated_bytes_is_an_error() -> None:
    """Such a write would end the process by a signal if the disk were full."""
    disk = SimulatedDisk()
    region = disk.map_file(FILE, 8192, create=True, allocate=4096)
    with pytest.raises(AssertionError, match="only 4096 bytes are allocated"):
        region.write(4000, bytes(200))
    region.allocate(8192)
    region.write(4000, bytes(200))


def test_the_journal_of_disk_operations_stays_correct_if_threads_write_concurrently() -> None:
    """A broker's flush thread syncs while its loop writes."""
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)

    def write(name: str) -> None:
        for number in range(200):
            disk.write_file(FOLDER / name, b"%d" % number)

    threads = [threading.Thread(target=write, args=(f"file{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    replayed = CrashPoint(disk).advance(len(disk.journal)).killed()
    assert replayed.files == disk.image().files
    assert set(replayed.files.values()) == {b"199"}

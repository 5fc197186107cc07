"""One file's positions: they move when bytes are where the position says, and not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.errors import StoreFullError
from flintmq.core.log.mapped_file_queue import HEAD_BYTES, MappedFile
from flintmq.tests.support.faulty_disk import FaultyDisk

SIZE = 8_192
STEP = 4_096


def made(disk: FaultyDisk, folder: Path) -> MappedFile:
    path = folder / f"{0:020d}"
    return MappedFile(path, 0, SIZE, disk.map_file(path, SIZE, create=True, allocate=0), STEP)


def test_a_log_file_is_allocated_on_disk_in_steps_before_bytes_are_written(tmp_path: Path) -> None:
    """A write into a hole of a full disk would end the process; a step that fails leaves all as it was."""
    disk = FaultyDisk()
    file = made(disk, tmp_path)
    file.grow(1)
    assert file.grown == STEP
    disk.fail("allocate", times=1)
    with pytest.raises(StoreFullError):
        file.grow(STEP + 1)
    assert file.grown == STEP
    file.grow(STEP + 1)
    assert file.grown == SIZE


def test_bytes_in_the_write_buffer_of_a_log_file_are_readable_only_after_a_commit(tmp_path: Path) -> None:
    """Nobody reads it before it is committed."""
    file = made(FaultyDisk(), tmp_path)
    file.buffer = memoryview(bytearray(SIZE))
    file.grow(SIZE)
    file.append(b"x" * 20)
    assert (file.wrote, file.readable, bytes(file.view[:20])) == (20, 0, bytes(20))
    file.commit()
    assert (file.readable, bytes(file.view[:20])) == (20, b"x" * 20)
    assert file.flushed == 0
    assert file.flush() == file.flushed == 20


def test_the_first_8_bytes_of_an_append_of_several_records_are_written_last(tmp_path: Path) -> None:
    """While the first eight bytes are zeros, nothing behind them was acknowledged."""
    file = made(FaultyDisk(), tmp_path)
    file.grow(SIZE)
    file.append(b"0123456789abcdef", head_last=True)
    assert HEAD_BYTES == 8
    assert bytes(file.view[:16]) == b"0123456789abcdef"


def test_a_failed_sync_does_not_move_the_flushed_position(tmp_path: Path) -> None:
    """The next sync must not be left out because positions say that all is on disk."""
    disk = FaultyDisk()
    file = made(disk, tmp_path)
    file.grow(SIZE)
    file.append(b"x")
    disk.fail("sync", times=1)
    with pytest.raises(OSError, match="scripted failure"):
        file.flush()
    assert (file.flushed, file.unsynced) == (0, True)
    assert file.flush() == 1
    assert not file.unsynced

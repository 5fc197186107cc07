"""Two brokers on one store would write over each other: the lock keeps the second one out, a Java broker as well."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flintmq.core.io.os_disk import FileLock, is_file_locked

HOLDER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_process_cannot_lock_the_same_file_twice(tmp_path: Path) -> None:
    """A POSIX lock lets its own process in again: an embedded broker started twice must be noticed all the same."""
    path = tmp_path / "lock"
    lock = FileLock(path)
    assert path.read_bytes() == b"lock"
    with pytest.raises(BlockingIOError):
        FileLock(path)
    assert is_file_locked(path), "the attempt has not dropped the lock"
    lock.release()
    lock.release()
    FileLock(path).release()


def test_a_file_that_is_already_locked_cannot_be_locked_through_a_symbolic_link(tmp_path: Path) -> None:
    """A store that is reached by a link is the same store."""
    path = tmp_path / "lock"
    lock = FileLock(path)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(BlockingIOError):
        FileLock(tmp_path / "link")
    lock.release()


def test_locking_a_file_that_another_process_has_locked_raises_blocking_io_error(tmp_path: Path) -> None:
    """Java's ``FileChannel.tryLock`` locks the same byte in the same way as the process here."""
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert is_file_locked(path)
        with pytest.raises(BlockingIOError):
            FileLock(path)
        holder.communicate("")
    assert not is_file_locked(path)
    FileLock(path).release()


def test_checking_whether_a_file_is_locked_neither_locks_nor_creates_the_file(tmp_path: Path) -> None:
    """The doctor looks at stores of running brokers, and at folders without a lock file."""
    path = tmp_path / "lock"
    assert not is_file_locked(path)
    assert not path.exists()
    path.touch()
    assert not is_file_locked(path)
    fd = os.open(path, os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    os.close(fd)


def test_a_lock_file_that_cannot_be_opened_is_not_reported_as_locked(tmp_path: Path) -> None:
    """The operator would otherwise look for a second broker that does not exist."""
    with pytest.raises(OSError, match="No such file") as found:
        FileLock(tmp_path / "missing" / "lock")
    assert not isinstance(found.value, BlockingIOError)

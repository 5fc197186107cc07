"""A lock on byte 0 of a file, as Java's ``FileChannel.tryLock`` and POSIX have it: held by a process while it lives."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

_held: set[tuple[int, int]] = set()
"""Device and inode of the locks of this process: a POSIX lock does not keep its own process out."""

_FLOCK: Final = struct.Struct("hhqqi4x")
"""``struct flock`` of Linux on 64 bits."""


class FileLock:
    """Held from construction until :meth:`release`. The file is made, and holds the word ``lock``.

    Raises:
        BlockingIOError: another holder has it.
        OSError: the file cannot be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self._fd = -1
        if _identity(path) in _held:
            # Before it is opened: closing any descriptor of a file we have locked drops the lock.
            raise BlockingIOError(errno.EAGAIN, "is locked", str(path))
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        stat = os.fstat(self._fd)
        self._key = (stat.st_dev, stat.st_ino)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(self._fd)
            self._fd = -1
            raise BlockingIOError(errno.EAGAIN, "is locked", str(path)) from error
        _held.add(self._key)
        try:
            os.pwrite(self._fd, b"lock", 0)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Let the next one in. Idempotent."""
        if self._fd >= 0:
            _held.discard(self._key)
            os.close(self._fd)
            self._fd = -1


def is_file_locked(path: Path) -> bool:
    """Return whether a process holds the lock, this one included. Takes no lock and disturbs none. Raises OSError."""
    if _identity(path) in _held:
        return True  # before it is opened: closing any descriptor of a file we have locked drops the lock
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino

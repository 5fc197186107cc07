"""One process, one store (reference: store-format 1: byte 0 of ``lock`` is locked while a broker runs)."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from flintmq.core.errors import StoreError, StoreLockedError

_held: set[tuple[int, int]] = set()
"""Device and inode of the locks of this process: a POSIX lock does not keep its own process out."""


class StoreLock:
    """Held from construction until :meth:`release`. The Java broker takes the same lock, so neither starts on the other's.

    Raises:
        StoreLockedError: somebody holds it.
        StoreError: the file cannot be made (read-only folder).
    """

    def __init__(self, root: Path) -> None:
        path = root / "lock"
        self._fd = -1
        if _identity(path) in _held:
            raise _taken(root)  # before it is opened: closing any descriptor of a file we have locked drops the lock
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{path}: cannot be opened for writing: {error.strerror}") from error
        stat = os.fstat(self._fd)
        self._key = (stat.st_dev, stat.st_ino)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(self._fd)
            raise _taken(root) from error
        _held.add(self._key)
        try:
            os.pwrite(self._fd, b"lock", 0)
        except OSError as error:
            self.release()
            raise StoreError(f"{path}: cannot be written: {error.strerror}") from error

    def release(self) -> None:
        """Lets the next one in. Idempotent."""
        if self._fd >= 0:
            _held.discard(self._key)
            os.close(self._fd)
            self._fd = -1


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _taken(root: Path) -> StoreLockedError:
    return StoreLockedError(f"{root}: another broker has this store open; stop it or name another store.path")


_FLOCK: Final = struct.Struct("hhqqi4x")
"""``struct flock`` of Linux on 64 bits."""


def is_locked(root: Path) -> bool:
    """Whether a broker has a store open now, this process's own included. Takes no lock and disturbs nobody's.

    Raises:
        StoreError: the lock file cannot be read.
    """
    path = root / "lock"
    if _identity(path) in _held:
        return True  # before it is opened: closing any descriptor of a file we have locked drops the lock
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
    except OSError as error:
        raise StoreError(f"{path}: nobody can tell whether it is locked: {error.strerror}") from error
    finally:
        os.close(fd)

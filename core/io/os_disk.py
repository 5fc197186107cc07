"""The disk interface implemented by the operating system's file system, and file locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from flintmq.core.errors import StoreError, StoreExhaustedError, StoreFullError, store_error_kind
from flintmq.core.io.os_region import OsRegion
from flintmq.core.io.paths import named_durably, sync_folder

_STATM: Final = Path("/proc/self/statm")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class OsDisk:
    """The operating system's file system, as a :class:`~flintmq.core.io.disk.Disk`."""

    def map_file(self, path: Path, size: int, *, create: bool, allocate: int, holds: bool = False) -> OsRegion:
        created = False
        fd = -1
        unnamed: list[Path] = []
        backed = 0
        try:
            if create and not path.exists():
                unnamed = self._missing(path.parent)
                path.parent.mkdir(parents=True, exist_ok=True)
                unnamed.append(path.parent)
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                created = True
                # A single ftruncate() sets the file's size, so a killed process leaves a file of size 0 or of the full size.
                os.ftruncate(fd, size)
                backed = min(allocate, size)
                if backed:
                    os.posix_fallocate(fd, 0, backed)
            else:
                # An existing file may be sparse, so none of its bytes count as allocated on the disk: ``backed`` stays 0.
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            region = OsRegion(path, fd, size, backed, unnamed, holds=holds)
            if not holds:
                os.close(fd)
            return region
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            if created:
                with contextlib.suppress(OSError):
                    path.unlink()
            if unnamed:
                # A call of map_file() makes only the folders durable that the call itself has created.
                # After an error, the new folders are removed, so that a later call creates them again and makes them durable.
                self._unmake(path.parent, unnamed[0])
            # mmap() fails with ENOMEM if the process has too many memory maps, even if the disk is neither full nor damaged.
            kind = StoreExhaustedError if error.errno == errno.ENOMEM else store_error_kind(error)
            if kind is StoreFullError:
                raise kind(f"{path}: no room for a file of {size} bytes") from error
            raise kind(f"{path}: cannot be opened for writing: {error.strerror}") from error

    @staticmethod
    def _unmake(folder: Path, first: Path) -> None:
        """Remove ``folder`` and its parents below ``first``, if they are empty."""
        while folder != first:
            with contextlib.suppress(OSError):
                folder.rmdir()
            folder = folder.parent

    @staticmethod
    def _missing(folder: Path) -> list[Path]:
        """Return the folders that get a new entry when ``folder`` is created, outermost first."""
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        return [path.parent for path in reversed(missing)]

    def list_files(self, folder: Path) -> list[Path]:
        return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []

    def list_folders(self, folder: Path) -> list[Path]:
        return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        parents = self._missing(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for parent in parents:
                sync_folder(parent)
        except OSError as error:
            if parents:
                self._unmake(folder, parents[0])
            kind = store_error_kind(error)
            if kind is StoreFullError:
                raise kind(f"{folder}: no room for a folder") from error
            raise kind(f"{folder}: cannot be made: {error.strerror}") from error

    def sync_folder(self, folder: Path) -> None:
        sync_folder(folder)

    def incarnation(self, path: Path) -> str:
        try:
            found = path.stat()
            boot = _BOOT_ID.read_text("ascii").strip()
        except OSError:
            return ""
        return f"{boot} {found.st_dev} {found.st_ino}"

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def write_file(self, path: Path, data: bytes) -> None:
        existed = path.exists()
        try:
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if not existed:
                sync_folder(path.parent)
        except OSError as error:
            kind = store_error_kind(error)
            if kind is StoreFullError:
                raise kind(f"{path}: no room") from error
            raise kind(f"{path}: cannot be written: {error.strerror}") from error

    def write_at(self, path: Path, position: int, data: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.pwrite(fd, data, position) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        finally:
            os.close(fd)

    def sync_content(self, path: Path) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def discard(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def lock(self, path: Path) -> Callable[[], object]:
        return FileLock(path).release

    def replace(self, source: Path, target: Path) -> None:
        with named_durably(target.parent):
            source.replace(target)

    def remove(self, path: Path) -> None:
        try:
            with named_durably(path.parent):
                path.unlink()
        except FileNotFoundError:
            return

    def remove_folder(self, folder: Path) -> None:
        with contextlib.suppress(FileNotFoundError, OSError):
            folder.rmdir()

    def usage(self, path: Path) -> tuple[int, int, int]:
        try:
            while not path.exists() and path != path.parent:
                path = path.parent
            found = os.statvfs(path)
        except OSError as error:
            raise StoreError(f"{path}: the free space of the disk cannot be determined: {error.strerror}") from error
        block_bytes = found.f_frsize
        total, used = found.f_blocks, found.f_blocks - found.f_bfree
        return total * block_bytes, used * block_bytes, found.f_bavail * block_bytes

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def resident_bytes(self) -> int:
        try:
            return int(_STATM.read_text("ascii").split()[2]) * mmap.PAGESIZE
        except OSError:  # Only Linux has the file /proc/self/statm, so the size is 0 on other systems.
            return 0


OS_DISK: Final = OsDisk()


_held: set[tuple[int, int]] = set()
"""Device and inode of each file that this process has locked. The set is needed because a POSIX lock does not exclude the
process that holds the lock."""

_FLOCK: Final = struct.Struct("hhqqi4x")
"""Layout of ``struct flock`` on 64-bit Linux."""


class FileLock:
    """A lock on a file, held from construction until :meth:`release`. The file is created with the content ``lock``.

    Raises:
        BlockingIOError: another process, or this one, has locked the file.
        OSError: the file cannot be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self._fd = -1
        if _identity(path) in _held:
            # A file that this process has locked is not opened, because closing any of its descriptors releases the lock.
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
        """Release the lock on the file. Idempotent."""
        if self._fd >= 0:
            _held.discard(self._key)
            os.close(self._fd)
            self._fd = -1


def lock_folder(folder: Path) -> Callable[[], object]:
    """Lock a folder, without creating a file in it; return the function that releases the lock.

    Raises:
        BlockingIOError: another process, or this one, has locked the folder.
        OSError: the folder cannot be opened, or its file system does not support such locks.
    """
    with contextlib.ExitStack() as failed:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        failed.callback(os.close, fd)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return failed.pop_all().close


def is_file_locked(path: Path) -> bool:
    """Return whether any process, including this one, has locked a file. The function itself does not lock the file. Raises
    OSError."""
    if _identity(path) in _held:
        # The locked file is not opened, because closing any of its descriptors would release this process's lock.
        return True
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

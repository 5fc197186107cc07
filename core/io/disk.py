"""The seam to the disk: everything the store reads, writes and syncs goes through a :class:`Disk`.

Rules that keep a broker alive (docs/internals/reliability.md, Disk):

* Pages are allocated before they are written through a map. A write into a hole of a full disk ends the process with
  SIGBUS; ``posix_fallocate`` on the same disk raises ENOSPC.
* Bytes are forced with ``fdatasync`` on the file's descriptor, or with ``msync`` where the file holds none: both write pages
  dirtied through the map or by calls, and release the interpreter lock, which ``mmap.flush`` holds.
* A mapped file holds no descriptor, but the one that is written by calls and synced all the time. What needs one opens the
  file for so long; where the process has none left (EMFILE), nothing was begun, and nothing is wrong with the disk.
* A failed sync is final. The kernel may have dropped the dirty pages, so a second, successful sync proves nothing.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flintmq.core.errors import StoreError, StoreExhaustedError, StoreFullError, is_exhausted, store_error_kind
from flintmq.core.io.bare_map import map_shared, sync_map
from flintmq.core.io.file_lock import FileLock
from flintmq.core.io.lazy_numpy import numpy

if TYPE_CHECKING:
    Column = numpy.ndarray[Any, Any]


class MappedRegion(Protocol):
    """A file of fixed size, mapped. Writes by one thread at a time; ``sync`` from any thread."""

    @property
    def view(self) -> memoryview:
        """All of the file, read-only. Slices stay valid after :meth:`close`."""
        ...

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Copies data to a position below what :meth:`allocate` has covered.

        It need not go in order: of a copy that a kill cuts short any part may be there, but a piece of 8 bytes is there or not.
        """
        ...

    def write_in_order(self, position: int, data: bytes | memoryview) -> None:
        """The same from the first byte to the last, by way of the system; releases the interpreter lock. Raises OSError."""
        ...

    def write_int32s(self, position: int, places: Column, values: Column) -> None:
        """Writes each value, 4 bytes big-endian, to its place: ``position + 4 * place``. Places are ascending. Needs numpy.

        As with :meth:`write` they need not go in order, but each of them is there or not.
        """
        ...

    def allocate(self, end: int) -> None:
        """Makes sure that bytes up to ``end`` can be written. Raises StoreFullError when the disk is full."""
        ...

    def fill_zeros(self, start: int, end: int) -> None:
        """Writes zeros into a part that :meth:`allocate` has covered and nobody has written to; releases the interpreter
        lock meanwhile. Raises OSError."""
        ...

    def rewrite(self, start: int, end: int) -> None:
        """Writes a part that :meth:`allocate` has covered to where it lies, so that the next sync writes it to the disk.

        For pages that the kernel may wrongly call clean: a sync of them failed. Releases the interpreter lock meanwhile.
        Raises OSError.
        """
        ...

    def sync(self) -> None:
        """Forces what was written to the disk, and with the first sync the file's name. Raises OSError."""
        ...

    def evict(self, start: int, end: int) -> None:
        """Takes the whole pages of a part out of this process's memory; the next look at one brings it back.

        Nothing is lost, synced or not: the kernel goes on holding them, and what was written still goes to the disk with the
        next sync. Takes some 0.2 ms a MiB of pages that are there; the interpreter lock is held.
        """
        ...

    def next_data(self, position: int) -> int:
        """A place at or behind a position before which there are only zeros; the file's size where nothing follows.

        Costs no reading where the file system knows its holes: a gigabyte that was never written is skipped at once.
        """
        ...

    def let_go(self) -> None:
        """Gives back the descriptor that is held; what needs one from now on opens the file. No other thread may be at work on
        the file but for reading."""
        ...

    def close(self) -> None:
        """Gives the descriptor back, if any is held. The map goes when the last slice of it does."""
        ...


class Disk(Protocol):
    """Files and folders, as far as a store needs them."""

    def map_file(self, path: Path, size: int, *, create: bool, allocate: int, holds: bool = False) -> MappedRegion:
        """Maps a file of exactly ``size`` bytes; a new one is made of zeros with its first ``allocate`` bytes backed by disk.

        Args:
            holds: a descriptor is held until :meth:`MappedRegion.let_go`, for a file that is written and synced all the time.

        Raises:
            StoreFullError: no room; StoreExhaustedError where it is the process that has none. Nothing is left behind.
            StoreError: the file cannot be made or opened; says why.
        """
        ...

    def list_files(self, folder: Path) -> list[Path]:
        """The plain files of a folder, by name; none when it does not exist."""
        ...

    def list_folders(self, folder: Path) -> list[Path]: ...

    def make_folder(self, folder: Path) -> None:
        """Makes a folder and its parents, durably."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Makes durable which names a folder holds, whoever made or removed them. Raises OSError."""
        ...

    def incarnation(self, path: Path) -> str:
        """Says for a file or folder under which kernel it lies: the boot's id, device and inode; empty when unknown.

        While it is the same, what any process wrote through a map is still there, synced or not.
        """
        ...

    def exists(self, path: Path) -> bool: ...

    def size(self, path: Path) -> int: ...

    def read(self, path: Path) -> bytes: ...

    def write_file(self, path: Path, data: bytes) -> None:
        """Writes a small file durably, in place."""
        ...

    def write_at(self, path: Path, position: int, data: bytes) -> None:
        """Writes a part of a file that nobody maps, and makes the file if it is not there; durable is none of it. What is
        written is the system's when this returns. Raises OSError, also where there is room for a part only."""
        ...

    def discard(self, path: Path) -> None:
        """Removes a file that may be back after a power cut. None there is fine. Raises OSError."""
        ...

    def lock(self, path: Path) -> Callable[[], object]:
        """Locks a file, which is made, against other processes and this one; what is returned gives the lock back.

        Raises:
            BlockingIOError: somebody has it.
            OSError: the file cannot be opened or written.
        """
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Gives a file another's name, in one step and durably; both lie in one folder. Raises OSError."""
        ...

    def remove(self, path: Path) -> None:
        """Removes a file, durably. None there is fine."""
        ...

    def remove_folder(self, folder: Path) -> None:
        """Removes an empty folder. None there, or one that is not empty, is fine."""
        ...

    def usage(self, path: Path) -> tuple[int, int, int]:
        """(total, used, free) bytes of the file system a path lies on, or would lie on; free is what we may still write.

        ``used / (used + free)`` is the share ``df`` shows: blocks that are reserved for root count as neither.

        Raises:
            StoreError: it cannot be told.
        """
        ...

    def modified_ms(self, path: Path) -> int:
        """When a file was last changed, in milliseconds since 1970."""
        ...

    def resident_bytes(self) -> int:
        """How much of mapped files is in this process's memory, libraries included; 0 where the system does not tell."""
        ...


_SINGLE_PAGES_BYTES = 64 * 1024 * 1024
_REWRITE_BYTES = 1024 * 1024
_BY_CALL_BYTES = 8 * 1024
"""So much is cheaper written by a system call than through the map, where every new page is a fault: a third of the cost."""
_BY_OPENING_BYTES = 64 * 1024
"""The same where the file must be opened for it."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ZEROS = memoryview(bytes(1024 * 1024))
_STATM = Path("/proc/self/statm")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class OsRegion:
    """A mapped file of the operating system.

    Args:
        fd: of the file; it belongs to the region with ``holds``, and is the caller's otherwise.
        unnamed: folders whose entries must be forced with the first sync.
    """

    __slots__ = (
        "_allocated",
        "_by_call_bytes",
        "_fd",
        "_is_closed",
        "_map",
        "_path",
        "_size",
        "_unnamed",
        "_view",
        "view",
    )

    def __init__(self, path: Path, fd: int, size: int, allocated: int, unnamed: list[Path], *, holds: bool) -> None:
        self._path = path
        self._size = size
        self._allocated = allocated
        self._unnamed = unnamed
        self._map = map_shared(fd, size)
        self._fd = fd if holds else -1
        self._by_call_bytes = _BY_CALL_BYTES if holds else _BY_OPENING_BYTES
        self._is_closed = False
        self._view = memoryview(self._map)
        self.view = self._view.toreadonly()
        if size <= _SINGLE_PAGES_BYTES:
            allocated = size  # all at once: parts that are told different things are maps of their own to the kernel
        if allocated:
            self._write_in_single_pages(0, allocated)

    def _write_in_single_pages(self, start: int, end: int) -> None:
        """Keeps the kernel from putting a part that will be written into large folios; the part before it may be again.

        A fault in a map reads ahead, and what it reads ahead of becomes one folio of up to 2 MiB. A folio that is written
        to through a map is dirty as a whole: each sync of 36 KiB wrote 736 KiB to the disk here, with single pages 40.
        """
        if hasattr(mmap, "MADV_RANDOM"):
            start = max(start, end - _SINGLE_PAGES_BYTES) // mmap.PAGESIZE * mmap.PAGESIZE
            if start:
                self._map.madvise(mmap.MADV_NORMAL, 0, start)  # who reads a whole file wants it read ahead
            self._map.madvise(mmap.MADV_RANDOM, start, min(end, self._size) - start)

    def _borrow(self) -> int:
        """A descriptor of the file: the one that is held, or else one for :meth:`_give_back`. Raises OSError."""
        return self._fd if self._fd >= 0 else os.open(self._path, os.O_RDWR | os.O_CLOEXEC)

    def _give_back(self, fd: int) -> None:
        if fd != self._fd:
            os.close(fd)

    def write(self, position: int, data: bytes | memoryview) -> None:
        if len(data) < self._by_call_bytes:
            self._view[position : position + len(data)] = data
            return
        try:
            self.write_in_order(position, data)
        except OSError as error:
            if not is_exhausted(error):
                raise
            self._view[position : position + len(data)] = data

    def write_int32s(self, position: int, places: Column, values: Column) -> None:
        numpy.frombuffer(self._view, ">i4", int(places[-1]) + 1, position)[places] = values

    def allocate(self, end: int) -> None:
        if end <= self._allocated:
            return
        try:
            fd = self._borrow()
            try:
                os.posix_fallocate(fd, self._allocated, end - self._allocated)
            finally:
                self._give_back(fd)
        except OSError as error:
            kind = store_error_kind(error)
            if kind is StoreFullError:
                raise kind(f"{self._path}: no room for {end - self._allocated} more bytes") from error
            raise kind(f"{self._path}: cannot allocate: {error.strerror}") from error
        if self._size > _SINGLE_PAGES_BYTES:
            self._write_in_single_pages(self._allocated, end)
        self._allocated = end

    def write_in_order(self, position: int, data: bytes | memoryview) -> None:
        left = memoryview(data)
        fd = self._borrow()
        try:
            while left:
                done = os.pwrite(fd, left, position)
                left, position = left[done:], position + done
        finally:
            self._give_back(fd)

    def fill_zeros(self, start: int, end: int) -> None:
        fd = self._borrow()
        try:
            while start < end:
                start += os.pwrite(fd, _ZEROS[: end - start], start)
        finally:
            self._give_back(fd)

    def rewrite(self, start: int, end: int) -> None:
        fd = self._borrow()
        try:
            while start < end:
                start += os.pwrite(fd, self.view[start : min(end, start + _REWRITE_BYTES)], start)
        finally:
            self._give_back(fd)

    def sync(self) -> None:
        unnamed = tuple(self._unnamed)
        if self._fd < 0:
            sync_map(self._map)
        elif unnamed:
            os.fsync(self._fd)
        else:
            os.fdatasync(self._fd)
        if unnamed:
            for folder in reversed(unnamed):
                sync_folder(folder)
            self._unnamed.clear()  # last: another thread that syncs meanwhile does it again rather than come back too early

    def evict(self, start: int, end: int) -> None:
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        length = end // mmap.PAGESIZE * mmap.PAGESIZE - start
        if length > 0 and not self._is_closed and hasattr(mmap, "MADV_DONTNEED"):
            # Of a shared map of a file this drops table entries only, and takes over what they know of pages that are dirty.
            self._map.madvise(mmap.MADV_DONTNEED, start, length)

    def next_data(self, position: int) -> int:
        try:
            fd = self._borrow()
            try:
                return os.lseek(fd, position, os.SEEK_DATA)
            finally:
                self._give_back(fd)
        except OSError as error:
            return self._size if error.errno == errno.ENXIO else position

    def let_go(self) -> None:
        fd, self._fd = self._fd, -1
        self._by_call_bytes = _BY_OPENING_BYTES
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.let_go()
        self._view.release()
        self.view.release()
        with contextlib.suppress(BufferError):  # slices are on their way to clients; the map goes with the last of them
            self._map.close()


def sync_folder(folder: Path) -> None:
    """Makes names made or removed in a folder durable."""
    with _named_durably(folder):
        pass


@contextlib.contextmanager
def _named_durably(folder: Path) -> Iterator[None]:
    """Makes the names durable that are made or removed in a folder meanwhile; it is opened first, or nothing is changed."""
    fd = os.open(folder, _FOLDER)
    try:
        yield
        os.fsync(fd)
    finally:
        os.close(fd)


class OsDisk:
    """The operating system's file system."""

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
                # The size first: whoever is killed in between leaves a file that is empty or whole, nothing else.
                os.ftruncate(fd, size)
                backed = min(allocate, size)
                if backed:
                    os.posix_fallocate(fd, 0, backed)
            else:
                # A file of another maker may be sparse: what is written is allocated again (backed stays 0).
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
                # Folders made for it go too: found there by a later call, nobody would make their names durable.
                self._unmake(path.parent, unnamed[0])
            kind = StoreExhaustedError if error.errno == errno.ENOMEM else store_error_kind(error)  # no maps left
            if kind is StoreFullError:
                raise kind(f"{path}: no room for a file of {size} bytes") from error
            raise kind(f"{path}: cannot be opened for writing: {error.strerror}") from error

    @staticmethod
    def _unmake(folder: Path, first: Path) -> None:
        """Removes empty folders from one upwards, below another one."""
        while folder != first:
            with contextlib.suppress(OSError):
                folder.rmdir()
            folder = folder.parent

    @staticmethod
    def _missing(folder: Path) -> list[Path]:
        """The folders that get a new entry when this one is made, outermost first."""
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

    def discard(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def lock(self, path: Path) -> Callable[[], object]:
        return FileLock(path).release

    def replace(self, source: Path, target: Path) -> None:
        with _named_durably(target.parent):
            source.replace(target)

    def remove(self, path: Path) -> None:
        try:
            with _named_durably(path.parent):
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
            raise StoreError(f"{path}: the disk's space cannot be told: {error.strerror}") from error
        block_bytes = found.f_frsize
        total, used = found.f_blocks, found.f_blocks - found.f_bfree
        return total * block_bytes, used * block_bytes, found.f_bavail * block_bytes

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def resident_bytes(self) -> int:
        try:
            return int(_STATM.read_text("ascii").split()[2]) * mmap.PAGESIZE
        except OSError:  # no Linux
            return 0


OS_DISK = OsDisk()

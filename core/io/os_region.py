"""A mapped file of the operating system. It holds no descriptor, so that a store of ten thousand queues needs none for them.

Python's ``mmap`` keeps a descriptor of its own for each map. So an anonymous map is made first, which has none, and the file is
mapped in its place (``MAP_FIXED``); its owner and its lifetime stay Python's.

Such a map is synced by ``msync``: the kernel syncs through the open file that the map holds, not through a descriptor. What
went wrong with the file since it was mapped is reported there, once (mmap(2), msync(2); "Reporting writeback errors" in the
kernel's documentation of file systems).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintmq.core.errors import StoreFullError, is_exhausted, store_error_kind
from flintmq.core.io.lazy_numpy import numpy
from flintmq.core.io.paths import sync_folder

if TYPE_CHECKING:
    from flintmq.core.io.disk import Column

_SINGLE_PAGES_BYTES: Final = 64 * 1024 * 1024
_REWRITE_BYTES: Final = 1024 * 1024
_BY_CALL_BYTES: Final = 8 * 1024
"""From this size on a system call costs less than writing through the map, where every new page is a fault."""
_BY_OPENING_BYTES: Final = 64 * 1024
"""The same bound for a file that must be opened for it."""
_ZEROS: Final = memoryview(bytes(1024 * 1024))


class OsRegion:
    """A mapped file of the operating system.

    Args:
        fd: the file's descriptor; it belongs to the region with ``holds``, and to the caller otherwise.
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
            allocated = size  # all at once: the kernel splits a map whose parts have different advice
        if allocated:
            self._write_in_single_pages(0, allocated)

    def _write_in_single_pages(self, start: int, end: int) -> None:
        """Keep the kernel from putting a part that will be written into large folios; the part before it may use them again.

        A fault in a map reads ahead, and the kernel makes one folio of up to 2 MiB of what it reads. A folio that is written
        through a map is dirty as a whole, so that each sync would write many times what was appended.
        """
        if hasattr(mmap, "MADV_RANDOM"):
            start = max(start, end - _SINGLE_PAGES_BYTES) // mmap.PAGESIZE * mmap.PAGESIZE
            if start:
                self._map.madvise(mmap.MADV_NORMAL, 0, start)  # reading a whole file profits from reading ahead
            self._map.madvise(mmap.MADV_RANDOM, start, min(end, self._size) - start)

    def _borrow(self) -> int:
        """Return a descriptor of the file: the one that is held, or a new one for :meth:`_give_back`. Raises OSError."""
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
            self._unnamed.clear()  # last: another thread that syncs meanwhile repeats it rather than return too early

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
        with contextlib.suppress(BufferError):
            self._map.close()  # not while slices are being sent to clients: the map is removed with the last of them


_LINUX: Final = sys.platform == "linux"
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000 if _LINUX else 0x40
"""The anonymous map is never written to: it shall not count as committed memory."""
_MS_SYNC: Final = 0x4 if _LINUX else 0x10
_FAILED: Final = ctypes.c_void_p(-1).value

_libc: Final = ctypes.CDLL(None, use_errno=True)
_mmap: Final = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_msync: Final = _libc.msync
_msync.restype = ctypes.c_int
_msync.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def map_shared(fd: int, size_bytes: int) -> mmap.mmap:
    """Map the first bytes of a file for reading and writing; the descriptor may be closed at once.

    Args:
        fd: open for reading and writing.
        size_bytes: more than 0, and not more than the file has: a look behind its end would end the process.

    Raises:
        OSError: the kernel refused; ENOMEM where the process has all the maps it may have (vm.max_map_count).
        ValueError: the file is shorter.
    """
    if os.fstat(fd).st_size < size_bytes:
        raise ValueError(f"a file of {os.fstat(fd).st_size} bytes has no {size_bytes} to map")
    try:
        made = mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | _MAP_NORESERVE)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        # Where memory is promised strictly (vm.overcommit_memory=2, RLIMIT_DATA) even that counts: a descriptor is the price.
        return mmap.mmap(fd, size_bytes, mmap.MAP_SHARED)
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    where = ctypes.addressof(ctypes.c_char.from_buffer(made))
    if _mmap(where, size_bytes, protection, mmap.MAP_SHARED | _MAP_FIXED, fd, 0) == _FAILED:
        number = ctypes.get_errno()
        made.close()
        raise OSError(number, os.strerror(number))
    return made


def sync_map(mapped: mmap.mmap) -> None:
    """Force what was written to a file, through its map or not, to the disk. Any thread; the interpreter lock is
    released.

    Raises:
        OSError: the disk refused. ValueError: the map is closed.
    """
    held = ctypes.c_char.from_buffer(mapped)  # a thread that closes it meanwhile leaves it mapped
    if _msync(ctypes.addressof(held), len(mapped), _MS_SYNC):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))

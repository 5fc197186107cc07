"""A mapped file of the operating system without an open descriptor, so that a store of ten thousand queues does not need ten
thousand descriptors.

Python's ``mmap`` keeps a duplicate descriptor for each map. To avoid that, an anonymous map is created first, and the file is
then mapped over it (``MAP_FIXED``). The Python object still owns the memory.

A map without a descriptor is synced by ``msync``, which needs no descriptor, because the kernel keeps the file open for the
map. If a write to the disk has failed since the file was mapped, ``msync`` reports the error, but only once (mmap(2), msync(2);
"Reporting writeback errors" in the kernel's documentation of file systems).
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
"""Size in bytes from which a write by a system call is faster than a copy into the file's map. The copy causes a page fault for
every new page."""
_BY_OPENING_BYTES: Final = 64 * 1024
"""Minimum size of a write, in bytes, for which a system call is used if the file is not open. The system call then takes
longer, because the file must be opened first. For a smaller write, a copy into the file's memory map is faster."""
_ZEROS: Final = memoryview(bytes(1024 * 1024))


class OsRegion:
    """A mapped file of the operating system, as a :class:`~flintmq.core.io.disk.MappedRegion`.

    Args:
        path: the path of the file.
        fd: the file's descriptor. With ``holds`` the region closes the descriptor; otherwise the caller closes it.
        size: the size of the file in bytes.
        allocated: the number of bytes that are backed by disk.
        unnamed: folders that must be synced with the first sync, to make the file's name durable.
        holds: whether to keep the descriptor open.
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
            # A small map gets one madvise() for all its bytes, because the kernel splits a map with different advice for parts.
            allocated = size
        if allocated:
            self._write_in_single_pages(0, allocated)

    def _write_in_single_pages(self, start: int, end: int) -> None:
        """Prevent the kernel from using large folios for a range of the file that will be written. For the bytes before this
        range, large folios are allowed again.

        A page fault in a map reads ahead, into one folio of up to 2 MiB. A write through the map marks the whole folio as
        modified, so each sync would write many times the appended bytes.
        """
        if hasattr(mmap, "MADV_RANDOM"):
            start = max(start, end - _SINGLE_PAGES_BYTES) // mmap.PAGESIZE * mmap.PAGESIZE
            if start:
                # MADV_NORMAL allows read-ahead, with which the kernel reads a whole file faster.
                self._map.madvise(mmap.MADV_NORMAL, 0, start)
            self._map.madvise(mmap.MADV_RANDOM, start, min(end, self._size) - start)

    def _borrow(self) -> int:
        """Return the file's open descriptor, or open the file if it has no open descriptor; call :meth:`_give_back` with the
        descriptor afterwards. Raises OSError.
        """
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
            # The list of folders that need a sync is cleared only after the syncs of the folders.
            # If the list were cleared before the folders are synced, a concurrent sync() could return too early.
            self._unnamed.clear()

    def evict(self, start: int, end: int) -> None:
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        length = end // mmap.PAGESIZE * mmap.PAGESIZE - start
        if length > 0 and not self._is_closed and hasattr(mmap, "MADV_DONTNEED"):
            # MADV_DONTNEED loses no data in a shared file map, because the kernel keeps the modified pages.
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
            # close() raises BufferError if slices of the map are still in use.
            # BufferError is ignored, because Python unmaps the memory when the last slice of the map is deleted.
            self._map.close()


_LINUX: Final = sys.platform == "linux"
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000 if _LINUX else 0x40
"""Flag of ``mmap`` for an anonymous map: the kernel does not count the map as committed memory. No byte is ever written to the
anonymous map."""
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
    """Map the first bytes of a file for reading and writing; the descriptor can then be closed.

    Args:
        fd: a descriptor that is open for reading and writing.
        size_bytes: the number of bytes, from 1 to the file's size; an access past the file's end would kill the process.

    Raises:
        OSError: the kernel refused; ENOMEM if the process has the maximum number of maps (vm.max_map_count).
        ValueError: the file is shorter than ``size_bytes``.
    """
    if os.fstat(fd).st_size < size_bytes:
        raise ValueError(f"a file of {os.fstat(fd).st_size} bytes is too short to map {size_bytes} bytes")
    try:
        made = mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | _MAP_NORESERVE)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        # With strict memory limits (vm.overcommit_memory=2, RLIMIT_DATA), the kernel can refuse a MAP_PRIVATE map (ENOMEM).
        # If the kernel refuses the MAP_PRIVATE map, Python's ``mmap`` maps the file, and keeps a duplicate descriptor open.
        return mmap.mmap(fd, size_bytes, mmap.MAP_SHARED)
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    where = ctypes.addressof(ctypes.c_char.from_buffer(made))
    if _mmap(where, size_bytes, protection, mmap.MAP_SHARED | _MAP_FIXED, fd, 0) == _FAILED:
        number = ctypes.get_errno()
        made.close()
        raise OSError(number, os.strerror(number))
    return made


def sync_map(mapped: mmap.mmap) -> None:
    """Sync all writes to a mapped file to the disk. Can be called from any thread. The call releases the interpreter lock.

    Raises:
        OSError: the sync failed.
        ValueError: the map is closed.
    """
    # The reference ``held`` keeps the memory mapped even if another thread closes the map.
    held = ctypes.c_char.from_buffer(mapped)
    if _msync(ctypes.addressof(held), len(mapped), _MS_SYNC):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))

"""A disk in memory that distinguishes synced data from unsynced data. A test can cut the disk's power after any operation, and
then read the data that survives.

A store changes the disk by a few kinds of *operations*, which a journal keeps in order (:mod:`.journaled_files`). A
:class:`.journaled_files.JournalReplay` repeats the first operations of the journal, and returns the data that was synced after
them. A test scripts failures by the number of an operation::

    disk = SimulatedDisk()
    disk.fail(17, errno.EIO)          # operation 17 fails, once
    disk.fail(17, errno.ENOSPC, for_ever=True)

The disk is thread-safe. For an errno of the operating system, the disk raises the same error as
:class:`flintmq.core.io.os_disk.OsDisk`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.core.errors import StoreError, StoreFullError, store_error_kind
from flintmq.testing.journaled_files import Image, JournaledFiles

if TYPE_CHECKING:
    from flintmq.core.io.disk import Column


def _store_error(error: OSError, path: Path, no_room: str, otherwise: str) -> StoreError:
    """Return the StoreError that corresponds to an error of the operating system."""
    kind = store_error_kind(error)
    return kind(f"{path}: {no_room}" if kind is StoreFullError else f"{path}: {otherwise}: {error.strerror}")


class SimulatedDisk(JournaledFiles):
    """A :class:`flintmq.core.io.disk.Disk` in memory.

    Args:
        image: the contents of the disk at first, all of them durable.
        boot: the id of the kernel's boot; a disk after a power cut has another id.
        journal: whether the journal keeps operations. A disk whose journal is never replayed is faster without it.
    """

    def __init__(self, image: Image | None = None, *, boot: str = "boot", journal: bool = True) -> None:
        super().__init__(image, journal=journal)
        self.boot = boot

    # mapped files

    def map_file(self, path: Path, size: int, *, create: bool, allocate: int, holds: bool = False) -> SimulatedRegion:
        with self._lock:
            found = self._names.get(path.parent, {}).get(path.name, -1)
            missing = self.missing_folders(path.parent) if create else []
            unnamed: list[Path] = []
            backed = 0
            try:
                if create and found < 0:
                    unnamed = [*self.make_folders(missing), path.parent]
                    found = self.create_file(path)
                    backed = self._allocated(path, found, size, allocate)
                else:
                    self.operate("open", path)
                    self.find_file(path)
            except OSError as error:
                self.forget_folders(missing)
                no_room = f"no room for a file of {size} bytes"
                raise _store_error(error, path, no_room, "cannot be opened for writing") from error
            if self._size[found] != size:
                raise AssertionError(f"{path} has {self._size[found]} bytes, mapped with {size}: SIGBUS")
            return SimulatedRegion(self, path, found, self._data[found], backed, unnamed)

    def _allocated(self, path: Path, file: int, size: int, allocate: int) -> int:
        """Give a new file its size, and return how many bytes of the file the disk has allocated. After a failure the file is
        removed."""
        try:
            self.resize_file(path, file, size)
            if allocate:
                # Another "resize" simulates posix_fallocate(): the operation changes no file, but a test can let it fail.
                # A posix_fallocate() that fails leaves the file's size unchanged.
                self.operate("resize", path)
        except OSError:
            del self._names[path.parent][path.name]
            self.keep("unlink", path)
            raise
        return min(allocate, size)

    # --- operations on folders and small files ---

    def make_folder(self, folder: Path) -> None:
        with self._lock:
            missing = self.missing_folders(folder)
            try:
                for parent in self.make_folders(missing):
                    self.sync_folder(parent)
            except OSError as error:
                self.forget_folders(missing)
                raise _store_error(error, folder, "no room for a folder", "cannot be made") from error

    def sync_folder(self, folder: Path) -> None:
        with self._lock:
            self.operate("names", folder, "names", folder)

    def incarnation(self, path: Path) -> str:
        return f"{self.boot} {path}"

    def list_files(self, folder: Path) -> list[Path]:
        return [folder / name for name in sorted(self._names.get(folder, ()))]

    def list_folders(self, folder: Path) -> list[Path]:
        return sorted(path for path in self._names if path.parent == folder and path != folder)

    def exists(self, path: Path) -> bool:
        return path in self._names or path.name in self._names.get(path.parent, ())

    def size(self, path: Path) -> int:
        return self._size[self.find_file(path)]

    def read(self, path: Path) -> bytes:
        file = self.find_file(path)
        self.operate("read", path)
        return bytes(self._data[file])

    def write_file(self, path: Path, data: bytes) -> None:
        with self._lock:
            existed = self.exists(path)
            try:
                if existed:
                    file = self.find_file(path)
                    self.resize_file(path, file, 0)
                else:
                    file = self.create_file(path)
                if data:
                    self.operate("put", path)
                    self.resize_file(path, file, len(data))
                    self.write_bytes(path, file, 0, data, "write")
                self.sync_file(path, file)
                if not existed:
                    self.sync_folder(path.parent)
            except OSError as error:
                raise _store_error(error, path, "no room", "cannot be written") from error

    def write_at(self, path: Path, position: int, data: bytes) -> None:
        with self._lock:
            file = self.find_file(path) if self.exists(path) else self.create_file(path)
            if position + len(data) > self._size[file]:
                self.resize_file(path, file, position + len(data))
            self.write_bytes(path, file, position, data, "write")

    def sync_content(self, path: Path) -> None:
        with self._lock:
            self.sync_file(path, self.find_file(path))

    def discard(self, path: Path) -> None:
        with self._lock:
            if path.name in self._names.get(path.parent, ()):
                self.operate("unlink", path, "unlink", path)
                del self._names[path.parent][path.name]

    def lock(self, path: Path) -> Callable[[], object]:
        return lambda: None  # The lock does nothing, because no other process uses a simulated disk.

    def replace(self, source: Path, target: Path) -> None:
        with self._lock:
            file = self.find_file(source)
            self.operate("rename", target, "rename", source, target)
            del self._names[source.parent][source.name]
            self._names[target.parent][target.name] = file
            self.sync_folder(target.parent)

    def remove(self, path: Path) -> None:
        with self._lock:
            if path.name in self._names.get(path.parent, ()):
                self.discard(path)
                self.sync_folder(path.parent)

    def remove_folder(self, folder: Path) -> None:
        self.forget_folders([folder])

    def usage(self, path: Path) -> tuple[int, int, int]:
        return 1 << 40, 1 << 30, (1 << 40) - (1 << 30)

    def modified_ms(self, path: Path) -> int:
        return 0

    def resident_bytes(self) -> int:
        return 0


class SimulatedRegion:
    """A mapped file of a :class:`SimulatedDisk`. A write beyond the allocated bytes raises AssertionError, because such a write
    would kill a real process."""

    __slots__ = ("_allocated", "_data", "_disk", "_file", "_path", "_unnamed", "view")

    def __init__(
        self, disk: SimulatedDisk, path: Path, file: int, data: bytearray, allocated: int, unnamed: list[Path]
    ) -> None:
        self._disk = disk
        self._path = path
        self._file = file
        self._data = data
        self._allocated = allocated
        self._unnamed = unnamed
        self.view = memoryview(data).toreadonly()

    def write(self, position: int, data: bytes | memoryview) -> None:
        self._write("write", position, data)

    def write_in_order(self, position: int, data: bytes | memoryview) -> None:
        self._write("write in order", position, data)

    def write_int32s(self, position: int, places: Column, values: Column) -> None:
        for place, value in zip(places.tolist(), values.tolist(), strict=True):
            self.write(position + 4 * place, value.to_bytes(4, "big", signed=True))

    def _write(self, how: str, position: int, data: bytes | memoryview) -> None:
        if position + len(data) > self._allocated:
            raise AssertionError(
                f"{self._path}: a write ends at {position + len(data)}, but only {self._allocated} bytes are allocated"
            )
        self._disk.write_bytes(self._path, self._file, position, data, how)

    def allocate(self, end: int) -> None:
        if end <= self._allocated:
            return
        try:
            self._disk.operate("resize", self._path)
        except OSError as error:
            no_room = f"no room for {end - self._allocated} more bytes"
            raise _store_error(error, self._path, no_room, "cannot allocate") from error
        self._allocated = end

    def fill_zeros(self, start: int, end: int) -> None:
        self.write(start, bytes(end - start))

    def rewrite(self, start: int, end: int) -> None:
        self.write(start, bytes(self.view[start:end]))

    def sync(self) -> None:
        self._disk.sync_file(self._path, self._file)
        while self._unnamed:
            self._disk.sync_folder(self._unnamed[-1])
            self._unnamed.pop()

    def evict(self, start: int, end: int) -> None:
        """Do nothing: a file in memory has no pages to drop from the page cache."""

    def next_data(self, position: int) -> int:
        rest = bytes(self._data[position:])
        return len(self._data) - len(rest.lstrip(b"\0"))

    def let_go(self) -> None:
        """Do nothing: the mapped file in memory holds no resource."""

    def close(self) -> None:
        """Do nothing: the file in memory is not open at the operating system."""

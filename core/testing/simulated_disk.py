"""A disk in memory that knows what was synced: it can die at any operation, and say what would be left.

Everything a store does to it is one of a few *operations*, kept in a journal in order. :mod:`.crash_states` replays a journal
up to any of them and makes the contents a killed process or a power cut may leave. Failures are scripted by operation::

    disk = SimulatedDisk()
    disk.fail(17, errno.EIO)          # the 17th operation fails, once
    disk.fail(17, errno.ENOSPC, for_ever=True)

One thread. What :class:`flintmq.core.io.disk.OsDisk` raises for an errno of the operating system, this one raises too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flintmq.core.errors import StoreFullError, is_exhausted, store_error_kind

if TYPE_CHECKING:
    from flintmq.core.io.disk import Column

Operation = tuple[Any, ...]
"""``("create", path, file)``, ``("resize", file, size)``, ``("write", file, position, data)``, ``("write in order", …)`` alike,
``("sync", file)``, ``("synced", file)`` or ``("failed", file)``, ``("names", folder)``, ``("folder", folder)``,
``("unlink", path)``, ``("rmdir", folder)``, ``("rename", source, target)``."""

_FAILING: Final = ("create", "resize", "open", "sync", "names", "folder", "unlink", "rmdir", "rename", "put", "read")


class Image:
    """What lies on a disk: files by path, and the folders. Never changed once made."""

    __slots__ = ("files", "folders")

    def __init__(self, files: Mapping[Path, bytes], folders: frozenset[Path]) -> None:
        self.files = files
        self.folders = folders

    def key(self) -> int:
        """The same for the same contents."""
        return hash((frozenset((path, hash(data)) for path, data in self.files.items()), self.folders))


class SimulatedDisk:
    """A :class:`flintmq.core.io.disk.Disk` without a disk.

    Args:
        image: what is there at first, all of it durable.
        boot: names the kernel's boot; a power cut begins another one.
        journal: whether operations are kept; one that is not to crash is faster without.
    """

    def __init__(self, image: Image | None = None, *, boot: str = "boot", journal: bool = True) -> None:
        self.base = image if image is not None else Image({}, frozenset((Path("/"),)))
        self.boot = boot
        self.journal: list[Operation] = []
        self._keeps = journal
        self.count = 0
        """Operations asked for so far; the next one has this number."""
        self.asked: list[str] = []
        """The kind of each operation asked for, by number; empty without a journal."""
        self.during_sync: Callable[[], None] | None = None
        """Called in the middle of the next sync of a file: what another thread does meanwhile."""
        self._faults: list[tuple[int, int, bool, str, str]] = []
        self.hits = 0
        """How often a scripted failure struck."""
        self._names: dict[Path, dict[str, int]] = {folder: {} for folder in self.base.folders}
        self._data: dict[int, bytearray] = {}
        self._size: dict[int, int] = {}
        self._next = 1
        for path, data in self.base.files.items():
            self._names[path.parent][path.name] = self._next
            self._data[self._next] = bytearray(data)
            self._size[self._next] = len(data)
            self._next += 1

    # failures and the journal

    def fail(
        self, number: int, error: int, *, for_ever: bool = False, operation: str = "", within: str = ""
    ) -> SimulatedDisk:
        """Scripts a failure of the first operation from a number on, or of all from there on.

        Args:
            number: see :attr:`count`.
            error: an errno.
            for_ever: whether every later one fails too.
            operation: only of this kind; empty for any that can fail (a write through a map cannot).
            within: only on paths with this part.
        """
        self._faults.append((number, error, for_ever, operation, within))
        return self

    def heal(self) -> None:
        """Ends every failure."""
        self._faults.clear()

    def _do(self, kind: str, path: Path, *operation: object) -> None:
        """Counts an operation, lets it fail where that is scripted, and keeps what is to be kept of it."""
        number = self.count
        self.count = number + 1
        if self._keeps:
            self.asked.append(kind)
        if self._faults and kind in _FAILING:
            for at, (first, error, for_ever, only, within) in enumerate(self._faults):
                if number < first or (only and only != kind) or (within and within not in path.parts):
                    continue
                if not for_ever:
                    del self._faults[at]
                self.hits += 1
                raise OSError(error, os.strerror(error), str(path))
        if operation and self._keeps:
            self.journal.append(operation)

    def _keep(self, *operation: object) -> None:
        if self._keeps:
            self.journal.append(operation)

    # mapped files

    def map_file(self, path: Path, size: int, *, create: bool, allocate: int, holds: bool = False) -> SimulatedRegion:
        folder, name = path.parent, path.name
        found = self._names.get(folder, {}).get(name, -1)
        unnamed: list[Path] = []
        missing = self._missing(folder) if create else []
        backed = 0
        try:
            if create and found < 0:
                unnamed = self._make_folders(missing)
                unnamed.append(folder)
                found = self._create(path)
                try:
                    self._resize(path, found, size)
                    backed = min(allocate, size)
                    if backed:
                        self._do("resize", path)  # posix_fallocate: may fail, changes no size
                except OSError:
                    del self._names[folder][name]
                    self._keep("unlink", path)
                    raise
            else:
                self._do("open", path)
                if found < 0:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        except OSError as error:
            self._unmake(missing)
            kind = store_error_kind(error)
            if kind is StoreFullError:
                raise kind(f"{path}: no room for a file of {size} bytes") from error
            raise kind(f"{path}: cannot be opened for writing: {error.strerror}") from error
        if self._size[found] != size:
            raise AssertionError(f"{path} has {self._size[found]} bytes, mapped with {size}: SIGBUS")
        return SimulatedRegion(self, path, found, self._data[found], backed, unnamed)

    def _create(self, path: Path) -> int:
        self._do("create", path, "create", path, self._next)
        found = self._next
        self._next += 1
        self._names[path.parent][path.name] = found
        self._data[found] = bytearray()
        self._size[found] = 0
        return found

    def _resize(self, path: Path, file: int, size: int) -> None:
        self._do("resize", path, "resize", file, size)
        data = bytearray(size)
        data[: self._size[file]] = self._data[file][:size]
        self._data[file] = data
        self._size[file] = size

    def _write(self, path: Path, file: int, position: int, data: bytes | memoryview, how: str) -> None:
        self._data[file][position : position + len(data)] = data
        self._do("write", path, how, file, position, bytes(data))

    def _sync(self, path: Path, file: int) -> None:
        try:
            self._do("sync", path, "sync", file)
        except OSError as error:
            if not is_exhausted(error):  # else nothing could be opened for it: no sync was tried
                self._keep("failed", file)
            raise
        if self.during_sync is not None:
            meanwhile, self.during_sync = self.during_sync, None
            meanwhile()
        self._keep("synced", file)

    # folders and small files

    def _missing(self, folder: Path) -> list[Path]:
        """The folders that have to be made, outermost first."""
        missing: list[Path] = []
        while folder not in self._names:
            missing.insert(0, folder)
            folder = folder.parent
        return missing

    def _make_folders(self, missing: list[Path]) -> list[Path]:
        for path in missing:
            self._do("folder", path, "folder", path)
            self._names[path] = {}
        return [path.parent for path in missing]

    def _unmake(self, missing: list[Path]) -> None:
        """As OsDisk does: nobody would make the names of folders durable that a failed call has left behind."""
        for path in reversed(missing):
            self.remove_folder(path)

    def make_folder(self, folder: Path) -> None:
        missing = self._missing(folder)
        try:
            for parent in self._make_folders(missing):
                self.sync_folder(parent)
        except OSError as error:
            self._unmake(missing)
            kind = store_error_kind(error)
            if kind is StoreFullError:
                raise kind(f"{folder}: no room for a folder") from error
            raise kind(f"{folder}: cannot be made: {error.strerror}") from error

    def sync_folder(self, folder: Path) -> None:
        self._do("names", folder, "names", folder)

    def incarnation(self, path: Path) -> str:
        return f"{self.boot} {path}"

    def list_files(self, folder: Path) -> list[Path]:
        return [folder / name for name in sorted(self._names.get(folder, ()))]

    def list_folders(self, folder: Path) -> list[Path]:
        return sorted(path for path in self._names if path.parent == folder and path != folder)

    def exists(self, path: Path) -> bool:
        return path in self._names or path.name in self._names.get(path.parent, ())

    def _find(self, path: Path) -> int:
        found = self._names.get(path.parent, {}).get(path.name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return found

    def size(self, path: Path) -> int:
        return self._size[self._find(path)]

    def read(self, path: Path) -> bytes:
        file = self._find(path)
        self._do("read", path)
        return bytes(self._data[file])

    def write_file(self, path: Path, data: bytes) -> None:
        existed = self.exists(path)
        try:
            if existed:
                file = self._find(path)
                self._resize(path, file, 0)
            else:
                file = self._create(path)
            if data:
                self._do("put", path)
                self._resize(path, file, len(data))
                self._write(path, file, 0, data, "write")
            self._sync(path, file)
            if not existed:
                self.sync_folder(path.parent)
        except OSError as error:
            kind = store_error_kind(error)
            if kind is StoreFullError:
                raise kind(f"{path}: no room") from error
            raise kind(f"{path}: cannot be written: {error.strerror}") from error

    def write_at(self, path: Path, position: int, data: bytes) -> None:
        file = self._find(path) if self.exists(path) else self._create(path)
        if position + len(data) > self._size[file]:
            self._resize(path, file, position + len(data))
        self._write(path, file, position, data, "write")

    def discard(self, path: Path) -> None:
        if path.name in self._names.get(path.parent, ()):
            self._do("unlink", path, "unlink", path)
            del self._names[path.parent][path.name]

    def lock(self, path: Path) -> Callable[[], object]:
        return lambda: None  # nobody else has this disk

    def replace(self, source: Path, target: Path) -> None:
        file = self._find(source)
        self._do("rename", target, "rename", source, target)
        del self._names[source.parent][source.name]
        self._names[target.parent][target.name] = file
        self.sync_folder(target.parent)

    def remove(self, path: Path) -> None:
        if path.name not in self._names.get(path.parent, ()):
            return
        self._do("unlink", path, "unlink", path)
        del self._names[path.parent][path.name]
        self.sync_folder(path.parent)

    def remove_folder(self, folder: Path) -> None:
        if self._names.get(folder) == {} and not self.list_folders(folder):
            self._keep("rmdir", folder)
            del self._names[folder]

    def usage(self, path: Path) -> tuple[int, int, int]:
        return 1 << 40, 1 << 30, (1 << 40) - (1 << 30)

    def modified_ms(self, path: Path) -> int:
        return 0

    def resident_bytes(self) -> int:
        return 0

    # looking

    def image(self) -> Image:
        """What every process of this boot would read now."""
        files = {
            folder / name: bytes(self._data[file])
            for folder, names in self._names.items()
            for name, file in names.items()
        }
        return Image(files, frozenset(self._names))


class SimulatedRegion:
    """A mapped file of a :class:`SimulatedDisk`. A write beyond what was allocated would end a real process."""

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
            raise AssertionError(f"{self._path}: written to {position + len(data)}, allocated to {self._allocated}")
        self._disk._write(self._path, self._file, position, data, how)

    def allocate(self, end: int) -> None:
        if end <= self._allocated:
            return
        try:
            self._disk._do("resize", self._path)
        except OSError as error:
            kind = store_error_kind(error)
            if kind is StoreFullError:
                raise kind(f"{self._path}: no room for {end - self._allocated} more bytes") from error
            raise kind(f"{self._path}: cannot allocate: {error.strerror}") from error
        self._allocated = end

    def fill_zeros(self, start: int, end: int) -> None:
        self.write(start, bytes(end - start))

    def rewrite(self, start: int, end: int) -> None:
        self.write(start, bytes(self.view[start:end]))

    def sync(self) -> None:
        self._disk._sync(self._path, self._file)
        while self._unnamed:
            self._disk.sync_folder(self._unnamed[-1])
            self._unnamed.pop()

    def evict(self, start: int, end: int) -> None:
        """What is in memory here is the disk."""

    def next_data(self, position: int) -> int:
        rest = bytes(self._data[position:])
        return len(self._data) - len(rest.lstrip(b"\0"))

    def let_go(self) -> None:
        """Holds nothing."""

    def close(self) -> None:
        """Keeps nothing open."""

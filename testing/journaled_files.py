"""Files in memory, with a journal of the operations on the files. An operation fails if a test has scripted its failure.

:class:`.simulated_disk.SimulatedDisk` makes a disk of these files. :class:`JournalReplay` repeats the operations of a journal.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import attrs

from flintmq.core.errors import is_exhausted

Operation = tuple[Any, ...]
"""An operation of a simulated disk, one of ``("create", path, file)``, ``("resize", file, size)``,
``("write", file, position, data)``, ``("write in order", file, position, data)``, ``("sync", file)``, ``("synced", file)``,
``("failed", file)``, ``("names", folder)``, ``("folder", folder)``, ``("unlink", path)``, ``("rmdir", folder)``,
``("rename", source, target)``. ``file`` is the number of a file. ``sync`` begins a sync, which ends with ``synced`` or
``failed``. ``names`` syncs a folder, and ``folder`` creates a folder. ``write in order`` writes the data from the first byte to
the last."""

IN_ORDER: Final = "write in order"
WRITES: Final = ("write", IN_ORDER)
_FAILING: Final = ("create", "resize", "open", "sync", "names", "folder", "unlink", "rmdir", "rename", "put", "read")


class Image:
    """The contents of a disk in memory: files by path, and folders. An object of this class never changes."""

    __slots__ = ("files", "folders")

    def __init__(self, files: Mapping[Path, bytes], folders: frozenset[Path]) -> None:
        self.files = files
        self.folders = folders

    def key(self) -> int:
        """Return a number that is the same for disks with the same contents."""
        return hash((frozenset((path, hash(data)) for path, data in self.files.items()), self.folders))


@attrs.frozen
class _Fault:
    """A scripted failure of a simulated disk. The first operation from :attr:`number` on that matches raises OSError; if
    :attr:`for_ever` is True, every later operation that matches fails as well."""

    number: int
    error: int
    for_ever: bool
    operation: str
    within: str

    def strikes(self, number: int, kind: str, path: Path) -> bool:
        """Return whether the scripted failure makes this operation fail."""
        if number < self.number or (self.operation and self.operation != kind):
            return False
        return not self.within or self.within in path.parts


class JournaledFiles:
    """Names, contents and the journal of a simulated disk. Thread-safe: the entries of one operation are not interleaved.

    Args:
        image: the contents at first, all of them durable.
        journal: whether the journal keeps operations. A disk whose journal is never replayed is faster without it.
    """

    def __init__(self, image: Image | None = None, *, journal: bool = True) -> None:
        self.base = image if image is not None else Image({}, frozenset((Path("/"),)))
        self.journal: list[Operation] = []
        self._keeps = journal
        self._lock = threading.RLock()
        self.count = 0
        """Number of operations that were requested from the simulated disk. It is also the number of the next operation."""
        self.asked: list[str] = []
        """Kinds of the operations that were requested from the simulated disk, indexed by the operation's number; empty if the
        disk keeps no journal."""
        self.during_sync: Callable[[], None] | None = None
        """Function that is called once, in the middle of the next sync of a file. It does what another thread might do during
        the sync."""
        self._faults: list[_Fault] = []
        self.hits = 0
        """Number of operations that failed because a test had scripted the failure."""
        self._names: dict[Path, dict[str, int]] = {folder: {} for folder in self.base.folders}
        self._data: dict[int, bytearray] = {}
        self._size: dict[int, int] = {}
        self._next = 1
        for path, data in self.base.files.items():
            self._names[path.parent][path.name] = self._next
            self._data[self._next] = bytearray(data)
            self._size[self._next] = len(data)
            self._next += 1

    def fail(self, number: int, error: int, *, for_ever: bool = False, operation: str = "", within: str = "") -> None:
        """Script a failure of the first matching operation whose number is at least ``number``. If ``for_ever`` is true, all
        later matching operations fail, too.

        Args:
            number: the number of the first operation that may fail; see :attr:`count`.
            error: the errno of the failure.
            for_ever: whether every later matching operation fails, too.
            operation: the kind of operation that fails. If it is empty, operations of every kind fail. A write through a memory
                map never fails.
            within: name of a folder or file; only operations on paths that contain this name fail. If it is empty, operations
                on all paths fail.
        """
        self._faults.append(_Fault(number, error, for_ever, operation, within))

    def heal(self) -> None:
        """Drop all scripted failures of operations."""
        self._faults.clear()

    def image(self) -> Image:
        """Return the contents of the simulated disk as processes would read them now, including unsynced writes."""
        files = {
            folder / name: bytes(self._data[file])
            for folder, names in self._names.items()
            for name, file in names.items()
        }
        return Image(files, frozenset(self._names))

    # operations

    def operate(self, kind: str, path: Path, *operation: object) -> None:
        """Count an operation on a file, and write the operation to the journal. Raises OSError if a failure of the operation is
        scripted."""
        number = self.count
        self.count = number + 1
        if self._keeps:
            self.asked.append(kind)
        if self._faults and kind in _FAILING:
            for fault in self._faults:
                if fault.strikes(number, kind, path):
                    if not fault.for_ever:
                        self._faults.remove(fault)
                    self.hits += 1
                    raise OSError(fault.error, os.strerror(fault.error), str(path))
        if operation:
            self.keep(*operation)

    def keep(self, *operation: object) -> None:
        """Write an operation to the journal. This method does not count the operation in :attr:`count`, and applies no scripted
        failure."""
        if self._keeps:
            self.journal.append(operation)

    def find_file(self, path: Path) -> int:
        """Return the number of a file in memory. Raises FileNotFoundError."""
        found = self._names.get(path.parent, {}).get(path.name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return found

    def create_file(self, path: Path) -> int:
        """Create an empty file in memory, and return the file's number."""
        self.operate("create", path, "create", path, self._next)
        found = self._next
        self._next += 1
        self._names[path.parent][path.name] = found
        self._data[found] = bytearray()
        self._size[found] = 0
        return found

    def resize_file(self, path: Path, file: int, size: int) -> None:
        """Cut a file in memory to a size, or extend the file with zeros."""
        self.operate("resize", path, "resize", file, size)
        data = bytearray(size)
        data[: self._size[file]] = self._data[file][:size]
        self._data[file] = data
        self._size[file] = size

    def write_bytes(self, path: Path, file: int, position: int, data: bytes | memoryview, how: str) -> None:
        """Write bytes within a file in memory. ``how`` is the kind of the operation in the journal, ``write`` or
        ``write in order``."""
        with self._lock:
            self._data[file][position : position + len(data)] = data
            self.operate("write", path, how, file, position, bytes(data))

    def sync_file(self, path: Path, file: int) -> None:
        """Make the content of a file in memory durable, so that it survives a power cut."""
        with self._lock:
            try:
                self.operate("sync", path, "sync", file)
            except OSError as error:
                # Without a free file descriptor, no sync begins, so a later sync can still make the earlier writes durable.
                if not is_exhausted(error):
                    self.keep("failed", file)
                raise
            if self.during_sync is not None:
                meanwhile, self.during_sync = self.during_sync, None
                meanwhile()
            self.keep("synced", file)

    def missing_folders(self, folder: Path) -> list[Path]:
        """Return the folders that do not exist yet among a folder and its parents, with the outermost folder first."""
        missing: list[Path] = []
        while folder not in self._names:
            missing.insert(0, folder)
            folder = folder.parent
        return missing

    def make_folders(self, missing: list[Path]) -> list[Path]:
        """Create folders in memory, and return the parent of each folder. The entries of these parents have changed."""
        for path in missing:
            self.operate("folder", path, "folder", path)
            self._names[path] = {}
        return [path.parent for path in missing]

    def forget_folders(self, missing: list[Path]) -> None:
        """Remove the folders that a failed call has created, if they are empty. ``missing`` lists these folders, parents first.

        The failed call may not have synced the names of the new folders. A later call makes only the names of folders durable
        that the call itself has created, so it must create these folders again.
        """
        for path in reversed(missing):
            if self._names.get(path) == {} and not any(other.parent == path for other in self._names):
                self.keep("rmdir", path)
                del self._names[path]


class ReplayedFile:
    """The content of one file: the synced bytes, and the writes since the last sync."""

    __slots__ = ("cache", "durable", "kept_bytes", "pending", "syncing")

    def __init__(self, data: bytes) -> None:
        self.cache = bytearray(data)
        self.durable = bytearray(data)
        self.pending: list[tuple[int, int, bytes]] = []
        """Writes to the file since its last sync, in order. A write has the number of the operation, the position in the file,
        and the data."""
        self.kept_bytes = len(data)
        """Size in bytes of the file after a power cut that loses all writes since the last sync: the smallest size that the
        file has had since that sync."""
        self.syncing = 0

    def resize(self, size: int) -> None:
        for data in (self.cache, self.durable):
            del data[size:]
            data.extend(bytes(size - len(data)))
        if size == 0:
            self.pending.clear()
        self.kept_bytes = min(self.kept_bytes, size)

    def write(self, number: int, position: int, data: bytes) -> None:
        self.cache[position : position + len(data)] = data
        self.pending.append((number, position, data))

    def synced(self) -> None:
        for _number, position, data in self.pending[: self.syncing]:
            self.durable[position : position + len(data)] = data
        del self.pending[: self.syncing]
        self.kept_bytes = len(self.durable)


class JournalReplay:
    """A disk as it was after the first operations of its journal; :meth:`advance` applies further operations."""

    def __init__(self, disk: JournaledFiles) -> None:
        self._journal: Sequence[Operation] = disk.journal
        self.number = 0
        """Number of operations of the journal that the replay has repeated."""
        base = disk.base
        self._files: dict[int, ReplayedFile] = {
            at: ReplayedFile(data) for at, data in enumerate(base.files.values(), 1)
        }
        self._names: dict[Path, int] = {path: at for at, path in enumerate(base.files, 1)}
        self._durable_names = dict(self._names)
        self._folders = set(base.folders)
        self._durable_folders = set(base.folders)

    def advance(self, number: int) -> Self:
        """Repeat the operations of the journal before the operation with a given number."""
        while self.number < number:
            self._step(self._journal[self.number])
            self.number += 1
        return self

    def _step(self, operation: Operation) -> None:
        kind = operation[0]
        if kind in WRITES:
            self._files[operation[1]].write(self.number, operation[2], operation[3])
        elif kind == "sync":
            self._files[operation[1]].syncing = len(self._files[operation[1]].pending)
        elif kind == "synced":
            self._files[operation[1]].synced()
        elif kind == "failed":
            # After a failed sync, the kernel marks the pages as clean: no later sync writes the pages to the disk.
            self._files[operation[1]].pending.clear()
        elif kind == "names":
            self._sync_names(operation[1])
        elif kind == "create":
            self._names[operation[1]] = operation[2]
            self._files[operation[2]] = ReplayedFile(b"")
        elif kind == "resize":
            self._files[operation[1]].resize(operation[2])
        elif kind == "unlink":
            del self._names[operation[1]]
        elif kind == "rename":
            self._names[operation[2]] = self._names.pop(operation[1])
        elif kind == "folder":
            self._folders.add(operation[1])
        elif kind == "rmdir":
            self._folders.discard(operation[1])
        else:
            raise ValueError(f"{kind!r} does not name an operation")

    def _sync_names(self, folder: Path) -> None:
        for path in [path for path in self._durable_names if path.parent == folder]:
            if path not in self._names:
                del self._durable_names[path]
        for path, file in self._names.items():
            if path.parent == folder:
                self._durable_names[path] = file
        for path in [path for path in self._durable_folders if path.parent == folder and path != folder]:
            if path not in self._folders:
                self._durable_folders.discard(path)
        self._durable_folders.update(path for path in self._folders if path.parent == folder)

    def torn(self, within: str) -> Image:
        """Return the synced contents of the disk, plus the unsynced writes to files of a folder. The second half of the last
        write is left out, as if a power cut had interrupted the write."""
        files = [self._files[file] for path, file in self._durable_names.items() if within in path.parts]
        pending = sorted((number, position, data, file) for file in files for number, position, data in file.pending)
        for number, position, data, file in pending:
            whole = data if number != pending[-1][0] else data[: len(data) // 2]
            file.durable[position : position + len(whole)] = whole
        return self.synced()

    def synced(self) -> Image:
        """Return the synced contents of the disk, which surely survive a power cut."""
        folders: set[Path] = set()
        for folder in sorted(self._durable_folders):  # parents first
            if folder.parent in folders or folder == folder.parent:
                folders.add(folder)
        found = {path: self._files[file] for path, file in self._durable_names.items() if path.parent in folders}
        files = {path: bytes(file.durable[: file.kept_bytes]) for path, file in found.items()}
        return Image(files, frozenset(folders))

    def cached(self) -> Image:
        """Return all written contents of the disk, which a new process finds after the old one was killed."""
        files = {path: bytes(self._files[file].cache) for path, file in self._names.items()}
        return Image(files, frozenset(self._folders))

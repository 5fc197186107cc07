"""The files of a store, mapped read-only. Sizes come from the files, not from a configuration."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.core.errors import StoreError, StoreFormatError, reading
from flintmq.core.io.paths import RESTORE_MARK, RESTORE_NOT_FINISHED, is_file_name
from flintmq.dispatchers.index.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES

_ENTRIES_PER_SLOT: Final = 4
"""RocketMQ's default ratio of index entries (maxIndexNum) to hash slots (maxHashSlotNum) in an index file."""


@attrs.frozen
class FileView:
    """A file of a commit log or consume queue, mapped read-only."""

    path: Path
    start: int
    """Position of the file's first byte in the log or queue, in bytes."""
    view: memoryview
    """The bytes of the file's memory map: the whole file or its first part. The attribute ``obj`` of this memoryview is the
    memory map."""

    @property
    def size(self) -> int:
        return len(self.view)

    def next_data(self, position: int) -> int:
        """Return the position of the next data at or after ``position``; the size of the mapped file if no data follows. All
        bytes between the two positions are zeros."""
        return min(next_data(self.path, position, self.size), self.size)


def next_data(path: Path, position: int, size: int) -> int:
    """Return the end of the hole at a position of a file. If the file has data at the position, return the position; if no data
    follows, return the file's size."""
    with path.open("rb") as file:
        try:
            return os.lseek(file.fileno(), position, os.SEEK_DATA)
        except OSError:
            # OSError means that the file has no data at or after `position`, so the hole extends to the end of the file.
            return size


def map_read_only(path: Path) -> memoryview:
    """Return the bytes of a file; empty for an empty file. Raises StoreError if it cannot be read."""
    try:
        if path.stat().st_size == 0:
            return memoryview(b"")
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def listed(folder: Path) -> list[Path]:
    """Return the content of a folder, sorted by name; empty if the folder does not exist. Raises StoreError if the folder
    cannot be listed."""
    if not folder.is_dir():
        return []
    with reading(folder):
        return sorted(folder.iterdir())


def stream(folder: Path) -> list[FileView]:
    """Return the files of a log or queue, in order. Other files are left out (see :func:`misfits`)."""
    return [
        FileView(path, int(path.name), map_read_only(path))
        for path in listed(folder)
        if is_file_name(path.name) and not path.is_dir()
    ]


def misfits(folder: Path, files: Sequence[FileView], unit_bytes: int = 1) -> list[tuple[Path, str]]:
    """Return the files in the folder of a log or queue that would make a broker's start fail, each with the reason."""
    found = [
        (path, f"{_why_misfit(path)}: a start refuses")
        for path in listed(folder)
        if not path.is_dir() and not is_file_name(path.name)
    ]
    size = max((file.size for file in files), default=0)
    for number, file in enumerate(files):
        if file.size == 0 and number == len(files) - 1:
            # An empty last file, which a crash can leave, is not reported, because a broker that starts creates the file again.
            continue
        if file.size != size or file.size % unit_bytes:
            found.append((file.path, f"{file.size} bytes, where the others have {size}: a start refuses"))
        if number and file.start != files[number - 1].start + files[number - 1].size:
            end = files[number - 1].start + files[number - 1].size
            found.append((file.path, f"the file before it ends at {end}: a start refuses"))
    return found


def _why_misfit(path: Path) -> str:
    return RESTORE_NOT_FINISHED if path.name == RESTORE_MARK else "a file of this name does not belong here"


@attrs.frozen
class IndexGeometry:
    """The layout of an index file: its numbers of slots and entries."""

    slots: int
    entries: int

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + self.slots * SLOT_BYTES + self.entries * ENTRY_BYTES


class StoreFiles:
    """The files of a store, opened read-only.

    Args:
        root: the store's folder.
        geometry: the layout of the index files. Without a layout, the size of the index files must fit RocketMQ's ratio of four
            entries per slot.
        log_folders: the folders of the commit log, if it is not only in ``commitlog``.

    Raises:
        StoreFormatError: the folder does not exist, or contains no store.
        StoreError: a file cannot be read.
    """

    def __init__(self, root: Path, geometry: IndexGeometry | None = None, log_folders: Sequence[Path] = ()) -> None:
        if not root.is_dir():
            raise StoreFormatError(f"{root}: there is no such folder; name the store's folder (store.path)")
        self.root = root
        self.log_folders = tuple(log_folders) or (root / "commitlog",)
        self.log = sorted((file for one in self.log_folders for file in stream(one)), key=lambda file: file.start)
        there = any(one.is_dir() for one in (*self.log_folders, root / "consumequeue", root / "config"))
        if not self.log and not there and not (root / "checkpoint").is_file():
            inside = sorted(log.parent.name for log in root.glob("*/commitlog"))
            if inside:
                raise StoreFormatError(
                    f"{root}: holds the stores of several brokers; name one: {', '.join(str(root / one) for one in inside)}"
                )
            raise StoreFormatError(f"{root}: no store lies there (no commitlog, consumequeue or config)")
        self._geometry = geometry

    def tail_from(self, file: FileView | None) -> StoreFiles:
        """Return this store with only the part of the commit log that begins at a given file."""
        part: StoreFiles = StoreFiles.__new__(StoreFiles)
        part.root, part.log_folders, part._geometry = self.root, self.log_folders, self._geometry
        part.log = [one for one in self.log if file is not None and one.start >= file.start]
        return part

    @property
    def is_clean(self) -> bool:
        """Whether the last broker on the store stopped normally. After a crash, the store still has the file ``abort``."""
        return not (self.root / "abort").exists()

    @property
    def log_bytes(self) -> int:
        return sum(file.size for file in self.log)

    @property
    def log_file_bytes(self) -> int:
        """Size of the largest commit log file in bytes; 0 if the log has no file. All files of a log have this size, except a
        file that was truncated."""
        return max((file.size for file in self.log), default=0)

    @property
    def log_start(self) -> int:
        return self.log[0].start if self.log else 0

    @property
    def log_end(self) -> int:
        """Physical offset of the end of the commit log's last file, including unused bytes."""
        return self.log[-1].start + self.log[-1].size if self.log else 0

    def log_file(self, position: int) -> FileView | None:
        """Return the commit log file that contains a physical offset; None if no file contains the offset."""
        at = bisect_right(self.log, position, key=lambda file: file.start) - 1
        return self.log[at] if at >= 0 and position < self.log[at].start + self.log[at].size else None

    def queue_folder(self, topic: str, queue_id: int) -> Path:
        return self.root / "consumequeue" / topic / str(queue_id)

    def queues(self) -> Iterator[tuple[str, int, list[FileView]]]:
        """Yield each consume queue of a store as three values: its topic, its queue id and its files."""
        for topic in listed(self.root / "consumequeue"):
            numbers = [int(path.name) for path in listed(topic) if path.is_dir() and _is_queue_name(path.name)]
            for number in sorted(numbers):
                yield topic.name, number, stream(topic / str(number))

    def queue(self, topic: str, queue_id: int) -> list[FileView]:
        """Return the files of one consume queue; empty if the queue does not exist."""
        if not topic or "/" in topic or "\0" in topic or topic in (".", ".."):
            return []
        return stream(self.queue_folder(topic, queue_id))

    def ext_files(self, topic: str, queue_id: int) -> list[FileView]:
        """Return the extension files of one consume queue."""
        return stream(self.root / "consumequeue_ext" / topic / str(queue_id))

    def index_paths(self) -> list[Path]:
        """Return the paths of the index files of a store, in the folder ``index``, oldest first."""
        return [path for path in listed(self.root / "index") if not path.is_dir()]

    def index_file(self, path: Path) -> tuple[FileView, IndexGeometry]:
        """Return an index file with its layout. Raises StoreFormatError if the file's size fits no layout."""
        view = map_read_only(path)
        geometry = self._geometry or _guess(path, len(view))
        if len(view) != geometry.size_bytes:
            raise StoreFormatError(
                f"{path}: {len(view)} bytes; an index file with {geometry.slots} slots and {geometry.entries} entries "
                f"has {geometry.size_bytes}"
            )
        return FileView(path, 0, view), geometry

    def index_files(self) -> list[tuple[FileView, IndexGeometry]]:
        """Return all index files, oldest first. Raises StoreFormatError like :meth:`index_file`."""
        return [self.index_file(path) for path in self.index_paths()]


def _is_queue_name(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name


def _guess(path: Path, size: int) -> IndexGeometry:
    slots, rest = divmod(size - HEADER_BYTES, SLOT_BYTES + _ENTRIES_PER_SLOT * ENTRY_BYTES)
    if rest or slots <= 0:
        raise StoreFormatError(
            f"{path}: the number of slots cannot be derived from the size of {size} bytes: give index.max_hash_slot_num "
            "and index.max_index_num"
        )
    return IndexGeometry(slots, slots * _ENTRIES_PER_SLOT)


def read_bytes(path: Path) -> bytes:
    """Return the content of a small file. Raises StoreError if it cannot be read."""
    with reading(path):
        return path.read_bytes()


def ext_at(files: Sequence[FileView], position: int, size: int) -> Any:
    """Return ``size`` bytes at a position of a log or queue that consists of several files; None if no single file contains the
    bytes."""
    for file in files:
        if file.start <= position and position + size <= file.start + file.size:
            return file.view[position - file.start : position - file.start + size]
    return None

"""The port of the disk: everything that the store reads, writes and syncs passes through a :class:`Disk`.

Rules that keep a broker alive (docs/internals/reliability.md, Disk):

* Pages are allocated before they are written through a map. A write into a hole of a full disk ends the process with
  SIGBUS; ``posix_fallocate`` on the same disk raises ENOSPC.
* Bytes are forced with ``fdatasync`` on the file's descriptor, or with ``msync`` where the file holds none: both write pages
  dirtied through the map or by calls, and release the interpreter lock, which ``mmap.flush`` holds.
* A mapped file holds no descriptor, except the one that is written by calls and synced all the time. An operation that needs
  one opens the file for its duration; where the process has none left (EMFILE), nothing was begun and the disk is sound.
* A failed sync is final. The kernel may have dropped the dirty pages, so a second, successful sync proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from flintmq.core.io.lazy_numpy import numpy

if TYPE_CHECKING:
    Column = numpy.ndarray[Any, Any]


class MappedRegion(Protocol):
    """A file of fixed size, mapped. Writes by one thread at a time; ``sync`` from any thread."""

    @property
    def view(self) -> memoryview:
        """Return all of the file, read-only. Slices stay valid after :meth:`close`."""
        ...

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Copy data to a position below the end that :meth:`allocate` has covered.

        The copy has no order: after a kill any part of it may be missing, but each aligned piece of 8 bytes is written as one.
        """
        ...

    def write_in_order(self, position: int, data: bytes | memoryview) -> None:
        """Copy data from its first byte to its last, by a system call that releases the interpreter lock. Raises OSError."""
        ...

    def write_int32s(self, position: int, places: Column, values: Column) -> None:
        """Write each value, 4 bytes big-endian, to ``position + 4 * place``. Places are ascending. Needs numpy.

        The values are written in any order, and each of them as one.
        """
        ...

    def allocate(self, end: int) -> None:
        """Back the bytes up to ``end`` by disk, so that they can be written. Raises StoreFullError when the disk is full."""
        ...

    def fill_zeros(self, start: int, end: int) -> None:
        """Write zeros into a part that :meth:`allocate` has covered and that was never written; releases the interpreter
        lock. Raises OSError."""
        ...

    def rewrite(self, start: int, end: int) -> None:
        """Write a part that :meth:`allocate` has covered over itself, so that the next sync writes it to the disk.

        After a failed sync the kernel may regard dirty pages as clean. Releases the interpreter lock. Raises OSError.
        """
        ...

    def sync(self) -> None:
        """Force the written bytes to the disk, and with the first sync the file's name. Raises OSError."""
        ...

    def evict(self, start: int, end: int) -> None:
        """Remove the whole pages of a part from this process's memory; the next access brings a page back.

        Nothing is lost, synced or not: the kernel keeps the pages, and the next sync writes those that are dirty. Holds the
        interpreter lock, for a time in proportion to the pages that are resident.
        """
        ...

    def next_data(self, position: int) -> int:
        """Return a position at or behind a position such that only zeros lie in between; the file's size if nothing follows.

        Reads nothing where the file system knows its holes.
        """
        ...

    def let_go(self) -> None:
        """Close the descriptor that is held; an operation that needs one opens the file from now on. No other thread may do
        anything but read the file."""
        ...

    def close(self) -> None:
        """Close the descriptor, if one is held. The map is removed with its last slice."""
        ...


class Disk(Protocol):
    """The operations on files and folders that a store needs."""

    def map_file(self, path: Path, size: int, *, create: bool, allocate: int, holds: bool = False) -> MappedRegion:
        """Map a file of exactly ``size`` bytes; a new one is made of zeros, with its first ``allocate`` bytes backed by disk.

        Args:
            holds: hold a descriptor until :meth:`MappedRegion.let_go`, for a file that is written and synced all the time.

        Raises:
            StoreFullError: the disk is full. Nothing is left behind.
            StoreExhaustedError: the process has no descriptor or map left. Nothing is left behind.
            StoreError: the file cannot be made or opened.
        """
        ...

    def list_files(self, folder: Path) -> list[Path]:
        """Return the plain files of a folder, by name; none when it does not exist."""
        ...

    def list_folders(self, folder: Path) -> list[Path]:
        """Return the folders in a folder, by name; none when it does not exist."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its parents, durably."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable, whichever process made or removed them. Raises OSError."""
        ...

    def incarnation(self, path: Path) -> str:
        """Return the boot's id with a file's or folder's device and inode; empty when unknown.

        While it is the same, everything that any process wrote through a map is still there, synced or not.
        """
        ...

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or folder."""
        ...

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes. Raises OSError."""
        ...

    def read(self, path: Path) -> bytes:
        """Return the content of a file. Raises OSError."""
        ...

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a small file durably, in place. Raises StoreError."""
        ...

    def write_at(self, path: Path, position: int, data: bytes) -> None:
        """Write a part of a file that is not mapped, and make the file where there is none, without a sync: the bytes survive
        the end of the process. Raises OSError, also where there is room for a part only."""
        ...

    def sync_content(self, path: Path) -> None:
        """Force what :meth:`write_at` wrote to the disk, but not the file's name. Any thread. Raises OSError."""
        ...

    def discard(self, path: Path) -> None:
        """Remove a file, which may be back after a power cut. A missing file is not an error. Raises OSError."""
        ...

    def lock(self, path: Path) -> Callable[[], object]:
        """Make a file and lock it against other processes and this one. Return the function that releases the lock.

        Raises:
            BlockingIOError: it is locked.
            OSError: the file cannot be opened or written.
        """
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Replace a file by another one of the same folder, in one step and durably. Raises OSError."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file, durably. A missing file is not an error."""
        ...

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder. A missing folder, or one that is not empty, is not an error."""
        ...

    def usage(self, path: Path) -> tuple[int, int, int]:
        """Return (total, used, free) bytes of the file system of a path; free is what this process may still write.

        ``used / (used + free)`` is the share ``df`` shows: blocks that are reserved for root count as neither.

        Raises:
            StoreError: the file system does not say.
        """
        ...

    def modified_ms(self, path: Path) -> int:
        """Return when a file was last changed, in milliseconds since 1970."""
        ...

    def resident_bytes(self) -> int:
        """Return how many bytes of mapped files are in this process's memory, libraries included; 0 where it is unknown."""
        ...


SLICE_BYTES: Final = 4 * 1024 * 1024


def evict_slices(region: MappedRegion, end: int) -> Iterator[None]:
    """Take the first part of a mapped file out of the process's memory, a slice at a time; see :meth:`.MappedRegion.evict`."""
    for start in range(0, end, SLICE_BYTES):
        region.evict(start, min(end, start + SLICE_BYTES))
        yield

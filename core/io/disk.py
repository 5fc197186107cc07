"""The disk interface: all reads, writes and syncs of the store use a :class:`Disk`.

Implementations follow these rules (docs/internals/reliability.md, Disk):

* Pages are allocated before they are written through a map. A write into a hole of a full disk kills the process with SIGBUS,
  whereas ``posix_fallocate`` raises ENOSPC.
* Bytes are synced with ``fdatasync`` on the file's descriptor, or with ``msync`` if the file has no open descriptor. Both write
  pages that were modified through the map or by system calls, and release the interpreter lock, which ``mmap.flush`` holds.
* A mapped file has no open descriptor, except the file that is written and synced all the time. An operation that needs a
  descriptor opens the file temporarily. If the process has no free descriptor (EMFILE), the operation fails before it changes
  anything, and the error is not a sign of a damaged disk.
* A failed sync is final. The kernel may have dropped the modified pages, so a later, successful sync proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from flintmq.core.io.lazy_numpy import numpy

if TYPE_CHECKING:
    Column = numpy.ndarray[Any, Any]


class MappedRegion(Protocol):
    """A file of fixed size that is mapped into memory. One thread at a time can write to it; any thread can call ``sync``."""

    @property
    def view(self) -> memoryview:
        """The content of the whole file, read-only. Slices stay valid after :meth:`close`."""
        ...

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Copy data to a position of the mapped file; the target must have been allocated by :meth:`allocate`.

        The bytes are copied in no defined order. If the process is killed during the copy, any part can be missing, but each
        aligned group of 8 bytes is written atomically.
        """
        ...

    def write_in_order(self, position: int, data: bytes | memoryview) -> None:
        """Copy data to a position of the file, from the data's first byte to its last, by a system call that releases the
        interpreter lock. Raises OSError."""
        ...

    def write_int32s(self, position: int, places: Column, values: Column) -> None:
        """Write each ``values[i]``, as a big-endian integer of 4 bytes, to the byte ``position + 4 * places[i]`` of the file.

        ``places`` must be in ascending order. ``places`` and ``values`` are numpy arrays.

        The values are written in no defined order, each of them atomically.
        """
        ...

    def allocate(self, end: int) -> None:
        """Allocate disk space for the file's bytes up to ``end``, so that these bytes can be written. Raises StoreFullError if
        the disk is full."""
        ...

    def fill_zeros(self, start: int, end: int) -> None:
        """Write zeros to an allocated range of the file that was never written; releases the interpreter lock. Raises
        OSError."""
        ...

    def rewrite(self, start: int, end: int) -> None:
        """Rewrite an allocated range of the file with its own content, so that the next sync writes the range to the disk.

        This is needed after a failed sync, because the kernel may mark unwritten pages as clean. Releases the interpreter lock.
        Raises OSError.
        """
        ...

    def sync(self) -> None:
        """Sync the file's written bytes to the disk; the first sync also makes the file's name durable. Raises OSError."""
        ...

    def evict(self, start: int, end: int) -> None:
        """Unmap the complete pages of a range from this process's memory; the next access maps a page again.

        Nothing is lost: the kernel keeps the pages, and the next sync writes modified pages. The call holds the interpreter
        lock for a time proportional to the number of resident pages.
        """
        ...

    def next_data(self, position: int) -> int:
        """Return the position at which the file's next data may begin: all bytes between the given position and the returned
        position are zeros. If no data follows, the file's size is returned.

        The position comes from the file system's list of holes, so no data is read.
        """
        ...

    def let_go(self) -> None:
        """Close the file's open descriptor; later operations that need a descriptor open the file temporarily.

        During the call, other threads may only read the file.
        """
        ...

    def close(self) -> None:
        """Close the file's descriptor, if it is open. The memory is unmapped when the last slice of the file's content is
        released."""
        ...


class Disk(Protocol):
    """The file system operations that a store uses. Tests replace the operating system's file system by a simulated disk."""

    def map_file(self, path: Path, size: int, *, create: bool, allocate: int, holds: bool = False) -> MappedRegion:
        """Map a file of exactly ``size`` bytes into memory, and return the map.

        Args:
            path: the path of the file.
            size: the size in bytes.
            create: whether to create the file, filled with zeros.
            allocate: the number of bytes for which disk space is allocated, if the file is new.
            holds: whether to keep a descriptor open until :meth:`MappedRegion.let_go`, for a file that is written and synced
                all the time.

        Raises:
            StoreFullError: the disk is full. No file is left behind.
            StoreExhaustedError: the process has the maximum number of descriptors or memory maps. No file is left behind.
            StoreError: the file cannot be created or opened.
        """
        ...

    def list_files(self, folder: Path) -> list[Path]:
        """Return the regular files in a folder, sorted by name; empty if the folder does not exist."""
        ...

    def list_folders(self, folder: Path) -> list[Path]:
        """Return the folders in a folder, sorted by name; empty if the folder does not exist."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, durably. An existing folder is not an error."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Sync a folder, which makes the creation and removal of names in it durable. Raises OSError."""
        ...

    def incarnation(self, path: Path) -> str:
        """Return a text with the id of the kernel's current boot and the device and inode of a path; empty if one of them is
        not known.

        If the text has not changed since a process wrote to the path, the written bytes are not lost, even if they were not
        synced.
        """
        ...

    def exists(self, path: Path) -> bool:
        """Return whether a file or folder exists at a path."""
        ...

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes. Raises OSError."""
        ...

    def read(self, path: Path) -> bytes:
        """Return the content of a file. Raises OSError."""
        ...

    def write_file(self, path: Path, data: bytes) -> None:
        """Write the content of a small file directly, without a temporary file, and sync it. Raises StoreError."""
        ...

    def write_at(self, path: Path, position: int, data: bytes) -> None:
        """Write bytes at a position of a file that is not mapped, without a sync; the file is created if it does not exist.

        The bytes survive the end of the process. Raises OSError, also if there is space for only a part of them.
        """
        ...

    def sync_content(self, path: Path) -> None:
        """Sync the bytes of a file that :meth:`write_at` wrote, but not the file's name. Can be called from any thread. Raises
        OSError."""
        ...

    def discard(self, path: Path) -> None:
        """Remove a file without a sync, so that it can reappear after a power failure. A missing file is not an error.

        Raises OSError.
        """
        ...

    def lock(self, path: Path) -> Callable[[], object]:
        """Create a file and lock it; return a function that releases the lock. Before that function is called, the file cannot
        be locked a second time, neither by another process nor by this process.

        Raises:
            BlockingIOError: the file is already locked.
            OSError: the file cannot be opened or written.
        """
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file over another file in the same folder, atomically and durably. Raises OSError."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file, durably. A missing file is not an error."""
        ...

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder if it is empty. A missing folder, or a folder with content, is not an error."""
        ...

    def usage(self, path: Path) -> tuple[int, int, int]:
        """Return the total, used and free bytes of the file system that contains a path. This process can use all free bytes.

        ``used / (used + free)`` is the percentage that ``df`` shows. Blocks that are reserved for root are counted neither as
        used nor as free.

        Raises:
            StoreError: the sizes cannot be determined.
        """
        ...

    def modified_ms(self, path: Path) -> int:
        """Return the time of a file's last change, in milliseconds since 1970."""
        ...

    def resident_bytes(self) -> int:
        """Return the number of bytes of mapped files, including libraries, that are in this process's memory; 0 if the number
        is not known."""
        ...


SLICE_BYTES: Final = 4 * 1024 * 1024


def evict_slices(region: MappedRegion, end: int) -> Iterator[None]:
    """Unmap a file up to ``end`` from the process's memory, yielding after each slice; see :meth:`.MappedRegion.evict`."""
    for start in range(0, end, SLICE_BYTES):
        region.evict(start, min(end, start + SLICE_BYTES))
        yield

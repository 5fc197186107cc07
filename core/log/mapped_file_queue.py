"""A log in files of equal size, named by their physical offsets (``MappedFileQueue`` of RocketMQ).

Each file has ascending positions up to which it is written, committed (copied from the transient pool, if there is one) and
flushed. One thread appends, one flushes, and one commits. Only the appender adds files, so the other threads can iterate over
them at the same time.

See docs/internals/store-format.md, Folders; docs/internals/algorithms.md, Mapped files.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.core.errors import StoreError, StoreFormatError
from flintmq.core.io.disk import Disk, MappedRegion
from flintmq.core.io.paths import RESTORE_MARK, RESTORE_NOT_FINISHED, file_name
from flintmq.core.log_events import event_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.core.kernel.ports import FileWriter, TransientStorePool

log = event_log("flintmq.store")

OS_PAGE_BYTES = 4096
HEAD_BYTES = 8
"""Number of bytes at the start of an append that are written last. If these bytes are zeros after a kill, the append is
incomplete; see :meth:`MappedFile.append`."""
IN_ORDER_BYTES = 8 * 1024
"""Size in bytes from which an append uses a system call, which writes in order and is faster than a copy into the file's
map."""
_WARM_BYTES = 16 * 1024 * 1024
_GAP_BYTES = 64 * 1024 * 1024 * 1024
"""Size in bytes above which a gap between two files of a log cannot be caused by a crash."""


class MappedFile:
    """A mapped file of a log. ``wrote``, ``committed`` and ``flushed`` are positions in the file."""

    __slots__ = (
        "_step",
        "buffer",
        "committed",
        "flushed",
        "grown",
        "named",
        "path",
        "region",
        "size",
        "start",
        "unsynced",
        "view",
        "wrote",
    )

    def __init__(self, path: Path, start: int, size: int, region: MappedRegion, step: int) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.region = region
        self.view = region.view
        self.buffer: memoryview | None = None
        """The buffer of the transient pool that receives the file's appends; None if appends go to the file's map."""
        self._step = step
        self.grown = 0
        """Position in the file up to which this object has allocated disk space."""
        self.named = False
        """Whether a sync has made the file's name durable."""
        self.wrote = 0
        self.committed = 0
        self.flushed = 0
        self.unsynced = False
        """Whether bytes below ``flushed`` may be unsynced. A crashed process may have written these bytes, or a truncation may
        have set ``flushed`` to the file's new end, which can be beyond the synced bytes."""

    def grow(self, end: int) -> None:
        """Allocate disk space for the log file up to a position, in steps.

        Raises StoreFullError, without a change, if the disk is full.
        """
        if end > self.grown:
            grown = min(self.size, -(-end // self._step) * self._step)
            self.region.allocate(grown)
            self.grown = grown

    def append(self, data: bytes, *, head_last: bool = False) -> None:
        """Append bytes at ``wrote``; the caller must have grown the log file enough.

        Set ``head_last`` if the bytes are several records. A copy may write the bytes in any order, and a kill during the copy
        could leave valid records after a torn record. With ``head_last``, the first 8 bytes are therefore written after all
        other bytes. If these bytes are zeros after a kill, the append is incomplete, and none of its records was acknowledged
        or read. A large append is written in order instead.
        """
        wrote = self.wrote
        if self.buffer is None:
            if not head_last:
                self.region.write(wrote, data)
            elif len(data) >= IN_ORDER_BYTES:
                self.region.write_in_order(wrote, data)
            else:
                self.region.write(wrote + HEAD_BYTES, memoryview(data)[HEAD_BYTES:])
                self.region.write(wrote, data[:HEAD_BYTES])
        else:
            self.buffer[wrote : wrote + len(data)] = data
        self.wrote = wrote + len(data)

    def append_in_order(self, data: bytes) -> None:
        """Append records with different store times to the file, in order from the first byte to the last. Raises OSError."""
        wrote = self.wrote
        if self.buffer is None:
            self.region.write_in_order(wrote, data)
        else:
            self.buffer[wrote : wrote + len(data)] = data
        self.wrote = wrote + len(data)

    @property
    def readable(self) -> int:
        """The position up to which the file's mapped pages contain the appended records."""
        return self.wrote if self.buffer is None else self.committed

    def commit(self, write: FileWriter | None = None) -> None:
        """Write the uncommitted bytes of the transient pool's buffer to the file, with the function ``write`` if it is not
        None."""
        wrote = self.wrote
        # Bytes beyond ``grown`` have no allocated disk space. On a full disk, writing those bytes would kill the process.
        end = min(wrote, self.grown)
        if self.buffer is None or end <= self.committed:
            self.committed = wrote
            return
        if write is not None:
            write(self.path, self.buffer, self.committed, end)
        else:
            # Records are written in order: a kill during the write must not leave a record after an incomplete record.
            self.region.write_in_order(self.committed, self.buffer[self.committed : end])
        self.committed = wrote

    def flush(self, *, written_through: bool = False) -> int:
        """Sync the log file, and return the position up to which it is durable. Raises OSError, without moving a position.

        ``written_through`` means that committed bytes are already durable.
        """
        end = self.readable
        if not (written_through and self.buffer is not None and self.named and not self.unsynced):
            # ``unsynced`` is cleared before the sync, because a truncation during the sync sets ``unsynced`` again.
            self.unsynced = False
            try:
                self.region.sync()
            except OSError:
                self.unsynced = True
                raise
            self.named = True
        if end == self.size:
            # The descriptor is released first: once ``flushed`` has changed, another thread may delete the file.
            self.region.let_go()
        self.flushed = end
        return end

    def next_data(self, position: int) -> int:
        """Return the first position at or after a given position at which the file may have data; the file's size if no data
        follows.
        """
        return self.region.next_data(position)

    def set_positions(self, position: int) -> None:
        """Set all positions of the file after a recovery. The bytes up to ``position`` are on disk, and the rest is unused."""
        self.wrote = self.committed = self.flushed = position


class MappedFileQueue:
    """The files of a log, in order.

    Args:
        disk: the disk interface.
        folder: the folder of the files.
        file_bytes: the size of each file.
        step_bytes: the number of bytes by which the disk space allocated for a file grows at a time.
        pool: the transient pool, whose buffers receive appends first; None without one.
        ahead: the executor that creates the next file in advance. With None, files are created when needed.
        warm: whether to fill files that are created in advance with zeros.
        holds: whether the last file keeps an open descriptor, because the file is written and synced often.
        size_key: the setting of the file size, for error messages.
    """

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        file_bytes: int,
        *,
        step_bytes: int,
        pool: TransientStorePool | None = None,
        ahead: Executor | None = None,
        warm: bool = False,
        holds: bool = False,
        size_key: str = "their size",
    ) -> None:
        self._disk = disk
        self.folder = folder
        self.file_bytes = file_bytes
        self._step_bytes = min(step_bytes, file_bytes)
        self._pool = pool
        self.pooled = pool is not None
        """Whether the mapped files can have buffers of a transient store pool."""
        self._ahead = ahead
        self._warm = warm
        self._holds = holds
        self._size_key = size_key
        self.closing = False
        """Whether the queue of files is about to be closed. If so, filling a new file with zeros in advance is abandoned."""
        self._next: Future[MappedFile] | None = None
        self.files: list[MappedFile] = []

    def load(self, *, crashed: bool = False, may_be_lost: Callable[[int, memoryview], bool] | None = None) -> None:
        """Map the log's files in the folder. Until the recovery sets a file's positions, each position is the end of the file.

        Args:
            crashed: whether the store was not stopped cleanly. After a crash, no byte counts as synced. In addition, a missing
                file before a later file is replaced by a file of zeros, because a crash can lose the name of a new file.
            may_be_lost: returns whether a crash can explain a missing file, given the end of the file before it and the content
                of the file after it. With None, a crash can explain every missing file.

        Raises:
            StoreFormatError: a file has an unexpected size or name, or there is a gap between two files.
        """
        paths = self._paths()
        for path in paths:
            if path.name == RESTORE_MARK:
                raise StoreFormatError(f"{path}: {RESTORE_NOT_FINISHED}")
        if crashed:
            for path in [path for path in paths if self._disk.size(path) == 0]:
                log.warning("store.empty_file", "%(path)s is empty: a crash interrupted its creation", path=path)
                self._disk.remove(path)
                paths.remove(path)
            for folder in {path.parent for path in paths}:
                self._disk.sync_folder(folder)
        for path in paths:
            if not (path.name.isascii() and path.name.isdigit() and len(path.name) == 20):
                raise StoreFormatError(
                    f"{path}: the name is not that of a log or queue file (20 digits); move the file away"
                )
            size = self._disk.size(path)
            if size == 0 and path == paths[-1]:
                log.warning(
                    "store.empty_file_made_again",
                    "%(path)s is empty: a crash interrupted its creation; it is created again",
                    path=path,
                )
                self._disk.remove(path)
                break
            if size != self.file_bytes:
                raise StoreFormatError(
                    f"{path} has {size} bytes, but the configured size is {self.file_bytes}: "
                    f"set {self._size_key} to the value with which the store was created"
                )
            start = int(path.name)
            holds = self._holds and path == paths[-1]
            region = self._disk.map_file(path, size, create=False, allocate=0, holds=holds)
            ends = self.files[-1].start + self.file_bytes if self.files else start
            if crashed and start > ends and (may_be_lost is None or may_be_lost(ends, region.view)):
                self._close_gap(start)
                ends = self.files[-1].start + self.file_bytes
            if start != ends:
                region.close()
                raise StoreFormatError(
                    f"{path}: the file begins at {start}, and the file before it ends at {ends}"
                    f"{_missing(self._size_key, ends, start)}"
                )
            file = MappedFile(path, start, size, region, self._step_bytes)
            file.set_positions(size)
            file.unsynced = crashed
            self.files.append(file)

    def _close_gap(self, start: int) -> None:
        """Create the missing files of the log before an existing file, as sparse files of zeros."""
        while self.files and 0 < start - (missing := self.files[-1].start + self.file_bytes) <= _GAP_BYTES:
            path = self.files[-1].path.with_name(file_name(missing))
            log.warning(
                "store.missing_file", "%(path)s is missing: its name was lost in a crash, or it was removed", path=path
            )
            region = self._disk.map_file(path, self.file_bytes, create=True, allocate=0)
            file = MappedFile(path, missing, self.file_bytes, region, self._step_bytes)
            file.set_positions(file.size)
            self.files.append(file)

    def _paths(self) -> list[Path]:
        """Return the paths of the log's files, which are to be mapped, sorted by name."""
        return self._disk.list_files(self.folder)

    # positions

    @property
    def min_offset_bytes(self) -> int:
        """The physical start of the log's first file; 0 without files."""
        return self.files[0].start if self.files else 0

    @property
    def wrote_offset_bytes(self) -> int:
        """The physical end of the bytes appended to the log."""
        if not self.files:
            return 0
        last = self.files[-1]
        return last.start + last.wrote

    # files

    def last(self) -> MappedFile | None:
        """Return the log file to which records are appended, even if it is full; None without files."""
        return self.files[-1] if self.files else None

    def find(self, offset_bytes: int) -> MappedFile | None:
        """Return the log file that contains a physical offset; None if no file does."""
        files = self.files
        if not files:
            return None
        index = (offset_bytes - files[0].start) // self.file_bytes
        return files[index] if 0 <= index < len(files) else None

    def prepare(self, start: int) -> None:
        """Create the first file of a log in advance, and wait until it exists, so that the first append does not wait."""
        if self._ahead is not None:
            self._next = self._ahead.submit(self._make_ahead, start)
            self._next.exception()

    def _make_ahead(self, start: int) -> MappedFile:
        """Create a file of the log in advance. If ``warm`` is set, also fill its pages with zeros on disk. Background thread.

        Whether ``warm`` helps depends on the disk, so it is off by default; measure first. Median times of 600 fdatasync calls,
        each after an append through the map, on ext4 on a virtual disk: for 4 KiB appends 152 µs (sparse file), 151 µs
        (allocated), 189 µs (filled); for 64 KiB appends 184, 184 and 199 µs. A page that is only allocated is marked as
        unwritten, and its first sync updates the journal, which was cheaper in this measurement. A filled file always avoids
        page faults in appends. Unlike RocketMQ, no memory is locked (mlock): a gigabyte per file is rarely permitted, and the
        pages are written once and read soon.
        """
        file = self._make(start)
        if self._warm:
            try:
                file.grow(file.size)
                for at in range(0, file.size, _WARM_BYTES):
                    if self.closing:
                        break
                    file.region.fill_zeros(at, min(file.size, at + _WARM_BYTES))
                    file.region.sync()
            except (OSError, StoreError):
                # If zeros cannot be written, the new file is deleted. The log creates the file again when a record needs it.
                self._give_up(file)
                raise
        return file

    def _make(self, start: int) -> MappedFile:
        return self._make_in(self.folder, start)

    def _make_in(self, folder: Path, start: int) -> MappedFile:
        path = folder / file_name(start)
        region = self._disk.map_file(path, self.file_bytes, create=True, allocate=self._step_bytes, holds=self._holds)
        file = MappedFile(path, start, self.file_bytes, region, self._step_bytes)
        file.grown = self._step_bytes
        return file

    def roll(self, start: int, needed_bytes: int = 0) -> MappedFile:
        """Add the log's first or next file, and return it. If files are created in advance, also begin to create the following
        file in the background.

        Raises:
            StoreFullError: the disk has no space for the part of the file that is allocated at first, or for ``needed_bytes``;
                nothing was added.
        """
        file = self._take_next(start) or self._make(start)
        try:
            file.grow(needed_bytes)
        except StoreError:
            self._give_up(file)
            raise
        if self._pool is not None:
            # If no buffer is free, ``buffer`` is None, and appends go directly to the file's mapped pages.
            file.buffer = self._pool.borrow()
        self.files.append(file)
        if self._ahead is not None:
            self._next = self._ahead.submit(self._make_ahead, start + self.file_bytes)
        return file

    def _take_next(self, start: int) -> MappedFile | None:
        """Return the log file created in advance; None if it does not exist, begins at another position, or its creation
        failed.

        After a failure, the caller creates the file itself and gets the error.
        """
        future, self._next = self._next, None
        if future is None or future.exception() is not None:
            return None
        file = future.result()
        if file.start == start:
            return file
        self._discard(file)
        return None

    def commit_one(self, write: FileWriter | None = None) -> None:
        """Commit the log's oldest file with uncommitted bytes, and return the buffer of a full file to the transient pool."""
        for file in self.files:
            if file.committed < file.wrote:
                file.commit(write)
                if file.buffer is not None and file.committed == file.size and self._pool is not None:
                    buffer, file.buffer = file.buffer, None
                    self._pool.give_back(buffer)
                return

    def first_unflushed(self) -> MappedFile | None:
        """Return the oldest log file with unsynced bytes in its pages; None if an earlier file awaits a commit."""
        for file in self.files:
            if file.flushed < file.readable:
                return file
            if file.readable < file.wrote:
                return None
        return None

    def truncate(self, end_offset_bytes: int) -> None:
        """Truncate the log at a physical offset. Later files are deleted; in the offset's file, only the positions change."""
        keep: list[MappedFile] = []
        go: list[MappedFile] = []
        for file in self.files:
            if file.start >= end_offset_bytes and (file.start > end_offset_bytes or keep):
                go.append(file)
                continue
            position = max(0, min(file.size, end_offset_bytes - file.start))
            file.unsynced = file.unsynced or file.flushed < position
            file.set_positions(position)
            keep.append(file)
        self.files = keep
        # The last file is deleted first, so that a crash between two deletions leaves no gap between files.
        for file in reversed(go):
            if file.buffer is not None and self._pool is not None:
                buffer, file.buffer = file.buffer, None
                self._pool.give_back(buffer)
            self._discard(file)

    def delete_before(self, offset_bytes: int) -> int:
        """Delete log files that end at or before a physical offset, except the last file and files that are still needed.

        See :meth:`deletable`. Returns the number of deleted files. Raises OSError; the file that could not be deleted stays.
        """
        count = 0
        while self.deletable() and self.files[0].start + self.file_bytes <= offset_bytes:
            self._discard(self.files[0])
            self.detach_first()
            count += 1
        return count

    def deletable(self) -> bool:
        """Return whether the log's first file can be deleted: it is completely flushed, and a later file is durable.

        A power failure can remove a file that was never synced. If the first file were deleted earlier, such a failure could
        leave no file.
        """
        files = self.files
        return len(files) > 1 and files[0].flushed >= files[0].wrote and files[1].flushed > 0

    def detach_first(self) -> MappedFile:
        """Remove the first file from the list of the log's files, but not from the disk, and return it. Called only on the
        event loop's thread.

        Other threads may still iterate over the previous list of files.
        """
        file, self.files = self.files[0], self.files[1:]
        return file

    def destroy(self) -> None:
        """Delete all files of the log and the folder. Raises OSError; files that could not be deleted stay."""
        while self.files:
            self._discard(self.files[0])
            self.detach_first()
        self._disk.remove_folder(self.folder)

    def _discard(self, file: MappedFile) -> None:
        # The file is deleted before its map is closed. If the deletion fails, the file can still be read.
        self._disk.remove(file.path)
        file.region.close()

    def _give_up(self, file: MappedFile) -> None:
        """Delete an unused log file that was created in advance. If the deletion fails, leave the file empty for later use."""
        file.region.close()
        with contextlib.suppress(OSError):
            self._disk.remove(file.path)

    def close(self) -> None:
        """Unmap all files of the log. An unused file that was created in advance is deleted."""
        unused = self._take_next(-1)
        assert unused is None
        for file in self.files:
            if file.buffer is not None and self._pool is not None:
                buffer, file.buffer = file.buffer, None
                self._pool.give_back(buffer)
            file.region.close()


def _missing(size_key: str, begin: int, end: int) -> str:
    """Return the end of an error message about log files that are missing between two physical offsets."""
    if begin >= end:
        return ""
    where = ": if a disk is not mounted, mount it, and list all folders in store.commit_log_paths (storePathCommitLog)"
    return f"; {file_name(begin)} is missing{where if 'commit_log' in size_key else ''}"

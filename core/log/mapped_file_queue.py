"""A log cut into files of one size, named by where they start.

Positions that only grow record how far the log has been written, committed (out of the transient pool, if there is one) and
flushed. One thread appends, one flushes, one commits; a file is added by the appender only, so that the others may walk the
row meanwhile.

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
"""Of several records the first one's size and magic are written last, see :meth:`MappedFile.append`."""
IN_ORDER_BYTES = 8 * 1024
"""From this size on a system call, which writes in order, costs less than a copy through the map."""
_WARM_BYTES = 16 * 1024 * 1024
_GAP_BYTES = 64 * 1024 * 1024 * 1024
"""A larger gap between two files does not come from a crash."""


class MappedFile:
    """One file of a log. ``wrote``, ``committed`` and ``flushed`` are positions within it."""

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
        """The transient pool's buffer that appends go to, if any."""
        self._step = step
        self.grown = 0
        """How far the file is backed by disk, as far as this object made sure."""
        self.named = False
        """Whether a sync has made its name durable, too."""
        self.wrote = 0
        self.committed = 0
        self.flushed = 0
        self.unsynced = False
        """Whether there may be more to sync than positions tell: what a crashed process wrote, or what was cut."""

    def grow(self, end: int) -> None:
        """Back the file by disk up to a position, in steps. Raises StoreFullError, and then nothing has changed."""
        if end > self.grown:
            grown = min(self.size, -(-end // self._step) * self._step)
            self.region.allocate(grown)
            self.grown = grown

    def append(self, data: bytes, *, head_last: bool = False) -> None:
        """Write behind what was written; the caller has made it grow so far.

        ``head_last`` is for several records at once. A copy need not go in order, and a kill in the middle of one could leave
        whole records behind one that is torn. So the first 8 bytes come when the rest is there: while they are zeros nothing
        behind them was acknowledged, or seen by anybody. Many bytes are written in order instead.
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
        """Write records of many appends, which were not stored at one time, from the first byte to the last. Raises OSError."""
        wrote = self.wrote
        if self.buffer is None:
            self.region.write_in_order(wrote, data)
        else:
            self.buffer[wrote : wrote + len(data)] = data
        self.wrote = wrote + len(data)

    @property
    def readable(self) -> int:
        """How far the mapped pages hold what was appended."""
        return self.wrote if self.buffer is None else self.committed

    def commit(self, write: FileWriter | None = None) -> None:
        """Copy what waits in the pool's buffer into the file's pages, or have it written."""
        wrote = self.wrote
        # Behind a BLANK nothing was written, and behind ``grown`` the disk may have no room: a write there is fatal.
        end = min(wrote, self.grown)
        if self.buffer is None or end <= self.committed:
            self.committed = wrote
            return
        if write is not None:
            write(self.path, self.buffer, self.committed, end)
        else:
            # Many appends: a kill in the middle must not leave later ones behind one that is torn.
            self.region.write_in_order(self.committed, self.buffer[self.committed : end])
        self.committed = wrote

    def flush(self, *, written_through: bool = False) -> int:
        """Sync the file; returns the position that is now durable. Raises OSError, and then nothing has moved.

        ``written_through``: what was committed from a buffer is durable already.
        """
        end = self.readable
        if not (written_through and self.buffer is not None and self.named and not self.unsynced):
            self.unsynced = False  # first: what is cut meanwhile must be synced once more
            try:
                self.region.sync()
            except OSError:
                self.unsynced = True
                raise
            self.named = True
        if end == self.size:
            self.region.let_go()  # first: a file that is full and synced may be deleted by another thread
        self.flushed = end
        return end

    def next_data(self, position: int) -> int:
        """Return a place at or behind another before which there are only zeros; the file's size where nothing follows."""
        return self.region.next_data(position)

    def set_positions(self, position: int) -> None:
        """Note, after a recovery, that everything up to a position is on disk, and that nothing behind it counts."""
        self.wrote = self.committed = self.flushed = position


class MappedFileQueue:
    """The row of files. ``step_bytes``: files are backed by disk in steps of so much, as they grow.

    ``holds``: the file that is appended to keeps a descriptor, because it is written and synced all the time. ``size_key``: the
    setting that says how large the files are, for errors.
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
        """Whether files may have buffers of a transient pool."""
        self._ahead = ahead
        self._warm = warm
        self._holds = holds
        self._size_key = size_key
        self.closing = False
        """Set before the queue is closed: a file that is being warmed up is left as it is."""
        self._next: Future[MappedFile] | None = None
        self.files: list[MappedFile] = []

    def load(self, *, crashed: bool = False, may_be_lost: Callable[[int, memoryview], bool] | None = None) -> None:
        """Map what lies in the folder; positions are the files' ends until recovery says otherwise.

        Args:
            crashed: whether the store was not stopped. Then a file may be missing whose name had not reached the disk while
                a later one's had; one of zeros takes its place, for recovery to judge. And nothing counts as synced.
            may_be_lost: tells whether that can be so, given where the file before ends and the bytes of such a later one; None
                where it always may.

        Raises:
            StoreFormatError: a file of another size or name, or a gap between two files.
        """
        paths = self._paths()
        for path in paths:
            if path.name == RESTORE_MARK:
                raise StoreFormatError(f"{path}: {RESTORE_NOT_FINISHED}")
        if crashed:
            for path in [path for path in paths if self._disk.size(path) == 0]:
                log.warning("store.empty_file", "%(path)s is empty: a crash came while it was made", path=path)
                self._disk.remove(path)
                paths.remove(path)
            for folder in {path.parent for path in paths}:
                self._disk.sync_folder(folder)
        for path in paths:
            if not (path.name.isascii() and path.name.isdigit() and len(path.name) == 20):
                raise StoreFormatError(f"{path}: a file of this name does not belong here; move it away")
            size = self._disk.size(path)
            if size == 0 and path == paths[-1]:
                log.warning(
                    "store.empty_file_made_again",
                    "%(path)s is empty: a crash came while it was made; it is made again",
                    path=path,
                )
                self._disk.remove(path)
                break
            if size != self.file_bytes:
                raise StoreFormatError(
                    f"{path} has {size} bytes, the configuration says {self.file_bytes}: "
                    f"{self._size_key} must be what the store was made with"
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
                    f"{path}: the file before it ends at {ends}{_missing(self._size_key, ends, start)}"
                )
            file = MappedFile(path, start, size, region, self._step_bytes)
            file.set_positions(size)
            file.unsynced = crashed
            self.files.append(file)

    def _close_gap(self, start: int) -> None:
        """Make the files that are missing before one, of zeros and not backed by disk."""
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
        """Return what is to be mapped, by name."""
        return self._disk.list_files(self.folder)

    # positions

    @property
    def min_offset_bytes(self) -> int:
        """Start of the first file; 0 without files."""
        return self.files[0].start if self.files else 0

    @property
    def wrote_offset_bytes(self) -> int:
        """End of what was appended."""
        if not self.files:
            return 0
        last = self.files[-1]
        return last.start + last.wrote

    # files

    def last(self) -> MappedFile | None:
        """Return the file that is appended to, even when full."""
        return self.files[-1] if self.files else None

    def find(self, offset_bytes: int) -> MappedFile | None:
        """Return the file that holds a position, or None."""
        files = self.files
        if not files:
            return None
        index = (offset_bytes - files[0].start) // self.file_bytes
        return files[index] if 0 <= index < len(files) else None

    def prepare(self, start: int) -> None:
        """Make a file ahead, and wait for it: the first one of a log, before anybody waits for an append."""
        if self._ahead is not None:
            self._next = self._ahead.submit(self._make_ahead, start)
            self._next.exception()

    def _make_ahead(self, start: int) -> MappedFile:
        """On the background thread: a file, and with ``warm`` one whose every page is on disk as zeros.

        Whether that pays is the disk's business. fdatasync after each 4 KiB appended through the map, medians of 600, ext4 on
        a virtual disk: sparse 152 µs, allocated 151 µs, filled with zeros 189 µs; with 64 KiB 184, 184 and 199 µs. A page that
        was only allocated is marked as unwritten, and its first sync must change that in the journal; there the journal was
        the cheaper path. Hence off unless asked for: measure first. What it always buys is that no append faults a new page
        in. Nothing is locked in memory as RocketMQ does (mlock): a gigabyte for each file is rarely permitted, and its
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
                self._give_up(file)  # made again, and cold, when it is needed
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
        """Add the next file (or the first) and return it; with ``ahead`` the one after it is made in the background.

        Raises:
            StoreFullError: no room on the disk for its first step, or for ``needed_bytes``; nothing was added.
        """
        file = self._take_next(start) or self._make(start)
        try:
            file.grow(needed_bytes)
        except StoreError:
            self._give_up(file)
            raise
        if self._pool is not None:
            # None when all buffers are taken: then this file is written through its pages, and nothing is lost.
            file.buffer = self._pool.borrow()
        self.files.append(file)
        if self._ahead is not None:
            self._next = self._ahead.submit(self._make_ahead, start + self.file_bytes)
        return file

    def _take_next(self, start: int) -> MappedFile | None:
        """Return the file made ahead, or None where there is none, it failed (the caller finds out why), or is another
        one."""
        future, self._next = self._next, None
        if future is None or future.exception() is not None:
            return None
        file = future.result()
        if file.start == start:
            return file
        self._discard(file)
        return None

    def commit_one(self, write: FileWriter | None = None) -> None:
        """Commit the oldest file that waits for it and give a full file's buffer back."""
        for file in self.files:
            if file.committed < file.wrote:
                file.commit(write)
                if file.buffer is not None and file.committed == file.size and self._pool is not None:
                    buffer, file.buffer = file.buffer, None
                    self._pool.give_back(buffer)
                return

    def first_unflushed(self) -> MappedFile | None:
        """Return the oldest file with bytes in its pages that were not synced; none behind a file that still waits for
        a commit."""
        for file in self.files:
            if file.flushed < file.readable:
                return file
            if file.readable < file.wrote:
                return None
        return None

    def truncate(self, end_offset_bytes: int) -> None:
        """Forget everything from a position on: later files go, the file it lies in ends there. Bytes behind stay."""
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
        for file in reversed(go):  # the last one first: a crash in between must leave no gap
            if file.buffer is not None and self._pool is not None:
                buffer, file.buffer = file.buffer, None
                self._pool.give_back(buffer)
            self._discard(file)

    def delete_before(self, offset_bytes: int) -> int:
        """Delete files that end at or before a position, never the last one nor one that is needed (:meth:`deletable`).

        Returns how many. Raises OSError; the file that could not be deleted stays.
        """
        count = 0
        while self.deletable() and self.files[0].start + self.file_bytes <= offset_bytes:
            self._discard(self.files[0])
            self.detach_first()
            count += 1
        return count

    def deletable(self) -> bool:
        """Return whether the first file may go: no flush service will ask for it again, and another one is durable.

        A power cut takes a file of which nothing was synced. If the first one went before that, no file would be left.
        """
        files = self.files
        return len(files) > 1 and files[0].flushed >= files[0].wrote and files[1].flushed > 0

    def detach_first(self) -> MappedFile:
        """Take the first file out of the row; it stays on disk. Loop thread; others may be walking the row as it
        was."""
        file, self.files = self.files[0], self.files[1:]
        return file

    def destroy(self) -> None:
        """Delete every file and the folder. Raises OSError; what could not be deleted is still there."""
        while self.files:
            self._discard(self.files[0])
            self.detach_first()
        self._disk.remove_folder(self.folder)

    def _discard(self, file: MappedFile) -> None:
        self._disk.remove(file.path)  # first: what could not be removed is still there to be read
        file.region.close()

    def _give_up(self, file: MappedFile) -> None:
        """Remove a file that was made and is not used, or leave it empty, to be taken when one is needed."""
        file.region.close()
        with contextlib.suppress(OSError):
            self._disk.remove(file.path)

    def close(self) -> None:
        """Release every file; one that was made ahead and not used is deleted."""
        unused = self._take_next(-1)
        assert unused is None
        for file in self.files:
            if file.buffer is not None and self._pool is not None:
                buffer, file.buffer = file.buffer, None
                self._pool.give_back(buffer)
            file.region.close()


def _missing(size_key: str, begin: int, end: int) -> str:
    """Return what to say of files that are missing between two positions."""
    if begin >= end:
        return ""
    where = ": is a disk not mounted, or a folder of store.commit_log_paths (storePathCommitLog) not named?"
    return f"; {file_name(begin)} is missing{where if 'commit_log' in size_key else ''}"

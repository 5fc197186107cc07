"""A commit log in memory that implements :class:`~flintmq.core.kernel.ports.FlushableLog`. A test can make its syncs fail or
hang."""

from __future__ import annotations

import threading
from typing import Final

from flintmq.core.errors import StoreFencedError
from flintmq.core.kernel.ports import FileWriter, TransientStorePool

PAGE_BYTES: Final = 4096


class FakeLog:
    """A commit log without a disk. Thread-safe.

    The log follows the rules of a real commit log. Each call of :meth:`flush` flushes at most one file. A full file is flushed
    even if it has fewer new pages than ``least_pages``. A position moves only after its write or sync has ended. After a failed
    sync, every later sync raises an error.

    Args:
        file_bytes: size of one file.
        pool: the pool to whose buffers the appended bytes are written; ``commit`` then commits these bytes. If the pool is
            None, appended bytes are committed at once.
        hold_limit_s: the time after which a sync that :meth:`hold_syncs` holds continues, so that a test with an unexpected
            sync fails and does not hang.
    """

    def __init__(
        self, *, file_bytes: int = 1 << 20, pool: TransientStorePool | None = None, hold_limit_s: float = 30.0
    ) -> None:
        self._file_bytes = file_bytes
        self._pool = pool
        self._changed = threading.Condition()
        self._wrote = 0
        self._committed = 0
        self._flushed = 0
        self._buffers: list[memoryview] = []
        self._syncs_until_failure: int | None = None
        self._commits_until_failure: int | None = None
        self._held = False
        self._hold_limit_s = hold_limit_s
        self._syncs_entered = 0
        self._fenced = False
        self.sync_calls: list[tuple[int, int]] = []
        """The flushed positions before and after each sync of the log that succeeded, in the order of the syncs."""
        self.hold_expired = False
        """Whether a sync that the test had paused continued by itself, because ``hold_limit_s`` had passed."""
        self.calls_after_fence = 0
        """Number of syncs that were requested after a sync of the log had failed."""

    # --- methods that a flush service calls ---

    @property
    def wrote_offset_bytes(self) -> int:
        return self._wrote

    @property
    def committed_offset_bytes(self) -> int:
        return self._committed if self._pool is not None else self._wrote

    @property
    def flushed_offset_bytes(self) -> int:
        return self._flushed

    def commit(self, least_pages: int, write: FileWriter | None = None) -> int:
        """Move the committed position, at most to the end of a file, and return it. ``write`` is not called, because the log
        has no files."""
        with self._changed:
            if self._pool is None:
                return self._wrote
            file_end = self._file_end(self._committed)
            end = min(self._wrote, file_end)
            if end == self._committed or (end < file_end and not _enough(self._committed, end, least_pages)):
                return self._committed
            if self._commits_until_failure is not None:
                self._commits_until_failure -= 1
                if self._commits_until_failure < 0:
                    self._fenced = True
                    self._changed.notify_all()
                    raise StoreFencedError("scripted: the commit failed")
            self._committed = end
            if end == file_end:
                self._pool.give_back(self._buffers.pop(0))
            self._changed.notify_all()
            return end

    def flush(self, least_pages: int, *, written_through: bool = False) -> int:
        with self._changed:
            if self._fenced:
                self.calls_after_fence += 1
                raise StoreFencedError("scripted: an earlier sync failed")
            begin = self._flushed
            file_end = self._file_end(begin)
            end = min(self.committed_offset_bytes, file_end)
            if end == begin or (end < file_end and not _enough(begin, end, least_pages)):
                return begin
            self._syncs_entered += 1
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._held, self._hold_limit_s):
                self.hold_expired = True
            if self._syncs_until_failure is not None:
                self._syncs_until_failure -= 1
                if self._syncs_until_failure < 0:
                    self._fenced = True
                    self._changed.notify_all()
                    raise StoreFencedError("scripted: the sync failed")
            self.sync_calls.append((begin, end))
            self._flushed = end
            self._changed.notify_all()
            return end

    # --- methods that a test calls ---

    def append(self, size_bytes: int) -> int | None:
        """Append bytes to the log, and return the log's new end. If the pool has no buffer for the bytes, append nothing and
        return None."""
        with self._changed:
            if self._pool is not None:
                files_needed = -(-(self._wrote + size_bytes) // self._file_bytes)
                files_held = self._committed // self._file_bytes + len(self._buffers)
                while files_held < files_needed:
                    buffer = self._pool.borrow()
                    if buffer is None:
                        return None
                    self._buffers.append(buffer)
                    files_held += 1
            self._wrote += size_bytes
            self._changed.notify_all()
            return self._wrote

    def fail_syncs(self, after: int = 0) -> None:
        """Make a sync fail after ``after`` further syncs have succeeded. Later syncs fail, too, because the log is then
        fenced."""
        with self._changed:
            self._syncs_until_failure = after

    def fail_commits(self, after: int = 0) -> None:
        """Make a commit fail after ``after`` further commits have succeeded. Later commits and syncs fail, too, because the log
        is then fenced."""
        with self._changed:
            self._commits_until_failure = after

    def hold_syncs(self) -> None:
        """Make syncs of the log hang until :meth:`release_syncs` is called."""
        with self._changed:
            self._held = True
            self._syncs_entered = 0

    def release_syncs(self) -> None:
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def wait_sync_entered(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for a sync to begin after the call of :meth:`hold_syncs`. Return whether a sync has
        begun."""
        with self._changed:
            return self._changed.wait_for(lambda: self._syncs_entered > 0, timeout_s)

    def wait_flushed(self, end_offset_bytes: int, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._flushed >= end_offset_bytes, timeout_s)

    def wait_committed(self, end_offset_bytes: int, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.committed_offset_bytes >= end_offset_bytes, timeout_s)

    def wait_fenced(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._fenced, timeout_s)

    def _file_end(self, position: int) -> int:
        return (position // self._file_bytes + 1) * self._file_bytes


def _enough(begin: int, end: int, least_pages: int) -> bool:
    """Return whether a flush from ``begin`` to ``end`` covers at least ``least_pages`` pages. As in RocketMQ, the number of
    pages is the difference between the page numbers of the two positions."""
    return least_pages <= 0 or end // PAGE_BYTES - begin // PAGE_BYTES >= least_pages

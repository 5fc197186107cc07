"""Makes the commit log durable: commits records from the buffers of the transient pool, and syncs files.

See docs/internals/reliability.md, Disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from flintmq.core.errors import StoreError, StoreExhaustedError, StoreFencedError, is_exhausted
from flintmq.core.histogram import SECONDS, Histogram
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import FileWriter
from flintmq.core.log.mapped_file_queue import OS_PAGE_BYTES, MappedFile, MappedFileQueue
from flintmq.core.log.slow import SLOW_S, SlowLog
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log.watermarks import Watermarks
from flintmq.core.log_events import event_log

log = event_log("flintmq.store")


class Durability:
    """Commits and syncs the log, which moves the watermarks ``committed`` and ``flushed``.

    Called on the flush service's threads.

    Args:
        queue: the log's files.
        watermarks: the log's positions, and the fence, which a failed write or sync sets permanently.
        checkpoint: receives the store time up to which the log is synced.
        clock: measures writes and syncs, so that slow writes and syncs are logged.
        on_progress: called when ``committed`` or ``flushed`` has moved.
        on_fenced: called once, with the reason, after a failed write or sync.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        watermarks: Watermarks,
        checkpoint: StoreCheckpoint,
        clock: Clock,
        on_progress: Callable[[], None],
        on_fenced: Callable[[str], None],
    ) -> None:
        self._queue = queue
        self._watermarks = watermarks
        self._checkpoint = checkpoint
        self._clock = clock
        self._on_progress = on_progress
        self._on_fenced = on_fenced
        self._flush_lock = threading.Lock()
        self._commit_lock = threading.Lock()
        self.slow_flushes, self.slow_commits = SlowLog(clock), SlowLog(clock)
        self.sync_s = Histogram(SECONDS)
        """Histogram of the durations of syncs, in seconds."""
        self.commit_s = Histogram(SECONDS)
        """Histogram of the durations of commits, which copy bytes from the transient store pool to the log's files, in
        seconds."""

    def commit(self, least_pages: int, write: FileWriter | None = None) -> int:
        """Copy bytes of the transient pool into one file of the log, and return the committed position.

        See :meth:`flintmq.core.kernel.ports.FlushableLog.commit`.
        """
        if not self._queue.pooled:
            # Without a transient store pool, appends write to the file directly, and each append moves the committed position.
            return self._watermarks.committed
        with self._commit_lock:
            if write is not None and self._watermarks.fence_reason is not None:
                raise StoreFencedError(self._watermarks.fence_reason)
            for file in self._queue.files:
                is_waiting = file.wrote > file.committed
                pages = file.wrote // OS_PAGE_BYTES - file.committed // OS_PAGE_BYTES  # as MappedFile.isAbleToCommit
                if file.buffer is None:
                    file.committed = file.wrote
                elif is_waiting and (file.wrote == file.size or least_pages == 0 or pages >= least_pages):
                    self._commit_one(file, write)
                    break
                elif is_waiting:
                    break
            committed = self._contiguous_committed()
            if committed > self._watermarks.committed:
                self._watermarks.committed = committed
                if not self._watermarks.synchronous:  # In synchronous mode, only flush() makes records readable.
                    self._on_progress()
            return self._watermarks.committed

    def _commit_one(self, file: MappedFile, write: FileWriter | None) -> None:
        began_bytes, began_s = file.committed, self._clock.monotonic_s()
        try:
            self._queue.commit_one(write)
        except OSError as error:
            raise self._failed(file, "write", error) from error
        took_s = self._clock.monotonic_s() - began_s
        self.commit_s.add(took_s)
        if took_s > SLOW_S:
            self._tell_slow(self.slow_commits, "Commit data to file", took_s, file, began_bytes, file.committed)

    @staticmethod
    def _tell_slow(told: SlowLog, what: str, took_s: float, file: MappedFile, began_bytes: int, end_bytes: int) -> None:
        told.warn(
            took_s,
            f"{what} costs {took_s * 1000:.0f} ms: {end_bytes - began_bytes} bytes at {file.start + began_bytes}, "
            f"file {file.path}",
        )

    def _failed(self, file: MappedFile, what: str, error: OSError) -> StoreError:
        """Return the error for a failed write or sync of the log, and set the store's fence.

        The failure is final: the kernel may have dropped unwritten pages, and then a retry would succeed although data is lost.
        If file descriptors or memory ran out, no write was attempted. In this case, the fence is not set, and the operation can
        be retried.
        """
        if is_exhausted(error):
            return StoreExhaustedError(f"{file.path}: {what} not possible now: {error.strerror}")
        reason = f"{file.path}: {what} failed: {error.strerror}; restart the broker to recover"
        self._watermarks.fence_reason = reason
        log.critical("store.fenced", "%(reason)s", reason=reason)
        self._on_fenced(reason)
        return StoreFencedError(reason)

    def _contiguous_committed(self) -> int:
        committed = self._watermarks.committed
        for file in self._queue.files:
            committed = max(committed, file.start + file.readable)
            if file.readable < file.size:
                break
        return committed

    def flush(self, least_pages: int, *, written_through: bool = False) -> int:
        """Sync one file of the log; return the flushed position. See :meth:`flintmq.core.kernel.ports.FlushableLog.flush`."""
        with self._flush_lock:
            watermarks = self._watermarks
            if watermarks.fence_reason is not None:
                raise StoreFencedError(watermarks.fence_reason)
            file = self._queue.first_unflushed()
            if file is None:
                return watermarks.flushed
            end = file.readable
            pages = end // OS_PAGE_BYTES - file.flushed // OS_PAGE_BYTES
            if least_pages > 0 and pages < least_pages and end < file.size:
                return watermarks.flushed
            tail_offset, tail_timestamp_ms = watermarks.tail
            began_bytes, began_s = file.flushed, self._clock.monotonic_s()
            try:
                flushed = file.start + file.flush(written_through=written_through)
            except OSError as error:
                raise self._failed(file, "sync", error) from error
            took_s = self._clock.monotonic_s() - began_s
            self.sync_s.add(took_s)
            if took_s > SLOW_S:
                self._tell_slow(self.slow_flushes, "Flush data to disk", took_s, file, began_bytes, file.flushed)
            watermarks.flushed = max(watermarks.flushed, flushed)
            if flushed >= tail_offset:
                self._checkpoint.physic_msg_timestamp_ms = tail_timestamp_ms
            self._on_progress()
            return watermarks.flushed

"""The flush strategy ``direct_flush``: group commit over a log whose ``flush`` writes the pool's buffer to the disk.

Messages are appended to a buffer of the transient store pool, so the mapped pages of the log's file are never dirty. If these
pages were dirty, the kernel would write them before the direct write, and the same bytes would be written twice. A commit
writes the buffer's new bytes directly to the disk. They are durable when the commit returns. The later flush only makes the
name of a new file durable.
"""

from __future__ import annotations

import attrs

from flintmq import GroupCommit
from flintmq.core.kernel.ports import FileWriter, FlushableLog, FlushContext
from flintmq_direct_flush.writer import Mode, SyncedWriter


@attrs.frozen(kw_only=True)
class DirectFlushSection:
    """The section ``flush.direct_flush`` of the configuration."""

    mode: Mode = "direct"
    """Way of writing the log. ``direct`` writes past the page cache; ``dsync`` writes through the page cache, with a sync in
    each write."""
    sync_flush_timeout_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
    """Longest time in ms that a send's acknowledgment waits until the sent message is written."""
    interval_ms: int = attrs.field(default=10, validator=attrs.validators.ge(1))
    """Interval in ms between two writes of the log while no acknowledgment waits for a write."""
    pool_size: int = attrs.field(default=3, validator=attrs.validators.ge(2))
    """Number of buffers, each as large as a commit log file. Two buffers are in use while the log changes to its next file."""


class WriteThroughLog:
    """A wrapper of the commit log. Its :meth:`flush` first writes the new bytes of the log's buffer to the log's file, and then
    flushes the wrapped log. The bytes are written with the function ``write``, which returns when they are durable. The wrapper
    is as thread-safe as the wrapped log."""

    def __init__(self, log: FlushableLog, write: FileWriter) -> None:
        self._log = log
        self._write = write

    @property
    def wrote_offset_bytes(self) -> int:
        return self._log.wrote_offset_bytes

    @property
    def committed_offset_bytes(self) -> int:
        return self._log.committed_offset_bytes

    @property
    def flushed_offset_bytes(self) -> int:
        return self._log.flushed_offset_bytes

    def commit(self, least_pages: int, write: FileWriter | None = None) -> int:
        return self._log.commit(least_pages, write or self._write)

    def flush(self, least_pages: int, *, written_through: bool = True) -> int:
        self._log.commit(least_pages, self._write)
        return self._log.flush(least_pages, written_through=written_through)


class DirectFlush(GroupCommit):
    """Group commit with a direct write in place of the sync; an acknowledged message is on the disk."""

    def __init__(self, context: FlushContext[DirectFlushSection]) -> None:
        self.writer = SyncedWriter(context.settings.mode)
        super().__init__(attrs.evolve(context, log=WriteThroughLog(context.log, self.writer)))

    def finish(self) -> None:
        super().finish()
        self.writer.close()

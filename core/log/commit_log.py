"""The commit log: every message in the order of arrival, in files of one size.

The loop thread appends (:mod:`.appender`) and reads (:mod:`.log_reader`); the flush service's threads call
:meth:`CommitLog.commit` and :meth:`CommitLog.flush` (:mod:`.durability`).

See docs/internals/store-format.md, Commit log record; docs/internals/algorithms.md, Append.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import FileWriter, TagsCodes
from flintmq.core.log.appender import Appendable, Appended, Appender
from flintmq.core.log.durability import Durability
from flintmq.core.log.log_reader import LogReader
from flintmq.core.log.mapped_file_queue import MappedFileQueue
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log.watermarks import Watermarks


class CommitLog(LogReader):
    """The log: what can be read, with its end that is written and made durable.

    Args:
        queue: its files.
        watermarks: every position.
        checkpoint: what is known to be on disk.
        clock: time.
        tags_codes: by topic, what computes the tags code of a unit where that is not the hash of the tags.
        on_progress: called on the flush service's thread when committed or flushed has moved.
        on_fenced: called once, on the flush service's thread, with the reason, when a sync has failed.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        watermarks: Watermarks,
        checkpoint: StoreCheckpoint,
        clock: Clock,
        tags_codes: Mapping[str, TagsCodes] = MappingProxyType({}),
        *,
        on_progress: Callable[[], None] = lambda: None,
        on_fenced: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        super().__init__(queue, watermarks, tags_codes)
        self.appender = Appender(queue, watermarks, clock, tags_codes)
        """Writes at the end; knows the next offset of every queue."""
        self.durability = Durability(queue, watermarks, checkpoint, clock, on_progress, on_fenced)
        """Commits and syncs, for the flush service; knows which were slow."""

    @property
    def wrote_offset_bytes(self) -> int:
        """Where what was appended ends."""
        return self.watermarks.wrote

    @property
    def committed_offset_bytes(self) -> int:
        """Where what lies in the files' pages ends."""
        return self.watermarks.committed

    @property
    def flushed_offset_bytes(self) -> int:
        """Where what was synced ends."""
        return self.watermarks.flushed

    def append(self, messages: Sequence[Appendable]) -> list[Appended]:
        """Append messages in order; see :meth:`.Appender.append`. Loop thread only."""
        return self.appender.append(messages)

    def append_raw(self, physical_offset_bytes: int, data: bytes, store_timestamp_ms: int) -> None:
        """Append bytes of a master's log as they are; see :meth:`.Appender.append_raw`. Loop thread only."""
        self.appender.append_raw(physical_offset_bytes, data, store_timestamp_ms)

    def commit(self, least_pages: int, write: FileWriter | None = None) -> int:
        """See :class:`flintmq.core.kernel.ports.FlushableLog`."""
        return self.durability.commit(least_pages, write)

    def flush(self, least_pages: int, *, written_through: bool = False) -> int:
        """See :class:`flintmq.core.kernel.ports.FlushableLog`."""
        return self.durability.flush(least_pages, written_through=written_through)

    def set_tail(self, offset_bytes: int, store_timestamp_ms: int) -> None:
        """Note, after a recovery, where the log ends and when its last record was stored."""
        self.watermarks.tail = (offset_bytes, store_timestamp_ms)
        last = self.queue.last()
        if last is not None:
            # Another maker's file may be sparse, and a write into a hole of a full disk would end the process.
            last.grown = 0

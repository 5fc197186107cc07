"""Records the durable ends of an open store's files, at regular intervals and when the store stops.

See :mod:`flintmq.core.recovery.ends`.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from flintmq.core.errors import StoreError
from flintmq.core.log_events import event_log
from flintmq.core.recovery.ends import Ends, QueueEnd, Tail, notes_of_files
from flintmq.core.recovery.lost_parts import tail_of, tail_of_full

if TYPE_CHECKING:
    from flintmq.core.kernel.ports import QueueReader
    from flintmq.core.store.opened_store import OpenedStore

log = event_log("flintmq.store")


class EndsNoter:
    """Writes the ends of an open store's files to ``flint/ends``. The next recovery compares the files with these ends.

    Any thread; one write at a time.

    Args:
        opened: the recovered store.
    """

    def __init__(self, opened: OpenedStore) -> None:
        self._opened = opened
        self._file = opened.notes.ends
        self._writing = threading.Lock()
        is_mended = opened.recovered is not None and bool(opened.recovered.holes)
        noted = opened.notes.noted
        self._full: dict[int, Tail] = {}
        """Checksums of the last bytes of full files of the log, which no longer change, keyed by the physical offset of the
        file's start."""
        if noted is not None and not is_mended:
            self._full = {tail.start_offset_bytes: tail for tail in noted.tails}
        self._deleted: deque[tuple[str, int]] = deque()
        """Topic and queue id of deleted queues whose deletion is not written to ``flint/ends`` yet."""
        self._noted_end = -1

    def begin(self) -> None:
        """Write to ``flint/ends`` that the store is in use, with the current ends of its files. Raises StoreError, OSError."""
        opened, noted = self._opened, self._file.noted
        end = opened.watermarks.flushed
        is_same = (
            noted is not None
            and noted.is_stop
            and noted.log_end == end
            and noted.is_synchronous == opened.spec.strategy.synchronous
            and not self._file.damage
        )
        if is_same:
            self._file.note_use()
            self._noted_end = end
        else:
            self._write(self._capture(end))

    def after_round(self, *, is_thorough: bool) -> None:
        """Write the ends of the synced data to ``flint/ends``, after a round of the queue flusher.

        Called on the flusher's thread. The ends are written if the round synced everything, or if no ends were written before.
        A disk error is only logged, because the earlier ends stay valid.
        """
        end = self._opened.watermarks.flushed
        if end == self._noted_end or not (is_thorough or self._noted_end <= 0):
            return
        try:
            self._write(self._capture(end))
        except (OSError, StoreError) as error:
            log.warning(
                "store.ends_not_noted", "the ends of the store's files could not be recorded: %(error)s", error=error
            )

    def forget(self) -> None:
        """Delete the recorded ends of the log and the queues, before the log is truncated. Raises StoreError, OSError."""
        self._full.clear()
        noted = self._file.noted
        if noted is not None:
            self._write(replace(noted, is_stop=False, log_begin=0, log_end=0, tails=[], queues=[], index=[]))

    def note_deleted(self, topic: str, queue_id: int) -> None:
        """Write to ``flint/ends`` that a queue is deleted. If the write fails, the next start only rebuilds the queue."""
        self._deleted.append((topic, queue_id))
        self._noted_end = -1
        self._note_deleted()

    def _note_deleted(self) -> None:
        """Write the deletions of queues that are not recorded yet to ``flint/ends``.

        Does not block: if another thread is writing the file, that thread records the deletions.
        """
        while self._deleted and self._writing.acquire(blocking=False):
            try:
                while self._deleted:
                    self._file.note_deleted(*self._deleted.popleft())
            except OSError as error:
                log.warning(
                    "store.ends_not_noted",
                    "the ends of the store's files could not be recorded: %(error)s",
                    error=error,
                )
            finally:
                self._writing.release()

    def at_stop(self) -> Ends:
        """Return the ends of the store's files that a clean stop records.

        Called while the store's files are open and all data is durable.
        """
        return replace(self._capture(self._opened.watermarks.wrote), is_stop=True)

    def stopped(self, ends: Ends) -> None:
        """Write the record of a clean stop to ``flint/ends``. The record has the ends of the store's files, which
        :meth:`at_stop` returned earlier, and the sizes and checksums of the store's small files, such as configuration tables.

        Called after the store's last write.

        Raises:
            StoreError, OSError: the disk refused the write.
        """
        files, counters = notes_of_files(self._opened.disk, self._opened.root, whole=True)
        self._write(replace(ends, files=files, counters=counters))

    def _write(self, ends: Ends) -> None:
        with self._writing:
            self._file.write(ends)
            self._noted_end = ends.log_end
        self._note_deleted()

    def _capture(self, end_offset_bytes: int) -> Ends:
        opened = self._opened
        files, counters = notes_of_files(opened.disk, opened.root, whole=False)
        return Ends(
            log_begin=opened.commit_log.min_offset_bytes,
            log_end=end_offset_bytes,
            tails=self._tails(end_offset_bytes),
            queues=[
                QueueEnd(*key, queue.min_queue_offset, _end_below(queue, end_offset_bytes))
                for key, queue in sorted(opened.consume_queues.queues.items())
            ],
            index=[end for end in getattr(opened.index, "ends", ()) if end < end_offset_bytes],
            epochs=opened.epochs.epochs.to_bytes().decode("ascii"),
            files=files,
            counters=counters,
            is_synchronous=opened.spec.strategy.synchronous,
        )

    def _tails(self, end_offset_bytes: int) -> list[Tail]:
        tails = []
        for file in self._opened.commit_log.queue.files:
            # The event loop's thread may delete a file and close its map while this thread reads the file.
            with contextlib.suppress(ValueError):
                if file.start + file.size < end_offset_bytes:
                    tail = self._full.get(file.start)
                    if tail is None:
                        tail = self._full[file.start] = tail_of_full(file)
                    tails.append(tail)
                elif file.start < end_offset_bytes:
                    tails.append(tail_of(file, end_offset_bytes - file.start))
        return tails


def _end_below(queue: QueueReader, end_offset_bytes: int) -> int:
    """Return the queue offset just past the queue's last message that lies before a physical offset of the log."""
    if queue.max_physical_offset_bytes <= end_offset_bytes:
        return queue.max_queue_offset
    return queue.first_from(lambda physical: physical < end_offset_bytes)

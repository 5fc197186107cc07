"""The recorded state of a store. A start uses it to detect lost files, until all queues have caught up with the log."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec

from flintmq.core.io.disk import Disk
from flintmq.core.kernel.ports import ConsumeQueues, IndexBuilder
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log_events import event_log
from flintmq.core.recovery.ends import Ends, EndsFile, QueueEnd
from flintmq.core.recovery.last_stop import LastStop, StoreMarks, is_same_boot
from flintmq.core.recovery.lost_parts import build_again, drop_lost_index, gone_topics, lost_queues, restore_epochs
from flintmq.core.recovery.small_files import changed_files

log = event_log("flintmq.store")


class Notes(msgspec.Struct, frozen=True, eq=False):
    """The recorded ends of a store's files, and the losses that a start has found by comparing the files with these ends."""

    disk: Disk
    root: Path
    """Path of the store's folder."""
    ends: EndsFile
    """File with the recorded ends of the store's files."""
    noted: Ends | None
    """Ends of the store's files that were recorded before this start; None if no ends were recorded."""
    changed: tuple[str, ...]
    """Names of small files of the store, such as tables, that differ from their recorded size or checksum."""
    mended: list[str]
    """Descriptions of parts of the store that this start found damaged or lost. The start rebuilt these parts, or continued
    without them."""
    lost: list[QueueEnd]
    """Consume queues that had lost units when the store was opened, each with the queue's end as recorded in the file
    ``flint/ends``. The queues are compared with the recorded ends before any record is dispatched, because dispatch adds units
    to the queues."""

    @classmethod
    def read(cls, disk: Disk, root: Path) -> Self:
        """Read the recorded state of a store that is about to be opened. Raises OSError if the state cannot be read."""
        ends = EndsFile(disk, root)
        notes = cls(disk, root, ends, ends.noted, changed_files(disk, root, ends.noted), [], [])
        if ends.damage:
            log.warning(
                "store.ends_unreadable",
                "%(path)s cannot be read, so lost files cannot be detected: %(error)s",
                path=ends.path,
                error=ends.damage,
            )
            notes.mended.append("flint/ends")
        return notes

    def last_stop(self, marks: StoreMarks) -> LastStop:
        """Return how the last broker on the store ended: with a clean stop, a kill of the process, or a crash of the machine.

        If the stop was not clean, the store's folder is also synced, so that the names of its files are durable.

        A missing ``abort`` file does not mean a clean stop if the recorded state says that the store was in use.

        Raises:
            OSError: the disk refused an operation.
        """
        last_stop = marks.last_stop()
        if last_stop is LastStop.CLEAN and self.noted is not None and self.ends.was_in_use:
            log.warning(
                "store.abort_missing",
                "%(path)s is missing, although the last broker did not stop cleanly: a recovery begins",
                path=marks.abort_file,
            )
            last_stop = LastStop.KILLED if is_same_boot(self.disk, self.root) else LastStop.CRASHED
        if last_stop is not LastStop.CLEAN:
            self.disk.sync_folder(self.root)
        return last_stop

    def restore_epochs(self) -> None:
        """Restore the file ``flint/epochs`` if it is lost or damaged.

        Raises StoreError or OSError if the disk refuses the write.
        """
        if restore_epochs(self.disk, self.root, self.noted):
            self.mended.append("flint/epochs")

    def look_at(self, queues: ConsumeQueues, index: IndexBuilder | None, min_offset_bytes: int, stop: LastStop) -> None:
        """Find the queues that have lost units, and delete an index that has lost entries, before any dispatch.

        Args:
            queues: the store's queues.
            index: the store's index; None if no dispatcher feeds the index. The index is then kept, because nothing would
                rebuild it.
            min_offset_bytes: the physical start of the log.
            stop: how the last broker ended.
        """
        if self.noted is None:
            return
        self.lost.extend(lost_queues(queues, self.noted, is_same_log=False))
        is_clean = stop is LastStop.CLEAN
        if index is not None and drop_lost_index(index, self.noted, min_offset_bytes, was_stopped=is_clean):
            self.mended.append("index")

    def build_lost_queues(
        self, queues: ConsumeQueues, commit_log: CommitLog, dispatched: tuple[int, int], *, goes_on: bool
    ) -> None:
        """Rebuild the queues that have lost recorded units, after all queues have caught up with the log.

        Args:
            queues: the store's queues.
            commit_log: the recovered log.
            dispatched: the physical start and end of the records that were dispatched at this start.
            goes_on: whether a queue gets filler units for its last messages if the log lacks these messages. New messages then
                get the queue offsets after the recorded end of the queue.

        Raises:
            StoreError: a record cannot be read, or the disk refused an operation.
        """
        noted = self.noted
        if noted is None:
            return
        is_same_log = noted.log_begin == commit_log.min_offset_bytes and not noted.is_accepted
        found = {*self.lost, *lost_queues(queues, noted, is_same_log=is_same_log)}
        gone = gone_topics(self.disk, self.root, noted) if found else frozenset()
        lost = sorted((end for end in found if end.topic not in gone), key=lambda end: (end.topic, end.queue_id))
        if lost:
            self.mended.append(f"{len(lost)} queues")
            begin, end_offset_bytes = dispatched
            is_caught_up = begin <= commit_log.min_offset_bytes
            build_again(queues, commit_log, lost, end_offset_bytes, is_caught_up=is_caught_up, goes_on=goes_on)

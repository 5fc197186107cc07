"""What a start makes of the notes on a store: it keeps them from before anything is opened to where all has caught up."""

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
    """What was noted of a store, and what a start has found missing."""

    disk: Disk
    root: Path
    """The store's folder."""
    ends: EndsFile
    """Where it is noted how far the files went."""
    noted: Ends | None
    """What was noted before this start; None where nothing was."""
    changed: tuple[str, ...]
    """Small files that are not as they were noted."""
    mended: list[str]
    """What this start has found damaged, or lost, and made again or gone on without."""
    lost: list[QueueEnd]
    """Queues that had lost something that was noted of them, before anything was dispatched to them again."""

    @classmethod
    def read(cls, disk: Disk, root: Path) -> Self:
        """Return the notes of a store that is about to be opened. Raises OSError."""
        ends = EndsFile(disk, root)
        notes = cls(disk, root, ends, ends.noted, changed_files(disk, root, ends.noted), [], [])
        if ends.damage:
            log.warning(
                "store.ends_unreadable",
                "%(path)s cannot be read, so that nothing contradicts files that were lost: %(error)s",
                path=ends.path,
                error=ends.damage,
            )
            notes.mended.append("flint/ends")
        return notes

    def last_stop(self, marks: StoreMarks) -> LastStop:
        """Return how the store was left, with its names made durable after a crash.

        No ``abort`` file does not mean a stop where it was noted that the store is in use.

        Raises:
            OSError: the disk refused.
        """
        last_stop = marks.last_stop()
        if last_stop is LastStop.CLEAN and self.noted is not None and self.ends.was_in_use:
            log.warning(
                "store.abort_missing",
                "%(path)s is missing, although the last broker did not stop in order: a recovery begins",
                path=marks.abort_file,
            )
            last_stop = LastStop.KILLED if is_same_boot(self.disk, self.root) else LastStop.CRASHED
        if last_stop is not LastStop.CLEAN:
            self.disk.sync_folder(self.root)
        return last_stop

    def restore_epochs(self) -> None:
        """Put the epochs back where they are lost. Raises StoreError, OSError."""
        if restore_epochs(self.disk, self.root, self.noted):
            self.mended.append("flint/epochs")

    def look_at(self, queues: ConsumeQueues, index: IndexBuilder | None, min_offset_bytes: int, stop: LastStop) -> None:
        """Take note of queues that have lost something, and delete an index that has; as they were found.

        Args:
            queues: those of the store.
            index: None where it is not fed, and so cannot be made again.
            min_offset_bytes: where the log begins.
            stop: how the store was left.
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
        """Make queues again that have lost something that was noted of them, once all have caught up with the log.

        Args:
            queues: those of the store.
            commit_log: recovered.
            dispatched: the positions between which queues have caught up.
            goes_on: whether they go on behind messages that the log does not have.

        Raises:
            StoreError: a record cannot be read, or the disk refused something.
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

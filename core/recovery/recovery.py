"""Carries out the recovery plan of a start, step by step.

See docs/internals/algorithms.md, Clean recovery and Abnormal recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from flintmq.core.io.disk import Disk
from flintmq.core.kernel.ports import ConsumeQueues, IndexBuilder, SupportsTruncate
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.epochs import RECOVERED, EpochFile
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log_events import event_log
from flintmq.core.recovery.last_stop import LastStop
from flintmq.core.recovery.plan import RecoveryPlan, is_described, trusted_before
from flintmq.core.recovery.repair import data_behind, repair
from flintmq.core.recovery.start_walk import Cut, Recovered

log = event_log("flintmq.store")


class Recovery(msgspec.Struct, frozen=True):
    """The parts of a store that a recovery changes; :meth:`run` carries out a recovery plan on them."""

    disk: Disk
    quarantine: Path
    """The folder that keeps the bytes removed from the log."""
    commit_log: CommitLog
    queues: ConsumeQueues
    index: IndexBuilder
    checkpoint: StoreCheckpoint
    epochs: EpochFile
    mark_in_use: Callable[[], None]
    """Function called before bytes of the log change; it creates the ``abort`` file if the store has none."""

    def run(self, plan: RecoveryPlan) -> Recovered | None:
        """Carry out a recovery plan that was computed for the current state of the store.

        Returns:
            The findings of the scan, with the paths of the copies of the removed bytes; None without a log.

        Raises:
            OSError: the disk refused an operation. A later start continues from the state on disk.
            StoreError: the disk refused an operation; StoreFullError if the disk is full.
        """
        walked = plan.walked
        if walked is None:
            self._forget_log(plan)
            return None
        end = walked.end_offset_bytes
        # Pass 1: mark the store as in use, so that the next start notices a crash during the recovery.
        if plan.changes_log:
            self.mark_in_use()
        # A new epoch shows slaves that the log's end may have changed.
        if plan.begins_epoch:
            self.epochs.begin(end, RECOVERED, self.commit_log.min_offset_bytes)
        # Pass 2: remove the index entries of lost records, remove damage from the log, set its end, and make the log durable.
        # If the log were repaired before the index, a restart after a crash could not find the index entries of lost records.
        self._truncate_index(walked.unchanged_to_offset_bytes)
        found = repair(self.disk, self.quarantine, self.commit_log, walked)
        self._end_log(found)
        if plan.rewritten_from_offset_bytes is not None:
            _write_again(self.commit_log, plan.rewritten_from_offset_bytes, end)
        if plan.last_stop is not LastStop.CLEAN:
            for file in self.commit_log.queue.files:
                # The writes of a killed process are in the files, but may not be durable, so the files are synced.
                if file.start >= plan.walked_from_offset_bytes:
                    file.region.sync()
        # Pass 3: rewind the checkpoint to a time before the queues' invalid units, and then remove the invalid units.
        if plan.rewinds_checkpoint_to_ms is not None:
            self.checkpoint.rewind(plan.rewinds_checkpoint_to_ms)
        self._end_queues(plan)
        if plan.last_stop is not LastStop.CLEAN:
            log.warning(
                "store.recovered",
                "recovered after %(after)s: %(records)d records scanned, dispatch continues at position "
                "%(dispatched_position)d, log ends at %(end_position)d",
                after="the process was killed" if plan.last_stop is LastStop.KILLED else "an unclean stop",
                records=found.records,
                dispatched_position=plan.dispatched_from_offset_bytes,
                end_position=end,
            )
        return found

    def cut_back(self, end_offset_bytes: int) -> Path | None:
        """Truncate the log of a running slave, because the master does not have the log's last records.

        Returns:
            The file in the quarantine that keeps the removed bytes; None if no bytes were removed.

        Raises:
            OSError, StoreError: as :meth:`run`.
        """
        commit_log, files = self.commit_log, self.commit_log.queue.files
        trusted_ms = trusted_before(files, (), end_offset_bytes)
        cut = None
        if data_behind(files, end_offset_bytes):
            cut = Cut(
                end_offset_bytes, "the master's log does not have it", damaged=False, stale=False, quarantine=None
            )
        walked = Recovered(end_offset_bytes, end_offset_bytes, trusted_ms, 0, 0, cut)
        found = repair(self.disk, self.quarantine, commit_log, walked)
        self._end_log(found)
        self.checkpoint.rewind(trusted_ms)
        self.queues.truncate(end_offset_bytes)
        self._truncate_index(end_offset_bytes)
        return found.cut.quarantine if found.cut is not None else None

    def _forget_log(self, plan: RecoveryPlan) -> None:
        """Empty the queues and the index, because the log has been removed."""
        if plan.begins_epoch:
            self.epochs.begin(0, RECOVERED)
        for topic, queue_id in list(self.queues.queues):
            self.queues.delete_queue(topic, queue_id)
        self._truncate_index(0)

    def _truncate_index(self, end_offset_bytes: int) -> None:
        if isinstance(self.index, SupportsTruncate):
            self.index.truncate(end_offset_bytes)

    def _end_log(self, found: Recovered) -> None:
        end = found.end_offset_bytes
        self.commit_log.queue.truncate(end)
        self.commit_log.watermarks.set_all(end)
        self.commit_log.set_tail(end, found.store_timestamp_ms)

    def _end_queues(self, plan: RecoveryPlan) -> None:
        queues = self.queues
        queues.truncate(plan.dispatched_from_offset_bytes)
        if plan.last_stop is not LastStop.CLEAN:
            drop_torn_units(self.commit_log, queues)
        queues.correct_min_offsets(self.commit_log.min_offset_bytes)


def drop_torn_units(commit_log: CommitLog, queues: ConsumeQueues) -> None:
    """Remove units at the ends of queues that refer to no message of their queue.

    A crash during a write can leave such units.
    """
    for queue in queues.queues.values():
        end = queue.max_queue_offset
        while end > queue.min_queue_offset and not is_described(commit_log, queue, end - 1):
            end -= 1
        queue.cut(end)


def _write_again(commit_log: CommitLog, begin_offset_bytes: int, end_offset_bytes: int) -> None:
    """Rewrite a range of the log in place, so that the next sync writes the range to the disk.

    After a failed sync the range may exist only in memory, in pages that the kernel marks clean. Raises OSError, StoreError.
    """
    for file in commit_log.queue.files:
        end = min(file.size, end_offset_bytes - file.start)
        start = max(0, begin_offset_bytes - file.start)
        if start < end:
            file.grow(end)
            file.region.rewrite(start, end)

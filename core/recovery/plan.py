"""Computes the recovery plan of a start from the files on disk: the steps for the store's log, queues and index.

Planning only reads. :class:`~flintmq.core.recovery.recovery.Recovery` carries out a plan, and ``flintmq store explain``
prints it.

See docs/internals/algorithms.md, Clean recovery and Abnormal recovery.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from flintmq.core.kernel.ports import (
    ConsumeQueues,
    IndexBuilder,
    QueueReader,
    SupportsCommitted,
    SupportsCommittedBelow,
)
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.mapped_file_queue import MappedFile
from flintmq.core.record import record as rec
from flintmq.core.record.queue_unit import is_filler
from flintmq.core.recovery.ends import Ends
from flintmq.core.recovery.last_stop import LastStop
from flintmq.core.recovery.lost_parts import check_log, first_doubtful
from flintmq.core.recovery.missing_log import check_end
from flintmq.core.recovery.repair import data_behind
from flintmq.core.recovery.start_walk import Hole, Recovered, walk_log

_RECOVER_FILES: Final = 3
_ANY_END: Final = 2**63 - 1


class FoundStore(msgspec.Struct, frozen=True):
    """The state of a store on disk, which is the input of :func:`plan_start`."""

    last_stop: LastStop
    commit_log: CommitLog
    """The log, whose files are mapped into memory."""
    queues: ConsumeQueues
    """The loaded consume queues; each queue ends after its last valid unit."""
    index: IndexBuilder | None
    """The loaded index, without the index files that a crash may have left incomplete, because loading deletes these files.
    None if no dispatcher feeds the index."""
    trusted_ms: int
    """The store time up to which the checkpoint covers log and queues, in ms since 1970."""
    epoch_start_offset_bytes: int
    """Physical offset of the start of the current epoch."""
    check_crc: bool
    """Whether the scan of the log compares the bodies of records with their CRCs."""
    is_safe: bool
    """Whether the setting ``store.compat`` is ``safe``.

    With ``safe``, the log continues after damage if valid records follow, and a missing log is an error. With any other value,
    the log ends at the damage, and the queues of a missing log are deleted, as in RocketMQ.
    """
    noted: Ends | None = None
    """Ends of the store's files that were recorded before this start; None if no ends were recorded."""


class RecoveryPlan(msgspec.Struct, frozen=True):
    """A recovery plan: the steps that a start will take with a store. Positions are physical offsets in bytes."""

    last_stop: LastStop
    walked_from_offset_bytes: int
    """Physical start offset of the first log file that the scan reads."""
    because: str
    """The reason why the scan of the log begins at :attr:`walked_from_offset_bytes`."""
    walked: Recovered | None
    """Result of the scan of the log: the log's end, the bytes to remove after the end, and the damaged parts before the end;
    None if the store has no log."""
    described_to_offset_bytes: int
    """Physical offset at which the newest message in any consume queue ends; -1 if the consume queues have no message."""
    begins_epoch: bool
    """Whether a new epoch begins at the log's end, because the log has lost records there that may have been read."""
    rewritten_from_offset_bytes: int | None
    """Physical offset from which the log is written to disk again, because a sync of these bytes may have failed; None if
    nothing is written again."""
    rewinds_checkpoint_to_ms: int | None
    """Store time to which the checkpoint is set back before units of consume queues are removed; None if the checkpoint does
    not change."""
    dispatched_from_offset_bytes: int
    """Physical offset up to which the consume queues describe the log after the recovery. Records from this offset on are
    dispatched to all dispatchers."""
    indexed_from_offset_bytes: int | None
    """Physical offset of the first record before :attr:`dispatched_from_offset_bytes` that the index lacks; None if the index
    lacks no such record."""

    @property
    def changes_log(self) -> bool:
        """Whether the plan removes or replaces bytes of the log."""
        return self.walked is not None and (self.walked.cut is not None or bool(self.walked.holes))


def plan_start(found: FoundStore) -> RecoveryPlan:
    """Return the steps that a start will take with a store. The store is not changed. The log's last files are read once.

    Raises:
        StoreFormatError: files of the log are missing, and a crash cannot be the cause.
    """
    if not found.commit_log.queue.files:
        if found.is_safe:
            _check_end(found, 0, 0, _described_end(found.queues))
            _check_noted(found, 0, is_changed=False)
        return RecoveryPlan(
            found.last_stop,
            walked_from_offset_bytes=0,
            because="there is no log: the queues are deleted",
            walked=None,
            described_to_offset_bytes=-1,
            begins_epoch=found.epoch_start_offset_bytes > 0,
            rewritten_from_offset_bytes=None,
            rewinds_checkpoint_to_ms=None,
            dispatched_from_offset_bytes=0,
            indexed_from_offset_bytes=None,
        )
    return _Planner(found).plan()


def _check_end(found: FoundStore, newest_ms: int, files_end_offset_bytes: int, described_to_offset_bytes: int) -> None:
    check_end(
        found.last_stop, found.trusted_ms, newest_ms, found.noted, files_end_offset_bytes, described_to_offset_bytes
    )


def _check_noted(found: FoundStore, end_offset_bytes: int, *, is_changed: bool) -> None:
    """Raise if a log has lost recorded data, unless the operator has moved the queues away so that the start rebuilds them."""
    if found.noted is not None and (found.queues.queues or not found.noted.queues):
        check_log(found.noted, found.commit_log.queue.files, end_offset_bytes, is_changed=is_changed)


class _Planner:
    def __init__(self, found: FoundStore) -> None:
        self._found = found
        self._log = found.commit_log
        self._files = found.commit_log.queue.files
        self._clean = found.last_stop is LastStop.CLEAN

    def plan(self) -> RecoveryPlan:
        found = self._found
        # Pass 1: scan the log from the chosen file, or from an older file if consume queues or the index lack older records.
        first, because, walked = self._walk()
        end, described_to = walked.end_offset_bytes, _described_end(found.queues)
        if found.is_safe:
            files_end = self._files[-1].start + self._files[-1].size
            _check_end(found, walked.newest_ms, files_end, described_to)
            _check_noted(found, end, is_changed=walked.cut is not None or bool(walked.holes))
        # Pass 2: remove bytes after the log's end only if some of the bytes are not zero.
        if walked.cut is not None and not data_behind(self._files, end):
            walked = msgspec.structs.replace(walked, cut=None)
        # Pass 3: find the positions in the log from which the consume queues and the index are written again.
        start = self._clean_dispatch_start(walked) if self._clean else self._crashed_dispatch_start(walked)
        rewinds_to_ms = self._rewinds_to_ms(walked, start)
        start = max(start, self._log.min_offset_bytes)
        return RecoveryPlan(
            found.last_stop,
            self._files[first].start,
            because,
            walked,
            described_to,
            begins_epoch=found.last_stop is LastStop.CRASHED
            or (found.noted is not None and found.noted.is_accepted)
            or end < found.epoch_start_offset_bytes
            or walked.cut is not None,
            rewritten_from_offset_bytes=_not_vouched_from(walked) if found.last_stop is LastStop.CRASHED else None,
            rewinds_checkpoint_to_ms=rewinds_to_ms,
            dispatched_from_offset_bytes=start,
            indexed_from_offset_bytes=self._indexed_from(walked, start),
        )

    # --- the scan of the log ---

    def _walk(self) -> tuple[int, str, Recovered]:
        """Return the index of the log's first scanned file, the reason for this choice, and the findings of the scan.

        All records that are read to rewrite queues or index must have been scanned, so that damage in them is repaired first.
        Otherwise the start would fail at the damage. The end of the index is known only when the log's end is known, so the
        scan may be repeated.
        """
        found, queue = self._found, self._log.queue
        first, because = self._first_file()
        counted = None if self._clean else first
        needed_from, what = self._files[first].start, "index is"
        if self._clean:
            needed_from, what = _described_end(found.queues), "queues are"
        elif (lacks_from := _indexed_below(found.index, _ANY_END)) is not None:
            needed_from = lacks_from
        doubtful = first_doubtful(self._files, found.noted) if found.is_safe else None
        if doubtful is not None and doubtful < first:
            first, because = doubtful, f"the start or end of {self._files[doubtful].path.name} is not as recorded"
        while True:
            needed = max(0, (needed_from - queue.min_offset_bytes) // queue.file_bytes)
            if needed < first:
                first, because = (
                    needed,
                    f"the {what} rebuilt from position {needed_from}, and the scan includes that part",
                )
            walked = walk_log(
                self._log,
                first,
                counted,
                check_crc=found.check_crc,
                skips_damage=found.is_safe,
                trusted_ms=None if self._clean else found.trusted_ms,
            )
            lacks_from = _indexed_below(found.index, walked.unchanged_to_offset_bytes)
            if lacks_from is None or lacks_from >= self._files[first].start or not first:
                return first, because, walked
            needed_from, what = lacks_from, "index is"

    def _first_file(self) -> tuple[int, str]:
        """Return the index of the log's file with which the scan begins, and the reason for this choice.

        After a crash, the scan begins with the last file whose first record was stored at or before a time that the checkpoint
        covers. An incompletely written first record is skipped. If the crashed broker has recorded the synced end of the log,
        the scan begins no later than at that end, because newer records can have older times if the clock was set back.
        """
        files, trusted_ms, noted = self._files, self._found.trusted_ms, self._found.noted
        if self._clean:
            return max(0, len(files) - _RECOVER_FILES), "after a clean stop, the last three files are scanned"
        last = len(files) - 1
        if self._found.is_safe and noted is not None and noted.log_end and not noted.is_stop:
            last = min(last, max(0, noted.log_end - files[0].start) // self._log.queue.file_bytes)
        for index in range(last, 0, -1):
            try:
                record = rec.decode_record(files[index].view)
            except rec.RecordError:
                continue
            if record.commit_log_offset_bytes == files[index].start and 0 < record.store_timestamp_ms <= trusted_ms:
                return (
                    index,
                    f"it is the last file that begins within the time that the checkpoint covers ({trusted_ms})",
                )
        return 0, f"no later file begins within the time that the checkpoint covers ({trusted_ms})"

    # --- dispatch ---

    def _clean_dispatch_start(self, walked: Recovered) -> int:
        """Return the physical offset from which a start adds the log's records to the queues again after a clean stop.

        If the log has damaged parts, this is the first of them. Otherwise it is the end of the last message that is in a queue.
        """
        if walked.holes:
            return walked.unchanged_to_offset_bytes
        return _described_below(self._found.queues, walked.end_offset_bytes)

    def _crashed_dispatch_start(self, walked: Recovered) -> int:
        """Return the log position from which queues are rewritten after a crash. Queue units of earlier records are valid.

        Queues are written in batches, in log order. If only the process was killed, all batches but the last are complete.
        After a power failure, the batches that the checkpoint covers are complete. The queues are checked in both cases. If a
        queue has lost units, or its topic was deleted, the position is the beginning of the log file with which recovery began
        to scan and count records, as in RocketMQ.
        """
        queues, start = self._found.queues, walked.start_offset_bytes
        if walked.holes:
            return min(start, walked.unchanged_to_offset_bytes)
        candidates: list[tuple[int, int]] = []
        if not walked.clock_went_back:
            candidates.append(walked.vouched)
        if self._found.last_stop is LastStop.KILLED:
            described = _described_end(queues)
            candidates += [mark for mark in walked.marks if mark[0] < described][-2:-1]
        for position, queued in sorted(candidates, reverse=True):
            if count_between(queues, start, position) == queued and is_whole(self._log, queues, position):
                return position
        return start

    def _rewinds_to_ms(self, walked: Recovered, start: int) -> int | None:
        """Return the store time to which the checkpoint is set back; None if it covers no queue unit that will be removed."""
        if bool(walked.holes) if self._clean else start < walked.vouched[0]:
            return trusted_before(self._files, walked.holes, start)
        return None

    def _indexed_from(self, walked: Recovered, start: int) -> int | None:
        """Return the physical offset of the first record before ``start`` that is missing in the index; None if the index has
        all records before ``start``.
        """
        lacks_from = _indexed_below(self._found.index, walked.unchanged_to_offset_bytes)
        if lacks_from is None:
            return None
        lacks_from = max(lacks_from, self._log.min_offset_bytes)
        return lacks_from if lacks_from < start else None


def is_whole(commit_log: CommitLog, queues: ConsumeQueues, position: int) -> bool:
    """Return whether the consume queues match the commit log up to the physical offset ``position``.

    In each queue, only the last unit whose message lies before ``position`` is checked. The unit's message must be in the log
    and belong to the queue. The unit of a deleted message, or a filler unit, which stands for no message, also passes the
    check.
    """
    for queue in queues.queues.values():
        last = queue.first_from(lambda physical: physical < position) - 1
        if last >= queue.min_queue_offset and not is_described(commit_log, queue, last):
            return False
    return True


def is_described(commit_log: CommitLog, queue: QueueReader, queue_offset: int) -> bool:
    """Return whether the message of a queue unit exists; also true if the message is deleted, or the unit is a filler."""
    unit = queue.unit(queue_offset)
    if unit is None:
        return True
    physical, size, _tags = unit
    if physical < commit_log.min_offset_bytes or is_filler(unit):
        return True
    file = commit_log.queue.find(physical)
    if file is None:
        return False
    try:
        request = commit_log.request_at(file, physical - file.start)
    except rec.RecordError:
        return False
    return (request.topic, request.queue_id, request.message_size_bytes) == (queue.topic, queue.queue_id, size)


def count_between(queues: ConsumeQueues, begin_offset_bytes: int, end_offset_bytes: int) -> int:
    """Return the number of units in all consume queues from the first message at or after ``begin_offset_bytes`` to the last
    message before ``end_offset_bytes``.

    Filler units, which stand for no message, are counted if they lie between the units of such messages.
    """
    return sum(
        queue.first_from(lambda physical: physical < end_offset_bytes)
        - queue.first_from(lambda physical: physical < begin_offset_bytes)
        for queue in queues.queues.values()
    )


def _described_end(queues: ConsumeQueues) -> int:
    """Return the physical end of the newest message in any queue; -1 if all queues are empty."""
    return max((queue.max_physical_offset_bytes for queue in queues.queues.values()), default=-1)


def _described_below(queues: ConsumeQueues, end_offset_bytes: int) -> int:
    """Return the largest physical offset at which a message with a unit in a consume queue ends, up to ``end_offset_bytes``.

    Messages that end after ``end_offset_bytes`` are ignored. If no message is left, -1 is returned.
    """
    return max((_last_end_below(queue, end_offset_bytes) for queue in queues.queues.values()), default=-1)


def _last_end_below(queue: QueueReader, end_offset_bytes: int) -> int:
    """Return the physical end of a queue's last message that ends before or at ``end_offset_bytes``; -1 if no message does."""
    if queue.max_physical_offset_bytes <= end_offset_bytes:
        return queue.max_physical_offset_bytes
    queue_offset = queue.max_queue_offset - 1
    while (unit := queue.unit(queue_offset)) is not None:
        if not is_filler(unit) and unit[0] + unit[1] <= end_offset_bytes:
            return unit[0] + unit[1]
        queue_offset -= 1
    return -1


def _indexed_below(index: object, end_offset_bytes: int) -> int | None:
    """Return the position from which the index of a log that ends at ``end_offset_bytes`` lacks entries; None if no entry is
    missing.
    """
    committed: int | None = None
    if isinstance(index, SupportsCommittedBelow):
        committed = index.committed_below(end_offset_bytes)
    elif isinstance(index, SupportsCommitted):
        committed = index.committed()
    return None if committed is None else min(committed, end_offset_bytes)


def _not_vouched_from(walked: Recovered) -> int:
    """Return the first physical offset of the log that the checkpoint does not cover."""
    begin = walked.start_offset_bytes if walked.clock_went_back or walked.holes else walked.end_offset_bytes
    return begin if walked.newer is None else min(begin, walked.newer[0])


def trusted_before(files: Sequence[MappedFile], holes: tuple[Hole, ...], position: int) -> int:
    """Return a store time to which the checkpoint can be set back; 0 if none is found. All records from the physical offset
    ``position`` on have later store times, so the checkpoint no longer covers them.

    The result is the store time of the first record of a log file that begins before ``position``. It is the newest such file
    whose first record is older than the first record of the next file. The newest file is used so that the next recovery reads
    few files.
    """
    times = [_first_ms(file, holes) for file in files if file.start <= position]
    for at in range(len(times) - 2, -1, -1):
        if 0 < times[at] < times[at + 1]:
            return times[at]
    return 0


def _first_ms(file: MappedFile, holes: tuple[Hole, ...]) -> int:
    """Return the store time that the first record of a commit log file will have after the damage in the log is replaced.

    Return 0 if the file will begin with a blank instead of a record.
    """
    for hole in holes:
        if hole.start_offset_bytes <= file.start < hole.end_offset_bytes:
            return hole.store_timestamp_ms if hole.end_offset_bytes < file.start + file.size else 0
    magic = rec.SIZE_AND_MAGIC.unpack_from(file.view, 0)[1]
    return rec.store_timestamp_at(file.view, 0) if magic in (rec.MAGIC_V1, rec.MAGIC_V2) else 0

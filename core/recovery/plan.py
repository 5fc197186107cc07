"""The plan of a start: what a start will do with a store's log, queues and index, computed from what lies on disk.

Planning reads and changes nothing. :class:`~flintmq.core.recovery.recovery.Recovery` carries a plan out, and
``flintmq store explain`` prints it.

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
    """What a start finds on disk: the input of :func:`plan_start`."""

    last_stop: LastStop
    commit_log: CommitLog
    """With its files mapped."""
    queues: ConsumeQueues
    """Loaded, each one ended where its valid units end."""
    index: IndexBuilder | None
    """Loaded, with what can be trusted; None where none is fed."""
    trusted_ms: int
    """The store time up to which the checkpoint vouches for log and queues."""
    epoch_start_offset_bytes: int
    """Where the current epoch begins."""
    check_crc: bool
    """Whether the walk compares bodies with their CRC."""
    is_safe: bool
    """``store.compat: safe``: the log continues behind damage where valid records follow, and one that is missing is refused.
    RocketMQ ends the log there, and deletes the queues."""
    noted: Ends | None = None
    """What was noted of the store before this start; None where nothing was."""


class RecoveryPlan(msgspec.Struct, frozen=True):
    """What a start will do. Positions are physical offsets in bytes."""

    last_stop: LastStop
    walked_from_offset_bytes: int
    """Start of the file with which the walk over the log begins."""
    because: str
    """Why the walk begins there."""
    walked: Recovered | None
    """What the walk found: the log's end, the cut and the holes; None without a log."""
    described_to_offset_bytes: int
    """End of the newest message that a consume queue describes; -1 without any."""
    begins_epoch: bool
    """Whether an epoch begins at the log's end, because something that may have been read is missing there."""
    rewritten_from_offset_bytes: int | None
    """From where on the log is written to disk once more, because a sync of it may have failed; None for nothing."""
    rewinds_checkpoint_to_ms: int | None
    """The store time to which the checkpoint is set back before queue units are cut; None where it stays."""
    dispatched_from_offset_bytes: int
    """Where consume queues end after the recovery, and dispatch to all dispatchers begins."""
    indexed_from_offset_bytes: int | None
    """From where on the index lacks entries of records that are not dispatched; None where it lacks none."""

    @property
    def changes_log(self) -> bool:
        """Whether bytes of the log are cut or replaced."""
        return self.walked is not None and (self.walked.cut is not None or bool(self.walked.holes))


def plan_start(found: FoundStore) -> RecoveryPlan:
    """Return what a start will do with the store that was found. Changes nothing; reads the log's last files once.

    Raises:
        StoreFormatError: files of the log are missing that no crash can have taken.
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
    """Refuse a log that has lost what was noted of it, unless the operator has moved the queues away: they are made again."""
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
        # Pass 1: choose the first file, walk from it, and begin earlier where queues or index lack records before it.
        first, because, walked = self._walk()
        end, described_to = walked.end_offset_bytes, _described_end(found.queues)
        if found.is_safe:
            files_end = self._files[-1].start + self._files[-1].size
            _check_end(found, walked.newest_ms, files_end, described_to)
            _check_noted(found, end, is_changed=walked.cut is not None or bool(walked.holes))
        # Pass 2: bytes behind the end are cut only where some of them are not zero.
        if walked.cut is not None and not data_behind(self._files, end):
            walked = msgspec.structs.replace(walked, cut=None)
        # Pass 3: the position from which queues are written again, and the one from which the index is.
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

    # the walk

    def _walk(self) -> tuple[int, str, Recovered]:
        """Return the index of the first file, the reason for it, and what the walk from there found.

        Records that are read to write queues or index again must have been walked: damage that was not taken out there
        would end the start. Where the index ends is known only when the log's end is, so the walk may be repeated.
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
            first, because = doubtful, f"{self._files[doubtful].path.name} does not begin, or end, as it did"
        while True:
            needed = max(0, (needed_from - queue.min_offset_bytes) // queue.file_bytes)
            if needed < first:
                first, because = (
                    needed,
                    f"the {what} rebuilt from position {needed_from}, and that part is walked too",
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
        """Return the index of the file with which the walk begins, and why.

        After a crash it is the last file whose first record was stored at or before a time for which the checkpoint vouches.
        A record of which a crash left only the head is skipped. Where the broker that crashed has noted up to which position
        the log was synced, the walk begins no later than there: if the clock is set back, newer records have older times.
        """
        files, trusted_ms, noted = self._files, self._found.trusted_ms, self._found.noted
        if self._clean:
            return max(0, len(files) - _RECOVER_FILES), "after a clean stop the last three files are walked"
        last = len(files) - 1
        if self._found.is_safe and noted is not None and noted.log_end and not noted.is_stop:
            last = min(last, max(0, noted.log_end - files[0].start) // self._log.queue.file_bytes)
        for index in range(last, 0, -1):
            try:
                record = rec.decode_record(files[index].view)
            except rec.RecordError:
                continue
            if record.commit_log_offset_bytes == files[index].start and 0 < record.store_timestamp_ms <= trusted_ms:
                return index, f"it is the last file that begins no later than the checkpoint vouches for ({trusted_ms})"
        return 0, f"no later file begins at or before what the checkpoint vouches for ({trusted_ms})"

    # dispatch

    def _clean_dispatch_start(self, walked: Recovered) -> int:
        """Return the position from which queues are written again after a clean stop: where they end, or the first hole."""
        if walked.holes:
            return walked.unchanged_to_offset_bytes
        return _described_below(self._found.queues, walked.end_offset_bytes)

    def _crashed_dispatch_start(self, walked: Recovered) -> int:
        """Return the position from which queues are written again after a crash; what they hold of records before it is right.

        Queues are written in batches, in the order of the log. When only the process was killed, all but the last batch are
        whole; after a power cut those are that the checkpoint vouches for. Both is checked: a queue that has lost units, or
        one whose topic was deleted, makes the whole walk count, as in RocketMQ.
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
        """Return the time to which the checkpoint is set back where it vouches for units that are about to be cut."""
        if bool(walked.holes) if self._clean else start < walked.vouched[0]:
            return trusted_before(self._files, walked.holes, start)
        return None

    def _indexed_from(self, walked: Recovered, start: int) -> int | None:
        """Return the position from which records that are not dispatched are handed to the index again; None for none."""
        lacks_from = _indexed_below(self._found.index, walked.unchanged_to_offset_bytes)
        if lacks_from is None:
            return None
        lacks_from = max(lacks_from, self._log.min_offset_bytes)
        return lacks_from if lacks_from < start else None


def is_whole(commit_log: CommitLog, queues: ConsumeQueues, position: int) -> bool:
    """Return whether each queue's last unit before a position of the log refers to a message of that queue."""
    for queue in queues.queues.values():
        last = queue.first_from(lambda physical: physical < position) - 1
        if last >= queue.min_queue_offset and not is_described(commit_log, queue, last):
            return False
    return True


def is_described(commit_log: CommitLog, queue: QueueReader, queue_offset: int) -> bool:
    """Return whether the message to which a unit refers is there; true as well where it is deleted, or the unit a filler."""
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
    """Return how many units refer to messages between two positions of the log, fillers among them counted too."""
    return sum(
        queue.first_from(lambda physical: physical < end_offset_bytes)
        - queue.first_from(lambda physical: physical < begin_offset_bytes)
        for queue in queues.queues.values()
    )


def _described_end(queues: ConsumeQueues) -> int:
    """Return the physical end of the newest message that any queue describes; -1 without any."""
    return max((queue.max_physical_offset_bytes for queue in queues.queues.values()), default=-1)


def _described_below(queues: ConsumeQueues, end_offset_bytes: int) -> int:
    """Return the largest physical end at or below a position that any queue describes; -1 without any."""
    return max((_last_end_below(queue, end_offset_bytes) for queue in queues.queues.values()), default=-1)


def _last_end_below(queue: QueueReader, end_offset_bytes: int) -> int:
    """Return where the newest message ends that a queue describes and that ends at or below a position; -1 without any."""
    if queue.max_physical_offset_bytes <= end_offset_bytes:
        return queue.max_physical_offset_bytes
    queue_offset = queue.max_queue_offset - 1
    while (unit := queue.unit(queue_offset)) is not None:
        if not is_filler(unit) and unit[0] + unit[1] <= end_offset_bytes:
            return unit[0] + unit[1]
        queue_offset -= 1
    return -1


def _indexed_below(index: object, end_offset_bytes: int) -> int | None:
    """Return the position from which an index lacks entries once the log ends at another; None where it lacks none."""
    committed: int | None = None
    if isinstance(index, SupportsCommittedBelow):
        committed = index.committed_below(end_offset_bytes)
    elif isinstance(index, SupportsCommitted):
        committed = index.committed()
    return None if committed is None else min(committed, end_offset_bytes)


def _not_vouched_from(walked: Recovered) -> int:
    """Return the first position for which the checkpoint does not vouch."""
    begin = walked.start_offset_bytes if walked.clock_went_back or walked.holes else walked.end_offset_bytes
    return begin if walked.newer is None else min(begin, walked.newer[0])


def trusted_before(files: Sequence[MappedFile], holes: tuple[Hole, ...], position: int) -> int:
    """Return a store time at or before which no record from a position on was stored; 0 when there is none.

    It is the time of a file's first record, so that the next recovery begins with a file that is not far away.
    """
    times = [_first_ms(file, holes) for file in files if file.start <= position]
    for at in range(len(times) - 2, -1, -1):
        if 0 < times[at] < times[at + 1]:
            return times[at]
    return 0


def _first_ms(file: MappedFile, holes: tuple[Hole, ...]) -> int:
    """Return the store time of the record with which a file begins once its holes are filled; 0 for a blank."""
    for hole in holes:
        if hole.start_offset_bytes <= file.start < hole.end_offset_bytes:
            return hole.store_timestamp_ms if hole.end_offset_bytes < file.start + file.size else 0
    magic = rec.SIZE_AND_MAGIC.unpack_from(file.view, 0)[1]
    return rec.store_timestamp_at(file.view, 0) if magic in (rec.MAGIC_V1, rec.MAGIC_V2) else 0

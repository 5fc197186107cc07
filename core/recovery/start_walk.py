"""What a start finds on its walk over the log's last files: where the log ends, what is damaged, and what it counts.

See docs/internals/algorithms.md, Clean recovery and Abnormal recovery.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.mapped_file_queue import HEAD_BYTES, MappedFile
from flintmq.core.record import record as rec
from flintmq.core.record.log_walk import NEVER, Kind, LogWalk, Run, Stretch, WalkPolicy
from flintmq.core.record.sys_flag import TRANSACTION_PREPARED

MARK_EVERY: Final = 4_096
CLOCK_SLACK_MS: Final = 1_000
_UNWRITTEN: Final = re.compile(rb"\x00{16}")
"""Bytes that a copy has not reached look like this."""
_NO_HEAD: Final = bytes(HEAD_BYTES)
"""So begins what was written while its head was still to come."""
_APPEND_MOST: Final = 65_536
"""More records than one turn of the loop appends."""


class Cut(msgspec.Struct, frozen=True):
    """What a recovery took off the end of the log."""

    offset_bytes: int
    """Physical position of the cut."""
    reason: str
    """Why the bytes there are no record."""
    damaged: bool
    """True when valid, younger records follow: not a torn tail but damage in the middle."""
    stale: bool
    """True when valid, older records follow: an earlier recovery of RocketMQ left them behind the end of its log."""
    quarantine: Path | None
    """Where the bytes that were cut are kept; None when they were zeros."""


class Hole(msgspec.Struct, frozen=True):
    """Damage in the middle: where records were lost, and now a filler lies."""

    start_offset_bytes: int
    """Physical position of the first bad byte."""
    end_offset_bytes: int
    """Physical position of the next good record."""
    reason: str
    """Why the bytes there are no record."""
    store_timestamp_ms: int
    """Store time of the last good record before it."""
    quarantine: Path | None = None
    """Where the bad bytes are kept; None when they were zeros."""


class Recovered(msgspec.Struct, frozen=True):
    """The result of walking the log."""

    start_offset_bytes: int
    """Where the counted part of the walk began."""
    end_offset_bytes: int
    store_timestamp_ms: int
    """Store time of the last record; 0 without any."""
    records: int
    """All that were walked."""
    queued: int
    """Records of the counted part that belong into queues."""
    cut: Cut | None
    """What has to go behind the end; None where the walk saw nothing but zeros there, or nothing at all."""
    holes: tuple[Hole, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    """(physical position, records before it that belong into queues), every so many records."""
    newer: tuple[int, int] | None = None
    """The same for the first record that the checkpoint does not vouch for; None when it vouches for all."""
    clock_went_back: bool = False
    """Whether store times tell nothing about what came first."""
    newest_ms: int = 0
    """The latest store time of the counted part; 0 without a record."""

    @property
    def unchanged_to_offset_bytes(self) -> int:
        """The position up to which the log stays as it was: the first hole, or the end."""
        return self.holes[0].start_offset_bytes if self.holes else self.end_offset_bytes

    @property
    def vouched(self) -> tuple[int, int]:
        """The position up to which the checkpoint vouches, and how many records before it belong into queues."""
        return self.newer if self.newer is not None else (self.end_offset_bytes, self.queued)


class _Tally(msgspec.Struct):
    """What was counted so far; but for ``records``, of the counted part."""

    trusted_ms: int
    records: int = 0
    queued: int = 0
    newest_ms: int = 0
    marks: list[tuple[int, int]] = []
    newer: tuple[int, int] | None = None
    clock_went_back: bool = False

    def take(self, run: Run, start_offset_bytes: int) -> None:
        """Count records; the first one lies at a physical position."""
        all_stored_ms = run.stored_ms
        latest_ms = max(all_stored_ms)
        if self.newer is None and latest_ms > self.trusted_ms:
            row = next(row for row, stored_ms in enumerate(all_stored_ms) if stored_ms > self.trusted_ms)
            self.newer = self._mark(run, row, start_offset_bytes)
        if min(all_stored_ms) < max(self.newest_ms, latest_ms) - CLOCK_SLACK_MS:
            newest_before_ms = accumulate(all_stored_ms, max, initial=self.newest_ms)
            pairs = zip(all_stored_ms, newest_before_ms, strict=False)
            self.clock_went_back |= any(stored_ms < newest_ms - CLOCK_SLACK_MS for stored_ms, newest_ms in pairs)
        self.newest_ms = max(self.newest_ms, latest_ms)
        for row in range(-(self.records + 1) % MARK_EVERY, len(all_stored_ms), MARK_EVERY):
            self.marks.append(self._mark(run, row, start_offset_bytes))
        self.records += len(all_stored_ms)
        self.queued += _count_queued(run.sys_flags)

    def _mark(self, run: Run, row: int, start_offset_bytes: int) -> tuple[int, int]:
        position = start_offset_bytes + run.begins[row] - run.begins[0]
        return position, self.queued + _count_queued(run.sys_flags[:row])


def _count_queued(sys_flags: Sequence[int]) -> int:
    """Return how many of some records belong into queues, without a call for each."""
    return len([flag for flag in sys_flags if not flag & TRANSACTION_PREPARED]) if any(sys_flags) else len(sys_flags)


def walk_log(
    commit_log: CommitLog,
    first_file: int,
    counted_file: int | None = None,
    *,
    check_crc: bool,
    skips_damage: bool = True,
    trusted_ms: int | None = None,
) -> Recovered:
    """Walk a log to its end, each record checked wholly. Changes nothing.

    Args:
        commit_log: whose files are walked.
        first_file: index of the file to begin with.
        counted_file: from which file on records are counted, marked and timed; the same one by default.
        check_crc: whether bodies are checked against their CRC.
        skips_damage: whether the walk continues behind damage where valid records follow.
        trusted_ms: after a crash, the store time up to which the checkpoint vouches for log and queues; None after a stop.
    """
    files = commit_log.queue.files[first_file:]
    walk = LogWalk(files, WalkPolicy(check_crc=check_crc, trusted_ms=NEVER if trusted_ms is None else trusted_ms))
    tally = _Tally(NEVER if trusted_ms is None else trusted_ms)
    counted = commit_log.queue.files[first_file if counted_file is None else counted_file].start
    is_counting = counted == files[0].start
    end = files[0].start
    holes: list[Hole] = []
    cut: Cut | None = None
    stretches = walk.stretches()
    for found in stretches:
        if found.run is not None:
            tally.take(found.run, found.start)
        elif found.kind is Kind.DAMAGE and skips_damage and not _is_torn_append(walk, files, found, trusted_ms):
            holes.append(Hole(found.start, found.end, found.reason, walk.last_ms))
        elif found.kind is not Kind.BLANK:
            is_middle = found.kind is Kind.DAMAGE and not skips_damage
            end = found.start if is_middle else _before_blank_files(files, found.start)
            is_unused = found.kind is Kind.UNUSED and all(other.kind is Kind.UNUSED for other in stretches)
            if not is_unused or end != found.start:
                cut = Cut(end, found.reason, damaged=is_middle, stale=found.kind is Kind.STALE, quarantine=None)
            break
        is_last = found.kind is Kind.BLANK and found.end == files[-1].start + files[-1].size
        end = found.start if is_last else found.end
        if not is_counting and end >= counted:
            is_counting, walk.newest_ms = True, 0
            tally = _Tally(tally.trusted_ms, tally.records)
    return Recovered(
        counted,
        end,
        walk.last_ms,
        tally.records,
        tally.queued,
        cut,
        tuple(holes),
        tuple(tally.marks),
        tally.newer,
        tally.clock_went_back,
        tally.newest_ms,
    )


def _before_blank_files(files: Sequence[MappedFile], end_offset_bytes: int) -> int:
    """Return where a log ends that is cut at a position: before blank files, which were filled because records followed."""
    for file in reversed(files):
        if file.start + file.size == end_offset_bytes and _is_blank(file):
            end_offset_bytes = file.start
    return end_offset_bytes


def _is_blank(file: MappedFile) -> bool:
    return bool(rec.SIZE_AND_MAGIC.unpack_from(file.view)[1] == rec.MAGIC_BLANK)


def _is_torn_append(walk: LogWalk, files: Sequence[MappedFile], bad: Stretch, trusted_ms: int | None) -> bool:
    """Return whether the bad bytes and all that follows are one append that a crash cut short.

    A copy need not go in order, and its head comes last, so that whole records may lie behind bytes that were never
    written. All records of an append are stored at one time, it is the last thing in the log, and no client got an
    answer for them.
    """
    file = next(file for file in files if bad.start < file.start + file.size)
    file_end = file.start + file.size
    if trusted_ms is None or not is_unwritten(file.view, bad.start - file.start, bad.end - file.start):
        return False
    count, all_stored_ms = 0, set[int]()
    for found in walk.ahead(bad.start, bad.end):
        if found.kind in (Kind.TAIL, Kind.STALE, Kind.UNUSED):
            return True
        if found.run is not None:
            count += len(found.run.stored_ms)
            all_stored_ms.update(found.run.stored_ms)
        goes_on = found.end >= file_end if found.kind is Kind.DAMAGE else found.start >= file_end
        if goes_on or count > _APPEND_MOST or len(all_stored_ms) > 1:
            return False
    return True


def is_unwritten(view: memoryview, start: int, end: int) -> bool:
    """Return whether bytes that are no record hold some that a copy has not reached."""
    return view[start : start + HEAD_BYTES] == _NO_HEAD or _UNWRITTEN.search(view[start:end]) is not None

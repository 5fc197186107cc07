"""Scans the log's last files at a start: finds the log's end and damage, and counts records.

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
"""Pattern of sixteen zero bytes. In an interrupted append, they show that a part of the bytes was never written."""
_NO_HEAD: Final = bytes(HEAD_BYTES)
"""First bytes of an interrupted append. They are zeros, because the first bytes of an append are written last."""
_APPEND_MOST: Final = 65_536
"""Maximum number of records in one append."""


class Cut(msgspec.Struct, frozen=True):
    """The bytes that a recovery removes from the end of the log."""

    offset_bytes: int
    """Physical offset of the first removed byte."""
    reason: str
    """The reason why the first removed bytes are not a valid record."""
    damaged: bool
    """Whether valid, younger records follow the first removed bytes, so that the log is damaged in the middle and not torn at
    its end."""
    stale: bool
    """Whether valid, older records follow the first removed bytes, left by an earlier recovery of RocketMQ."""
    quarantine: Path | None
    """Path of the copy of the removed bytes; None if the removed bytes were zeros."""


class Hole(msgspec.Struct, frozen=True):
    """Damage in the middle of the log. A recovery replaces the damage by filler records or by a blank. Filler records are not
    added to any queue."""

    start_offset_bytes: int
    """Physical offset of the first damaged byte."""
    end_offset_bytes: int
    """Physical offset of the first valid record after the damage."""
    reason: str
    """The reason why the damaged bytes are not a valid record."""
    store_timestamp_ms: int
    """Store time of the last valid record before the damage, in ms since 1970."""
    quarantine: Path | None = None
    """Path of the copy of the damaged bytes; None if the damaged bytes were zeros."""


class Recovered(msgspec.Struct, frozen=True):
    """The findings of a scan of the log, and of the repair that followed."""

    start_offset_bytes: int
    """Physical offset from which the scan of the log counts records. Records that were scanned before this offset are counted
    only in :attr:`records`."""
    end_offset_bytes: int
    store_timestamp_ms: int
    """Store time of the log's last record, in ms since 1970; 0 if the log has no records."""
    records: int
    """Number of all scanned records."""
    queued: int
    """Number of records from :attr:`start_offset_bytes` on that have units in consume queues."""
    cut: Cut | None
    """The bytes to remove after the log's end; None if only zeros, or no bytes, follow the end."""
    holes: tuple[Hole, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    """Pairs of a physical offset and the number of records before this offset that have units in consume queues; one pair for
    every 4,096 records."""
    newer: tuple[int, int] | None = None
    """Physical offset of the first record that the checkpoint does not cover, and the number of records before it that have
    units in consume queues; None if the checkpoint covers all records."""
    clock_went_back: bool = False
    """Whether store times went backward in the log, so that store times do not give the order of records."""
    newest_ms: int = 0
    """Latest store time of the records at and after :attr:`start_offset_bytes`, in ms since 1970; 0 if the log has no records
    there."""

    @property
    def unchanged_to_offset_bytes(self) -> int:
        """The physical offset up to which a recovery does not change the log: the log's first hole, or its end."""
        return self.holes[0].start_offset_bytes if self.holes else self.end_offset_bytes

    @property
    def vouched(self) -> tuple[int, int]:
        """The physical offset up to which the checkpoint covers the log, and the number of records between
        :attr:`start_offset_bytes` and this offset that have units in consume queues."""
        return self.newer if self.newer is not None else (self.end_offset_bytes, self.queued)


class _Tally(msgspec.Struct):
    """Intermediate results of a scan of the log at a start.

    The scan may begin before the physical offset from which records are to be counted. The count ``records`` includes all
    scanned records. All other results refer only to the records at or after that offset.
    """

    trusted_ms: int
    records: int = 0
    queued: int = 0
    newest_ms: int = 0
    marks: list[tuple[int, int]] = []
    newer: tuple[int, int] | None = None
    clock_went_back: bool = False

    def take(self, run: Run, start_offset_bytes: int) -> None:
        """Count scanned records that follow one another without a gap in the log, from a physical offset on."""
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
    """Return the number of records with units in queues, given the records' sysFlags.

    For speed, the function does not call another function for each record.
    """
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
    """Scan a log from one of its files to its end, check every record, and return the findings. The log is not changed.

    Args:
        commit_log: the log to scan.
        first_file: the index of the first file to scan.
        counted_file: the index of the file from which records are counted; by default ``first_file``.
        check_crc: whether to compare bodies with their CRCs.
        skips_damage: whether the scan continues after damage if valid records follow.
        trusted_ms: the store time up to which the checkpoint covers log and queues after a crash; None after a clean stop.
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
    """Return the end of a log that is cut at a position; blank files directly before the position are left out."""
    for file in reversed(files):
        if file.start + file.size == end_offset_bytes and _is_blank(file):
            end_offset_bytes = file.start
    return end_offset_bytes


def _is_blank(file: MappedFile) -> bool:
    return bool(rec.SIZE_AND_MAGIC.unpack_from(file.view)[1] == rec.MAGIC_BLANK)


def _is_torn_append(walk: LogWalk, files: Sequence[MappedFile], bad: Stretch, trusted_ms: int | None) -> bool:
    """Return whether invalid bytes of the log and everything after them are one append that a crash interrupted.

    The bytes of an append may reach the file in any order, and its first bytes are written last. Therefore valid records can
    follow bytes that were never written. All records of an append have the same store time, the append is the last in the log,
    and no client got an answer for it.
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
    """Return whether a range of invalid bytes of the log contains a part that was never written."""
    return view[start : start + HEAD_BYTES] == _NO_HEAD or _UNWRITTEN.search(view[start:end]) is not None

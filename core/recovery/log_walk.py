"""The walk that a start makes over the log's last files: where the log ends, and what is damaged.

Whole records are checked many at a time where numpy is installed, one by one otherwise and wherever something is amiss. Both
make the same checks and give the same counts (:class:`.WalkTally`).

See docs/internals/algorithms.md, Clean recovery and Abnormal recovery.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from flintmq.core.io import lazy_numpy
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.mapped_file import HEAD_BYTES, MappedFile
from flintmq.core.record import bulk_scan
from flintmq.core.record import record as rec
from flintmq.core.record.check import RecordCheck
from flintmq.core.record.layout import picked
from flintmq.core.record.sys_flag import is_queued
from flintmq.core.recovery.bulk_walk import BulkWalk
from flintmq.core.recovery.walk_tally import CLOCK_SLACK_MS, MARK_EVERY, NEVER, WalkTally

_CHUNK_BYTES: Final = 1024 * 1024
_UNWRITTEN: Final = re.compile(rb"\x00{16}")
"""Bytes that a copy has not reached look like this."""
_NO_HEAD: Final = bytes(HEAD_BYTES)
"""So begins what was written while its head was still to come."""
_APPEND_MOST: Final = 65_536
"""More records than one turn of the loop appends."""
_ANY_RECORD: Final = re.compile(
    b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (rec.MAGIC_V1, rec.MAGIC_V2))
)
_HEAD: Final = picked("size", "magic", "physical_offset")


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
    holes: tuple[Hole, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    """(physical position, records before it that belong into queues), every so many records."""
    newer: tuple[int, int] | None = None
    """The same for the first record that the checkpoint does not vouch for; None when it vouches for all."""
    clock_went_back: bool = False
    """Whether store times tell nothing about what came first."""

    @property
    def vouched(self) -> tuple[int, int]:
        """The position up to which the checkpoint vouches, and how many records before it belong into queues."""
        return self.newer if self.newer is not None else (self.end_offset_bytes, self.queued)


class LogWalk:
    """Walks files from one of them on, checking each record wholly.

    Args:
        commit_log: whose files are walked.
        check_crc: whether bodies are checked against their CRC.
        skips_damage: whether the walk continues behind damage where valid records follow.
        trusted_ms: after a crash, the store time up to which the checkpoint vouches for log and queues; None after a stop.
    """

    def __init__(
        self, commit_log: CommitLog, *, check_crc: bool, skips_damage: bool = True, trusted_ms: int | None = None
    ) -> None:
        self._files = commit_log.queue.files
        self._log = commit_log
        self._check_crc = check_crc
        self._skips_damage = skips_damage
        self._tally = WalkTally(NEVER if trusted_ms is None else trusted_ms)
        self._records = RecordCheck(check_crc=check_crc)
        self._saw_older = False
        """Whether the search behind a bad place has passed whole records that are older than the last good one."""
        self._bulk = BulkWalk(check_crc=check_crc)

    def run(self, first_file: int, counted_file: int | None = None) -> Recovered:
        """Walks to the end. Changes nothing.

        Args:
            first_file: index of the file to begin with.
            counted_file: from which file on records are counted, marked and timed; the same one by default.
        """
        files, tally = self._files, self._tally
        counted = first_file if counted_file is None else counted_file
        end = files[first_file].start
        index, at = first_file, 0
        holes: list[Hole] = []
        cut: Cut | None = None
        while True:
            file = files[index]
            if index == counted:
                tally.begin_counting()
                counted = -1
            at, reason = self._walk_file(file, at)
            end = file.start + at
            if not reason:
                if index + 1 == len(files):
                    break
                end = file.start + file.size
                index, at = index + 1, 0
                continue
            cut = Cut(end, reason, damaged=False, stale=False, quarantine=None)
            self._saw_older = False
            found = self._behind(index, at)
            cut = msgspec.structs.replace(cut, stale=found is None and self._saw_older)
            if found is None or (self._skips_damage and self._is_torn_append(index, at, found)):
                while at == 0 and index > first_file and self._is_blank(files[index - 1]):
                    index -= 1  # it was filled because records followed, and they are gone too
                    cut = msgspec.structs.replace(cut, offset_bytes=(end := files[index].start))
                break
            if not self._skips_damage:
                cut = msgspec.structs.replace(cut, damaged=True)
                break
            cut = None
            index, at = found
            holes.append(Hole(end, files[index].start + at, reason, tally.last_ms))
        return Recovered(
            files[first_file if counted_file is None else counted_file].start,
            end,
            tally.last_ms,
            tally.records,
            tally.queued,
            cut,
            tuple(holes),
            tuple(tally.marks),
            tally.newer,
            tally.clock_went_back,
        )

    def _walk_file(self, file: MappedFile, at: int) -> tuple[int, str]:
        """Walks to where no record is; returns the place, and why, or nothing for why where the file ends as it should."""
        view, tally = file.view, self._tally
        singly_until = self._singly_until(file, at)
        while True:
            if at >= singly_until:
                lazy_numpy.load()
                at = self._bulk.walk(view, file.start, at, tally)
                singly_until = file.size  # there is little left, or nothing good
            at = self._walk_known(file, at, singly_until)
            if file.size - at < rec.BLANK_MIN_BYTES or _magic(view, at) == rec.MAGIC_BLANK:
                return at, ""
            # Whatever the short way does not know: other hosts, a topic not met before, or no record at all.
            try:
                record = self._check(file, at)
            except rec.RecordError as error:
                return at, str(error)
            tally.take(record)
            at += record.size_bytes

    def _singly_until(self, file: MappedFile, at: int) -> int:
        """Return where records begin to be walked in bulk: a short log is not worth the import of numpy."""
        return at if lazy_numpy.loaded() else at + bulk_scan.BYTES_WORTH_NUMPY

    def _walk_known(self, file: MappedFile, at: int, until: int) -> int:
        """Walk plain records (see :meth:`.RecordCheck.plain`) up to a place, or to the first that is something else.

        Without numpy a gigabyte is passed here a record at a time, so what is counted is kept in local names.
        """
        view, size_bytes, base = file.view, file.size, file.start
        plain, tally = self._records.plain, self._tally
        records, queued, newest_ms, stored_ms = tally.records, tally.queued, tally.newest_ms, tally.last_ms
        whole_ms = tally.trusted_ms
        trusted_ms = whole_ms if tally.newer is None else NEVER
        while at <= until:
            found = plain(view, at, size_bytes, base + at)
            if found is None:
                break
            end, sys_flag, stored_now_ms, properties_at = found
            if not newest_ms <= stored_now_ms <= whole_ms and view[properties_at:end].tobytes().find(0) >= 0:
                break
            if stored_now_ms > trusted_ms:
                tally.newer = (base + at, queued)
                trusted_ms = NEVER
            if stored_now_ms >= newest_ms:
                newest_ms = stored_now_ms
            elif stored_now_ms < newest_ms - CLOCK_SLACK_MS:
                tally.clock_went_back = True
            stored_ms = stored_now_ms
            records += 1
            if not records % MARK_EVERY:
                tally.marks.append((base + at, queued))
            if is_queued(sys_flag):
                queued += 1
            at = end
        tally.records, tally.queued, tally.newest_ms, tally.last_ms = records, queued, newest_ms, stored_ms
        return at

    def _check(self, file: MappedFile, at: int) -> rec.Record:
        """Return the whole record at a place. Raises RecordError."""
        record = self._records.record(file.view, at, file.start + at)
        if not self._tally.vouches_for(record.store_timestamp_ms) and _is_torn(record):
            raise rec.RecordError("the properties are torn")
        return record

    @staticmethod
    def _is_blank(file: MappedFile) -> bool:
        return _magic(file.view, 0) == rec.MAGIC_BLANK

    # damage

    def _behind(self, index: int, at: int) -> tuple[int, int] | None:
        """File and place of the next record behind a bad place; None when none follows."""
        files = self._files
        file = files[index]
        if file.size - at >= rec.RECORD_MIN_BYTES:
            size, magic, physical = _HEAD.unpack_from(file.view, at)
            end = at + size
            is_head = magic == rec.MAGIC_V1 and physical == file.start + at and size >= rec.RECORD_MIN_BYTES
            if is_head and end < file.size and self._is_younger(file, end):
                # The head gives the bad record's size; its body is not read.
                return index, end
        for number in range(index, len(files)):
            file = files[number]
            begin = file.region.next_data(at if number == index else 0)
            if number > index and self._is_younger(file, 0):
                return number, 0
            while begin < file.size:
                end = min(file.size, begin + _CHUNK_BYTES + 4)
                for match in _ANY_RECORD.finditer(file.view[begin:end]):
                    start = begin + match.start() - 4
                    room = start - at if number == index else start
                    if room >= rec.RECORD_MIN_BYTES and self._is_younger(file, start):
                        return number, start
                begin = file.region.next_data(begin + _CHUNK_BYTES) if begin + _CHUNK_BYTES < file.size else file.size
        return None

    def _is_torn_append(self, index: int, at: int, found: tuple[int, int]) -> bool:
        """Whether the bad bytes and all that follows are one append that a crash cut short.

        A copy need not go in order, and its head comes last, so that whole records may lie behind bytes that were never
        written. All records of an append are stored at one time, it is the last thing in the log, and no client got an
        answer for them.
        """
        number, place = found
        file = self._files[index]
        if self._tally.trusted_ms == NEVER or number != index or not is_unwritten(file.view, at, place):
            return False
        stored_ms = -1
        for _ in range(_APPEND_MOST):
            try:
                record = self._check(file, place)
            except rec.RecordError:
                behind = self._behind(index, place)
                if behind is None:
                    return True
                number, place = behind
                if number != index:
                    return False
                continue
            if stored_ms not in (-1, record.store_timestamp_ms):
                return False
            stored_ms = record.store_timestamp_ms
            place += record.size_bytes
        return False

    def _is_younger(self, file: MappedFile, at: int) -> bool:
        """Whether a whole record lies at a place, stored no earlier than the last good one.

        Older ones are what an earlier recovery of RocketMQ left behind the end of its log.
        """
        try:
            record = self._check(file, at)
        except rec.RecordError:
            return False
        if not self._check_crc:
            try:
                rec.decode_record(file.view, at)
            except rec.RecordError:
                return False
        is_younger = record.store_timestamp_ms >= self._tally.last_ms
        self._saw_older = self._saw_older or not is_younger
        return is_younger


def _magic(view: memoryview, at: int) -> int:
    return int(rec.SIZE_AND_MAGIC.unpack_from(view, at)[1])


def is_unwritten(view: memoryview, start: int, end: int) -> bool:
    """Whether bytes that are no record hold some that a copy has not reached."""
    return view[start : start + HEAD_BYTES] == _NO_HEAD or _UNWRITTEN.search(view[start:end]) is not None


def _is_torn(record: rec.Record) -> bool:
    """Whether a part of the properties, which no checksum covers, was not written: no message has a zero there."""
    return 0 in record.properties_bytes

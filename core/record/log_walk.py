"""The scan of a log: it finds the valid records, the gaps between them, and where the log continues after damage.

A record begins at the start of a file or at the end of a valid record. A body can contain bytes that look like a record, so
after damage the scan chooses carefully where to continue:

1. If the size of a damaged record agrees with its inner lengths, its end is trusted, and its content is skipped. If they
   disagree, and the record has the right physical offset, either end is accepted if a valid record begins there.
2. The start of a file is always tried. In addition, every position with a magic is tried.
3. A record at such a position must be valid, have the right physical offset, and fit what is known of the log
   (:class:`WalkPolicy`).

Records after the damage that are older than the last good record are stale: an earlier recovery by RocketMQ left them there and
continued the log before them. The scan cannot detect a sequence of records forged for their exact position inside a body whose
record has damaged lengths.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from flintmq.core.io import lazy_numpy
from flintmq.core.io.lazy_numpy import numpy
from flintmq.core.record import bulk_scan
from flintmq.core.record import record as rec
from flintmq.core.record.check import RecordCheck, check_record
from flintmq.core.record.heads import Heads
from flintmq.core.record.layout import picked
from flintmq.core.record.log_part import LogPart, is_blank, is_file_end, is_zero, magics

NEVER: Final = 2**63 - 1
_ROWS_FIRST: Final = 256
"""Number of records in the first bulk check of a scan of the log, and in the first bulk check after damage. The number is
small, so that frequent damage does not cost many checksums."""
_PHYSICAL: Final = picked("physical_offset")
Place = tuple[int, int]
"""The index of a file, and a position in that file."""


class Kind(enum.Enum):
    """The kind of a stretch of the log: valid records, the unused end of a file, damage, or bytes after the last valid
    record."""

    RECORD = "record"
    BLANK = "blank"
    """Kind of a part of the log: the unused end of a file that had no space for the next record."""
    DAMAGE = "damage"
    """Kind of a part of the log: bytes that are not a valid record, followed by valid records."""
    TAIL = "tail"
    """Kind of a part of the log: bytes after the last record that are not zero and contain no valid record, such as a write
    that a crash interrupted."""
    STALE = "stale"
    """Kind of a part of the log: bytes after the last record that contain older valid records, left by an earlier recovery."""
    UNUSED = "unused"
    """Kind of a part of the log: zeros after the last record up to the end of the file."""


class Run(msgspec.Struct, frozen=True, eq=False):
    """One or more consecutive valid records of one log file. The lists have one item per record."""

    view: memoryview
    """The content of the log file."""
    begins: Sequence[int]
    """Start positions of the records in the log file."""
    sys_flags: Sequence[int]
    stored_ms: Sequence[int]
    end: int
    """End position of the last of the records in the log file."""

    def records(self) -> Iterator[rec.Record]:
        """Yield the decoded records of this run of valid records."""
        return (rec.decode_record(self.view, at, check_crc=False) for at in self.begins)

    def bounds(self) -> Iterator[tuple[int, int]]:
        """Return an iterator of the pairs (start, end), one pair for each of the consecutive valid records in this object.
        Start and end of a record are positions in the log file, in bytes."""
        return pairwise((*self.begins, self.end))


class Stretch(msgspec.Struct, frozen=True):
    """A contiguous part of the log of one kind; ``start`` and ``end`` are physical offsets in bytes."""

    kind: Kind
    start: int
    end: int
    reason: str = ""
    """Reason why no valid record begins at the start of this part of the log; empty for valid records. For the unused end of a
    file (kind BLANK), the error in the size that is stored there; empty if the size is right."""
    run: Run | None = None
    """The valid records in this part of the log if its kind is RECORD; otherwise None."""


def holds_zero(properties: bytes, _end_offset_bytes: int) -> bool:
    """Return whether a record's properties contain a zero byte, which shows that a crash left a part of them unwritten.

    A part of a file that was not written is read as zero bytes. No checksum covers the properties, but FlintMQ stores no
    message with a zero byte in them.
    """
    return 0 in properties


class WalkPolicy(msgspec.Struct, frozen=True):
    """The rules by which a scan accepts records as valid, and chooses where the log continues after damage."""

    check_crc: bool = True
    """Whether to compare the bodies of records with their CRCs. After damage, the bodies are always compared."""
    trusted_ms: int = NEVER
    """Store time up to which records are known to be completely on disk. A scan checks whether a crash left the properties of a
    record incomplete in two cases:

    * The record's store time is later than this time.
    * The record's store time is earlier than the store time of a preceding record in the log.

    With NEVER, no record is checked for incomplete properties.
    """
    is_torn: Callable[[bytes, int], bool] = holds_zero
    """Function that returns whether a crash left a record's properties incomplete, given the properties and the physical offset
    at which they end."""
    next_queue_offsets: Mapping[tuple[str, int], int] | None = None
    """Next queue offset of each queue, keyed by topic and queue id; None if queue offsets are not used. The caller that
    iterates over the scan updates the mapping.

    After damage in the log, the scan searches for a valid record with which the log continues. With a mapping, a valid record
    is accepted in two cases:

    * Another valid record begins where this record ends.
    * The record's queue offset can be the next queue offset of the record's queue.

    If the accepted record was stored earlier than the last valid record before the damage, a later part of the log must contain
    a record that was stored at the same time as that last valid record, or after it.

    With None, a valid record is accepted if it was not stored earlier than the last valid record before the damage.
    """


class LogWalk:
    """A scan of a log, which finds its valid records and its damaged parts. Use a scan from one thread.

    Args:
        parts: the files of the log, in order.
        policy: the rules for valid records and for the continuation after damage.
    """

    def __init__(self, parts: Sequence[LogPart], policy: WalkPolicy) -> None:
        self._parts = parts
        self._policy = policy
        self._checks = RecordCheck(check_crc=policy.check_crc)
        self.last_ms = 0
        """Store time of the last scanned record, in ms since 1970."""
        self.newest_ms = 0
        """Latest store time of the scanned records, in ms since 1970. It is computed only if the rules of the scan
        (:attr:`WalkPolicy.trusted_ms`) require a check of records for incomplete properties. The user of the scan may set this
        attribute to an earlier time."""
        self._saw_older = False
        """Whether the search after damage has found valid records that are older than the last valid record before the
        damage."""
        self._ahead_of: int | None = None
        """Physical offset of the damage after which this object scans the log; None if the object scans the whole log. A scan
        that finds damage scans the log after the damage with a second object, which :meth:`ahead` makes."""
        self._younger: tuple[int, int] = (-1, 0)
        """Physical offset and store time of a valid record that was found after damage and is not older than the last valid
        record before the damage; (-1, 0) if no such record was found."""

    def stretches(self, index: int = 0, at: int = 0) -> Iterator[Stretch]:
        """Yield the stretches of the log from a position to its end, in time proportional to the log's size.

        Args:
            index: the index of the first file.
            at: the start position in that file.
        """
        parts = self._parts
        while index < len(parts):
            part = parts[index]
            for run in self._runs(part, at):
                if self._ahead_of is None:
                    self.last_ms = run.stored_ms[-1]
                    if self._policy.trusted_ms != NEVER:
                        self.newest_ms = max(self.newest_ms, max(run.stored_ms))
                yield Stretch(Kind.RECORD, part.start + at, part.start + run.end, run=run)
                at = run.end
            left = len(part.view) - at
            if is_file_end(part.view, at):
                if left:
                    yield Stretch(Kind.BLANK, part.start + at, part.start + at + left, _why_odd(part.view, at))
                index, at = index + 1, 0
                continue
            start, reason = part.start + at, self._reason(part, at)
            # If the rest of the log is unused, no later record is searched for, so that gigabytes of zeros are read only once.
            is_unused = self._is_unused(index, at)
            place = None if is_unused else self._behind(index, at)
            if place is None:
                yield from self._rest(index, at, reason, is_unused=is_unused)
                return
            index, at = place
            yield Stretch(Kind.DAMAGE, start, parts[index].start + at, reason)

    def ahead(self, bad_offset_bytes: int, offset_bytes: int) -> Iterator[Stretch]:
        """Scan the log from a position after damage to its end, and return an iterator over the contiguous parts of the log.

        Each part has one kind, for example valid records, damage or unused bytes. A copy of this object does the scan, so that
        the state of this object does not change.

        Args:
            bad_offset_bytes: the physical offset at which the damage begins.
            offset_bytes: the physical offset at which the scan begins.
        """
        ahead = copy.copy(self)
        ahead._ahead_of = bad_offset_bytes
        index = next(n for n, part in enumerate(self._parts) if offset_bytes < part.start + len(part.view))
        return ahead.stretches(index, offset_bytes - self._parts[index].start)

    # --- records ---

    def _runs(self, part: LogPart, at: int) -> Iterator[Run]:
        """Yield runs of valid records up to the first position without a valid record. The records are read in bulk if the log
        is long enough for numpy."""
        never = len(part.view) + 1
        bulk_from = at if lazy_numpy.loaded() else at + bulk_scan.BYTES_WORTH_NUMPY
        rows_max = _ROWS_FIRST
        while True:
            run = None
            if at >= bulk_from:
                lazy_numpy.load()
                run, is_all = self._in_bulk(part, at, rows_max)
                rows_max = min(4 * rows_max, bulk_scan.ROWS_MAX)
                # If a bulk read finds few records or an invalid record, the next records are read singly, which is as fast.
                bulk_from = bulk_from if is_all else never
            if run is None:
                run = self._one_by_one(part, at, bulk_from)
            if run is None:
                return
            yield run
            at = run.end

    def _one_by_one(self, part: LogPart, at: int, until: int) -> Run | None:
        view, newest_ms = part.view, self.newest_ms
        begins: list[int] = []
        sys_flags: list[int] = []
        all_stored_ms: list[int] = []
        outline = self._checks.outline
        while at < until and len(begins) < bulk_scan.ROWS_MAX:
            try:
                end, sys_flag, stored_ms, properties_at = outline(view, at, part.start + at)
            except rec.RecordError:
                break
            if self._doubts(newest_ms, stored_ms) and self._is_torn(part, properties_at, end):
                break
            newest_ms = max(newest_ms, stored_ms)
            begins.append(at)
            sys_flags.append(sys_flag)
            all_stored_ms.append(stored_ms)
            at = end
        return Run(view, begins, sys_flags, all_stored_ms, at) if begins else None

    def _in_bulk(self, part: LogPart, at: int, rows_max: int) -> tuple[Run | None, bool]:
        """Return a run of valid records from a position on, and whether all records that the bulk read found are valid.

        The run is None if the bulk read found too few records, or if the first record is not valid.
        """
        view = part.view
        places = bulk_scan.chain(view, at, len(view), rows_max)
        rows = bulk_scan.whole_heads(view, places) if len(places) >= bulk_scan.ROWS_MIN else None
        if rows is None:
            return None, False
        good = self._checks.rows(view, rows, part.start)
        good = self._before_torn(part, rows.first(good)) if good else 0
        if not good:
            return None, False
        rows = rows.first(good)
        run = Run(view, places[:good], rows.sys_flag.tolist(), rows.store_timestamp_ms.tolist(), rows.end)
        return run, good == len(places)

    def _before_torn(self, part: LogPart, rows: Heads) -> int:
        """Return the number of records before the first record whose properties were written to disk only in part."""
        if self._policy.trusted_ms == NEVER:
            return len(rows)
        stored_ms = rows.store_timestamp_ms
        newest_ms = numpy.maximum.accumulate(numpy.concatenate(([self.newest_ms], stored_ms[:-1])))
        unsure = numpy.flatnonzero((stored_ms < newest_ms) | (stored_ms > self._policy.trusted_ms))
        begins, ends = rows.properties_at[unsure].tolist(), rows.ends[unsure].tolist()
        view = part.view
        if b"".join([view[begin:end] for begin, end in zip(begins, ends, strict=True)]).find(0) < 0:
            return len(rows)
        torn = (
            row
            for row, begin, end in zip(unsure.tolist(), begins, ends, strict=True)
            if self._is_torn(part, begin, end)
        )
        return next(torn, len(rows))

    def _doubts(self, newest_ms: int, stored_ms: int) -> bool:
        """Return whether a record may have been written to disk only in part, judged by its store time."""
        trusted_ms = self._policy.trusted_ms
        return trusted_ms != NEVER and not newest_ms <= stored_ms <= trusted_ms

    def _is_torn(self, part: LogPart, properties_at: int, end: int) -> bool:
        properties = part.view[properties_at:end].tobytes()
        return 0 in properties and self._policy.is_torn(properties, part.start + end)

    def _check(self, part: LogPart, at: int, *, check_crc: bool = True) -> rec.Record:
        """Return the record at a position of a log file. Raises RecordError if the bytes there are not a valid record."""
        record = check_record(part.view, at, part.start + at, check_crc=check_crc)
        end = at + record.size_bytes
        if self._doubts(self.newest_ms, record.store_timestamp_ms) and self._is_torn(
            part, end - len(record.properties_bytes), end
        ):
            raise rec.RecordError("the record's properties are incomplete")
        return record

    def _reason(self, part: LogPart, at: int) -> str:
        """Return the reason why a log file has no valid record at a position."""
        try:
            self._check(part, at, check_crc=self._policy.check_crc)
        except rec.RecordError as error:
            return str(error)
        return "a whole record, but nothing it continues"

    # --- damage ---

    def _behind(self, index: int, at: int) -> Place | None:
        """Return the file index and the position at which the log continues after damage; None if the log does not continue."""
        bad = self._parts[index].start + at if self._ahead_of is None else self._ahead_of
        self._saw_older = False
        for number, begin, is_sure in self._candidates(index, at):
            stored_ms = self._goes_on(number, begin, bad, is_sure=is_sure)
            if stored_ms is None:
                continue
            if stored_ms >= self.last_ms or self._ahead_of is not None or self._younger_follows(number, begin, bad):
                return number, begin
            self._saw_older = True
            return None
        return None

    def _candidates(self, index: int, at: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the positions at which the log may continue after damage, as (file index, position, is sure).

        A position is sure if it is the start of a file, or the end of the damaged record according to its lengths. The other
        positions were found by a search for the magic, which a body can also contain.
        """
        part = self._parts[index]
        begin = at + 1
        by_size, by_fields = at + rec.SIZE_AND_MAGIC.unpack_from(part.view, at)[0], rec.inner_end(part.view, at)
        if at + rec.RECORD_MIN_BYTES <= by_size == by_fields:
            yield index, by_size, True
            begin = by_size
        elif by_fields is not None and _says_it_lies_here(part, at):
            for end in (by_size, by_fields):
                if at + rec.RECORD_MIN_BYTES <= end < len(part.view):
                    yield index, end, True
        for number in range(index, len(self._parts)):
            if number > index:
                begin = 0
                yield number, 0, True
            for start in magics(self._parts[number], begin):
                yield number, start, False

    def _goes_on(self, number: int, at: int, bad: int, *, is_sure: bool) -> int | None:
        """Return the store time of the record at a position, if the log can continue with this record after damage; otherwise
        None. If a blank is at the position, the record is the first of the next file."""
        part, known = self._parts[number], self._policy.next_queue_offsets
        if is_blank(part.view, at):
            return self._first_ms(number + 1) if known is not None else None
        record = self._whole(part, at)
        if record is None:
            return None
        stored_ms = record.store_timestamp_ms
        if known is None:
            if 0 < part.start + at - max(bad, part.start) < rec.RECORD_MIN_BYTES:
                # A record has at least RECORD_MIN_BYTES, so a record closer to the damage's start is inside the damaged record.
                # The log cannot continue with a record inside the damaged record, for example in its message body.
                return None
            fits = stored_ms >= self.last_ms
        else:
            lost = (part.start + at - bad) // rec.RECORD_MIN_BYTES
            wanted = known.get((record.topic, record.queue_id), 0)
            behind = at + record.size_bytes
            fits = (
                is_sure
                or wanted <= record.queue_offset <= wanted + lost
                or self._whole(part, behind) is not None
                or (len(part.view) - behind >= rec.BLANK_MIN_BYTES and is_blank(part.view, behind))
            )
        self._saw_older = self._saw_older or (not fits and stored_ms < self.last_ms)
        return stored_ms if fits else None

    def _first_ms(self, number: int) -> int | None:
        """Return the store time, in ms since 1970, of the first record in a log file. If the file is blank, the record is the
        first of the next file that is not blank. None if no such file exists, or if it does not begin with a valid record."""
        while number < len(self._parts) and is_blank(self._parts[number].view, 0):
            number += 1
        record = self._whole(self._parts[number], 0) if number < len(self._parts) else None
        return None if record is None else record.store_timestamp_ms

    def _whole(self, part: LogPart, at: int) -> rec.Record | None:
        """Return the record at a position of a log file; None if the bytes there are not a valid record. The physical offset in
        the bytes is checked first, because this check is much faster than the checksum of a record."""
        if not _says_it_lies_here(part, at):
            return None
        try:
            return self._check(part, at)
        except rec.RecordError:
            return None

    def _younger_follows(self, number: int, at: int, bad: int) -> bool:
        """Return whether the log has, at or after a position, a record that is as young as the last valid record before the
        damage, or younger. Store times are compared."""
        offset_bytes = self._parts[number].start + at
        position, stored_ms = self._younger
        if position >= offset_bytes and stored_ms >= self.last_ms:
            return True
        for stretch in self.ahead(bad, offset_bytes):
            if stretch.run is not None and (stored_ms := max(stretch.run.stored_ms)) >= self.last_ms:
                row = stretch.run.stored_ms.index(stored_ms)
                self._younger = (stretch.start + stretch.run.begins[row] - stretch.run.begins[0], stored_ms)
                return True
        return False

    def _is_unused(self, index: int, at: int) -> bool:
        """Return whether the log contains only zeros from a position to its end."""
        parts = self._parts
        return is_zero(parts[index], at, len(parts[index].view)) and all(
            is_zero(part, 0, len(part.view)) for part in parts[index + 1 :]
        )

    def _rest(self, index: int, at: int, reason: str, *, is_unused: bool) -> Iterator[Stretch]:
        """Yield the bytes after the last valid record as one stretch for each log file. Each stretch has a kind.

        The kind is UNUSED if the stretch contains only zeros. If records that are older than the last valid record were found
        after it, the kind of the other stretches is STALE: an earlier recovery left these records. Otherwise, the kind of the
        other stretches is TAIL, as after a write that a crash interrupted.
        """
        kind = Kind.STALE if self._saw_older else Kind.TAIL
        for number in range(index, len(self._parts)):
            part = self._parts[number]
            end = part.start + len(part.view)
            if number > index:
                at, reason = 0, self._reason(part, 0)
            if is_unused or is_zero(part, at, len(part.view)):
                yield Stretch(Kind.UNUSED, part.start + at, end, reason)
            else:
                yield Stretch(kind, part.start + at, end, reason)


def _says_it_lies_here(part: LogPart, at: int) -> bool:
    room = len(part.view) - at
    return room >= rec.RECORD_MIN_BYTES and _PHYSICAL.unpack_from(part.view, at)[0] == part.start + at


def _why_odd(view: memoryview, at: int) -> str:
    """Return the reason why the size stored in a blank is wrong; empty if the size is right.

    A wrong size is only reported, because readers recognize a blank by its magic alone.
    """
    if is_blank(view, at):
        return ""
    return f"the blank says {rec.SIZE_AND_MAGIC.unpack_from(view, at)[0]} bytes are left, there are {len(view) - at}"

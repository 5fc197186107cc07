"""The walk over a log: whole records, what lies between them, and where the log goes on behind damage.

What may begin a record is known: the start of a file, and the end of a whole record. A body may hold anything, also bytes that
look like a record, so behind damage the walk is careful about where it continues:

1. A damaged record whose size agrees with its inner lengths vouches for where it ends; nothing within it is looked at. Where
   the two disagree, and it says that it lies there, either is taken at whose end a whole record begins.
2. The start of a file always counts; elsewhere every place with a magic is tried.
3. What is found there must be whole, say that it lies there, and fit to what is known of the log (:class:`WalkPolicy`).

Records behind the bad place that are older than the last good one are stale: RocketMQ left them there when it recovered, and
went on before them. What the walk cannot tell: two or more records forged in a row, for the very place they lie at, in a body
whose own record is damaged in its lengths.
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
"""So few at first, and again behind damage: a log full of it must not cost a checksum of thousands of records each time."""
_PHYSICAL: Final = picked("physical_offset")
Place = tuple[int, int]
"""Number of a file, and a position in it."""


class Kind(enum.Enum):
    """What a stretch of the log is."""

    RECORD = "record"
    BLANK = "blank"
    """The end of a file that had no room for the next record."""
    DAMAGE = "damage"
    """Bytes that are no record, with whole records behind them."""
    TAIL = "tail"
    """Bytes behind the last record that are not zero, and nothing whole among them: torn."""
    STALE = "stale"
    """Bytes behind the last record with older whole records among them: an earlier recovery left them."""
    UNUSED = "unused"
    """Zeros to the end."""


class Run(msgspec.Struct, frozen=True, eq=False):
    """Consecutive whole records of one file; each list has an item a record, and there is at least one."""

    view: memoryview
    """Of the file."""
    begins: Sequence[int]
    """Where they begin in it."""
    sys_flags: Sequence[int]
    stored_ms: Sequence[int]
    end: int
    """Where the last one ends."""

    def records(self) -> Iterator[rec.Record]:
        """Read them."""
        return (rec.decode_record(self.view, at, check_crc=False) for at in self.begins)

    def bounds(self) -> Iterator[tuple[int, int]]:
        """Return where each begins and ends in the file."""
        return pairwise((*self.begins, self.end))


class Stretch(msgspec.Struct, frozen=True):
    """A piece of the log. Positions are physical offsets in bytes."""

    kind: Kind
    start: int
    end: int
    reason: str = ""
    """Why it cannot be read as a record; of a BLANK, what is wrong with it."""
    run: Run | None = None
    """Of kind RECORD: its records."""


def holds_zero(properties: bytes, _end_offset_bytes: int) -> bool:
    """Return whether a part of the properties, which no checksum covers, was not written: no message of FlintMQ has a
    zero there."""
    return 0 in properties


class WalkPolicy(msgspec.Struct, frozen=True):
    """What a walk takes for whole, and for the log's continuation behind damage."""

    check_crc: bool = True
    """Whether bodies are compared with their CRC. Behind damage they always are."""
    trusted_ms: int = NEVER
    """The store time up to which records are known to be written wholly, as long as times grow; NEVER for all records."""
    is_torn: Callable[[bytes, int], bool] = holds_zero
    """Whether properties that may be torn are, given them and the physical offset of their end."""
    next_queue_offsets: Mapping[tuple[str, int], int] | None = None
    """By topic and queue id the queue offset that comes next, kept by the one who takes the records.

    With it the log goes on behind damage with a record that *continues*: another whole record follows it, or its queue offset
    is one that its queue may have next; it may be older than the last good one if a younger one follows. None: it goes on
    with any whole record that is no older.
    """


class LogWalk:
    """Walks a log. One thread.

    Args:
        parts: its files, in order.
        policy: what counts.
    """

    def __init__(self, parts: Sequence[LogPart], policy: WalkPolicy) -> None:
        self._parts = parts
        self._policy = policy
        self._checks = RecordCheck(check_crc=policy.check_crc)
        self.last_ms = 0
        """Store time of the last record."""
        self.newest_ms = 0
        """The latest store time, where it matters; a caller may set it back."""
        self._saw_older = False
        """Whether the search behind a bad place has passed whole records that are older than the last good one."""
        self._ahead_of: int | None = None
        """Of a walk that only looks what follows: the bad place from which it does."""
        self._younger: tuple[int, int] = (-1, 0)
        """Position and store time of a record known to lie ahead."""

    def stretches(self, index: int = 0, at: int = 0) -> Iterator[Stretch]:
        """Walk from a place to the log's end; its cost grows with the log's size only.

        Args:
            index: number of the file to begin with.
            at: the place in it.
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
            # Asked first: the rest of a log is mostly zeros, of which there may be gigabytes, and they are read once so.
            is_unused = self._is_unused(index, at)
            place = None if is_unused else self._behind(index, at)
            if place is None:
                yield from self._rest(index, at, reason, is_unused=is_unused)
                return
            index, at = place
            yield Stretch(Kind.DAMAGE, start, parts[index].start + at, reason)

    def ahead(self, bad_offset_bytes: int, offset_bytes: int) -> Iterator[Stretch]:
        """Walk from a position behind a bad one, with what is known before that, and leave this walk as it is."""
        ahead = copy.copy(self)
        ahead._ahead_of = bad_offset_bytes
        index = next(n for n, part in enumerate(self._parts) if offset_bytes < part.start + len(part.view))
        return ahead.stretches(index, offset_bytes - self._parts[index].start)

    # records

    def _runs(self, part: LogPart, at: int) -> Iterator[Run]:
        """Walk to where no record is; in bulk where the log is long enough to be worth the import of numpy."""
        never = len(part.view) + 1
        bulk_from = at if lazy_numpy.loaded() else at + bulk_scan.BYTES_WORTH_NUMPY
        rows_max = _ROWS_FIRST
        while True:
            run = None
            if at >= bulk_from:
                lazy_numpy.load()
                run, is_all = self._in_bulk(part, at, rows_max)
                rows_max = min(4 * rows_max, bulk_scan.ROWS_MAX)
                bulk_from = bulk_from if is_all else never  # there is little left, or nothing good
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
        """Return whole records that were checked together, and whether all were whole that seemed to be there."""
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
        """Return how many records come before the first whose properties are torn."""
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
        """Return whether a record, stored at a time, may not be written wholly, as far as the times tell."""
        trusted_ms = self._policy.trusted_ms
        return trusted_ms != NEVER and not newest_ms <= stored_ms <= trusted_ms

    def _is_torn(self, part: LogPart, properties_at: int, end: int) -> bool:
        properties = part.view[properties_at:end].tobytes()
        return 0 in properties and self._policy.is_torn(properties, part.start + end)

    def _check(self, part: LogPart, at: int, *, check_crc: bool = True) -> rec.Record:
        """Return the whole record at a place. Raises RecordError."""
        record = check_record(part.view, at, part.start + at, check_crc=check_crc)
        end = at + record.size_bytes
        if self._doubts(self.newest_ms, record.store_timestamp_ms) and self._is_torn(
            part, end - len(record.properties_bytes), end
        ):
            raise rec.RecordError("the properties are torn")
        return record

    def _reason(self, part: LogPart, at: int) -> str:
        """Return why no whole record lies at a place."""
        try:
            self._check(part, at, check_crc=self._policy.check_crc)
        except rec.RecordError as error:
            return str(error)
        return "a whole record, but nothing it continues"

    # damage

    def _behind(self, index: int, at: int) -> Place | None:
        """Return where the log continues behind a bad place; None where it does not."""
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
        """Places, as number of a file and position, at which the log may go on, and whether each need not prove itself."""
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
        """Return the store time with which the log goes on at a place behind a bad one; None where it does not."""
        part, known = self._parts[number], self._policy.next_queue_offsets
        if is_blank(part.view, at):
            return self._first_ms(number + 1) if known is not None else None
        record = self._whole(part, at)
        if record is None:
            return None
        stored_ms = record.store_timestamp_ms
        if known is None:
            if 0 < part.start + at - max(bad, part.start) < rec.RECORD_MIN_BYTES:
                return None  # no filler has room there
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
        """Return the store time of a file's first record (of the next file's, where it is blank); None without a whole one."""
        while number < len(self._parts) and is_blank(self._parts[number].view, 0):
            number += 1
        record = self._whole(self._parts[number], 0) if number < len(self._parts) else None
        return None if record is None else record.store_timestamp_ms

    def _whole(self, part: LogPart, at: int) -> rec.Record | None:
        """Return the whole record at a place, None where there is none; what costs a checksum comes last."""
        if not _says_it_lies_here(part, at):
            return None
        try:
            return self._check(part, at)
        except rec.RecordError:
            return None

    def _younger_follows(self, number: int, at: int, bad: int) -> bool:
        """Return whether some record from a place on is no older than the last good one."""
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
        """Return whether nothing but zeros lies from a place on, in all files behind it as well."""
        parts = self._parts
        return is_zero(parts[index], at, len(parts[index].view)) and all(
            is_zero(part, 0, len(part.view)) for part in parts[index + 1 :]
        )

    def _rest(self, index: int, at: int, reason: str, *, is_unused: bool) -> Iterator[Stretch]:
        """Yield what lies behind the last whole record; of a log without anything there, that it holds zeros."""
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
    """Return what is wrong with a blank whose size is: readers, and a start, go by its magic alone."""
    if is_blank(view, at):
        return ""
    return f"the blank says {rec.SIZE_AND_MAGIC.unpack_from(view, at)[0]} bytes are left, there are {len(view) - at}"

"""The commit log piece by piece, also past damage: records, blanks, bytes that are neither, and the unused end.

What may begin a piece is known: the start of a file, and the end of a whole piece. A body may hold anything, also bytes that
look like a record, so behind damage the walk is careful about where it continues:

1. A damaged record whose size agrees with its inner lengths vouches for where it ends; nothing within it is looked at. Where
   the two disagree, either is taken at whose end a whole piece begins.
2. Elsewhere every place with a magic is tried. A record there must be whole, say that it lies there, and *continue*: another
   whole piece follows it, or its queue offset is one that its queue may have next.
3. The start of a file always counts.

Records behind the bad place that are older than the last good one, with no younger one behind them, are stale: RocketMQ
left them there when it recovered, and went on before them. What the walk cannot tell: two or more records forged in a row,
for the very place they lie at, in a body whose own record is damaged in its lengths.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from flintmq.core.limits import FRAME_MAX_BYTES
from flintmq.core.record import record as rec
from flintmq.core.record.check import check_record
from flintmq.core.record.layout import picked
from flintmq.core.record.record import Record
from flintmq.plugins.doctor.files import FileView, StoreFiles

_V1: Final = rec.MAGIC_V1.to_bytes(4, "big")
_V2: Final = rec.MAGIC_V2.to_bytes(4, "big")
_BLANK: Final = rec.MAGIC_BLANK.to_bytes(4, "big")
_PHYSICAL: Final = picked("physical_offset")
_SEARCHED_MAX_BYTES: Final = FRAME_MAX_BYTES + 64 * 1024
"""No larger record can have come over the wire: searching does not compute the checksum of what claims to be one."""
_ZEROS: Final = bytes(1024 * 1024)
_SECTOR_BYTES: Final = 512
NEVER: Final = 2**63 - 1
_REPORT_EVERY: Final = 4 * 1024 * 1024


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


@attrs.frozen
class Piece:
    """A stretch of the log."""

    kind: Kind
    start: int
    """Physical offset in bytes."""
    end: int
    record: Record | None = None
    reason: str = ""
    """Why it cannot be read as a record; of a BLANK, what is wrong with it."""


Place = tuple[int, int]
"""Number of a file, and a position in it."""


def walk(files: StoreFiles, progress: Callable[[int], None] | None = None, *, trusted_ms: int = -1) -> Iterator[Piece]:
    """Walks all of the log; its cost grows with its size only.

    Args:
        files: the store.
        progress: called now and then with the number of bytes that are done.
        trusted_ms: a start after a crash drops records that were stored later and whose properties look torn (see
            :func:`is_torn`).
    """
    return _Walk(files.log, trusted_ms).pieces(progress)


def is_zero(view: memoryview, start: int, end: int) -> bool:
    """Whether a stretch holds nothing but zeros."""
    step = len(_ZEROS)
    return all(
        bytes(view[at : at + step]) == _ZEROS if end - at >= step else not bytes(view[at:end]).strip(b"\0")
        for at in range(start, end, step)
    )


class _Walk:
    def __init__(self, log: list[FileView], trusted_ms: int) -> None:
        self._log = log
        self._trusted_ms = trusted_ms
        self._last_ms = 0
        self._next_offset: dict[tuple[str, int], int] = {}
        self._younger: tuple[int, int] = (-1, 0)
        """Position and store time of a record known to lie ahead."""
        self._stale = False
        self._searched: dict[tuple[int, bytes], tuple[int, int]] = {}
        """Start of a file and magic, to from where it was searched and where it was found (at the end, if nowhere)."""

    def pieces(self, progress: Callable[[int], None] | None) -> Iterator[Piece]:
        log = self._log
        index = at = told = 0
        while index < len(log):
            file = log[index]
            piece = self._piece(file, at) or _odd_blank(file, at)
            if piece is not None:
                if piece.record is not None:
                    self._note(piece.record)
                yield piece
                at = piece.end - file.start
            else:
                place = self._resume(index, at)
                if place is None:
                    yield from self._rest(index, at)
                    break
                start, why = file.start + at, reason(file, at)
                index, at = place
                yield Piece(Kind.DAMAGE, start, log[index].start + at, reason=why)
            done = log[index].start + at - log[0].start
            if at >= log[index].size:
                index, at = index + 1, 0
            if progress is not None and done - told >= _REPORT_EVERY:
                progress(done)
                told = done
        if progress is not None:
            progress(sum(file.size for file in log))

    def _piece(self, file: FileView, at: int, limit_bytes: int = 2**31) -> Piece | None:
        """The record or blank at a place."""
        start, left = file.start + at, file.size - at
        if left < rec.BLANK_MIN_BYTES:
            return Piece(Kind.BLANK, start, file.start + file.size)
        size, magic = rec.SIZE_AND_MAGIC.unpack_from(file.view, at)
        if magic == rec.MAGIC_BLANK:
            return Piece(Kind.BLANK, start, file.start + file.size) if size == left else None
        if size > min(left, limit_bytes) or size < rec.RECORD_MIN_BYTES:
            return None
        if _PHYSICAL.unpack_from(file.view, at)[0] != start or rec.inner_end(file.view, at) != at + size:
            return None  # what costs a checksum comes last
        try:
            record = _record(file, at, self._trusted_ms)
        except rec.RecordError:
            return None
        return Piece(Kind.RECORD, start, start + record.size_bytes, record)

    def _note(self, record: Record) -> None:
        self._last_ms = record.store_timestamp_ms
        self._next_offset[(record.topic, record.queue_id)] = record.queue_offset + 1

    # behind a bad place

    def _resume(self, index: int, at: int) -> Place | None:
        """Return where the log continues behind a bad place; None where it does not."""
        bad = self._log[index].start + at
        self._stale = False
        place = self._next_whole(index, at, bad)
        if place is None:
            return None
        first = self._store_time(place)
        if first < self._last_ms and not self._younger_follows(place, bad):
            self._stale = True
            return None
        return place

    def _next_whole(self, index: int, at: int, bad: int) -> Place | None:
        file = self._log[index]
        vouched, sure = self._vouched_end(file, at)
        begin = at + 1 if vouched is None else vouched
        piece = self._piece(file, begin) if sure and begin < file.size else None
        if piece is not None and (piece.record is not None or self._begins_whole(index + 1)):
            return index, begin
        for number in range(index, len(self._log)):
            file = self._log[number]
            if number > index:
                begin = 0
                if self._piece(file, 0) is not None and file.size >= rec.BLANK_MIN_BYTES:
                    return number, 0
            for start in self._candidates(file, begin):
                if self._continues(number, start, bad):
                    return number, start
        return None

    def _vouched_end(self, file: FileView, at: int) -> tuple[int | None, bool]:
        """Where the damaged record at a place ends, and whether a whole piece there need not prove itself."""
        by_size: int | None = at + int.from_bytes(file.view[at : at + 4], "big")
        if by_size is not None and not at + rec.RECORD_MIN_BYTES <= by_size <= file.size:
            by_size = None
        by_fields = rec.inner_end(file.view, at)
        if by_size is not None and by_size == by_fields:
            return by_size, True
        for end in (by_size, by_fields):
            if end is not None and file.size - end >= rec.BLANK_MIN_BYTES and self._piece(file, end) is not None:
                return end, True
        return None, False

    def _begins_whole(self, number: int) -> bool:
        """Whether a file is there and begins with a whole piece: only then a blank before it ends anything."""
        return number < len(self._log) and self._piece(self._log[number], 0) is not None

    def _continues(self, number: int, start: int, bad: int) -> bool:
        """Return whether a whole piece lies at an unconfirmed place, and fits to what is known."""
        file = self._log[number]
        piece = self._piece(file, start, _SEARCHED_MAX_BYTES)
        if piece is None:
            return False
        record = piece.record
        if record is None:
            return self._begins_whole(number + 1)
        lost = (piece.start - bad) // rec.RECORD_MIN_BYTES
        wanted = self._next_offset.get((record.topic, record.queue_id), 0)
        if wanted <= record.queue_offset <= wanted + lost:
            return True
        after = piece.end - file.start
        if file.size - after >= rec.BLANK_MIN_BYTES and self._piece(file, after) is not None:
            return True
        self._stale = self._stale or record.store_timestamp_ms < self._last_ms
        return False

    def _candidates(self, file: FileView, begin: int) -> Iterator[int]:
        """Every place, from one on, with a magic where a piece has it; in order."""
        at = begin + 4
        while True:
            position = min(self._next_magic(file, magic, at) for magic in (_V1, _V2, _BLANK))
            if position >= file.size:
                return
            yield position - 4
            at = position + 1

    def _next_magic(self, file: FileView, magic: bytes, at: int) -> int:
        """The next place of a magic, at or behind one; no part of a file is searched for it twice."""
        searched_from, found = self._searched.get((file.start, magic), (0, -1))
        if not searched_from <= at <= found:
            raw: Any = file.view.obj  # the map: searching it is ten times as fast as a regular expression over the view
            found = raw.find(magic, at)
            found = found if found >= 0 else max(at, file.size)
            self._searched[(file.start, magic)] = (at, found)
        return found

    def _store_time(self, place: Place) -> int:
        """Return the store time of the record at a place; at a blank, that of the next file's first record."""
        number, at = place
        piece = self._piece(self._log[number], at)
        while piece is not None and piece.record is None and number + 1 < len(self._log):
            number += 1
            piece = self._piece(self._log[number], 0)
        return piece.record.store_timestamp_ms if piece is not None and piece.record is not None else self._last_ms

    def _younger_follows(self, place: Place, bad: int) -> bool:
        """Whether some record from a place on is no older than the last good one."""
        position, stored_ms = self._younger
        number, at = place
        if position >= self._log[number].start + at and stored_ms >= self._last_ms:
            return True
        while True:
            file = self._log[number]
            piece = self._piece(file, at)
            if piece is None:
                found = self._next_whole(number, at, bad)
                if found is None:
                    return False
                number, at = found
                continue
            if piece.record is not None and piece.record.store_timestamp_ms >= self._last_ms:
                self._younger = (piece.start, piece.record.store_timestamp_ms)
                return True
            at = piece.end - file.start
            if at >= file.size:
                number, at = number + 1, 0
                if number >= len(self._log):
                    return False

    def _rest(self, index: int, at: int) -> Iterator[Piece]:
        """What lies behind the last whole record."""
        for number in range(index, len(self._log)):
            file = self._log[number]
            begin = at if number == index else 0
            if begin >= file.size:
                continue
            if is_zero(file.view, begin, file.size):
                yield Piece(Kind.UNUSED, file.start + begin, file.start + file.size)
                continue
            kind = Kind.STALE if self._stale else Kind.TAIL
            why = "older records, which an earlier recovery cut off" if self._stale else reason(file, begin)
            yield Piece(kind, file.start + begin, file.start + file.size, reason=why)


# one place


def reason(file: FileView, at: int) -> str:
    """Why no whole record lies at a place."""
    try:
        _record(file, at, NEVER)
    except rec.RecordError as error:
        return str(error)
    return "a whole record, but nothing it continues"


def _record(file: FileView, at: int, trusted_ms: int) -> Record:
    """The whole record at a place. Raises RecordError."""
    record = check_record(file.view, at, file.start + at)
    if record.store_timestamp_ms > trusted_ms and is_torn(record, file.start + at + record.size_bytes):
        raise rec.RecordError("the properties are torn: a part of them is zeros")
    return record


def is_torn(record: Record, end: int) -> bool:
    """Whether the properties, which no checksum covers, hold zeros up to the end of a sector, or of the record.

    A power cut leaves that; so may a client that sends zeros.
    """
    raw = record.properties_bytes
    start = end - len(raw)
    at = raw.find(0)
    while at >= 0:
        until = min(len(raw), at + _SECTOR_BYTES - (start + at) % _SECTOR_BYTES)
        if not raw[at:until].strip(b"\0"):
            return True
        at = raw.find(0, at + 1)
    return False


def _odd_blank(file: FileView, at: int) -> Piece | None:
    """A blank right behind a whole piece whose size is wrong: readers, and a start, go by its magic alone."""
    size, magic = rec.SIZE_AND_MAGIC.unpack_from(file.view, at)
    if magic != rec.MAGIC_BLANK:
        return None
    why = f"the blank says {size} bytes are left, there are {file.size - at}"
    return Piece(Kind.BLANK, file.start + at, file.start + file.size, reason=why)

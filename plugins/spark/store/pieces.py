"""What is read: where a micro-batch ends, and which stretches of log files tasks read, cut where records are known to begin."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from flintmq.core.record.heads import read_heads
from flintmq.core.record.record import (
    RECORD_MIN_BYTES,
    store_timestamp_at,
)
from flintmq.plugins.spark.decoder import RowFilter, chain
from flintmq.plugins.spark.ports import Limit
from flintmq.plugins.spark.store.log_files import LogFile, LogFiles, map_file
from flintmq.plugins.spark.store.queue_units import STEP_UNITS, Ints, QueueUnits, merged

_SMALL_BYTES = 8 * 1024 * 1024
"""Less than this is not worth a task of its own (docs/spark.md)."""
_SLACK = 32
"""A part may be larger by so small a share: what little is left at the end of a log is not worth a task either."""


@attrs.frozen
class Piece:
    """A stretch of one file of the log. A small value that pickles."""

    path: str
    file_start: int
    """Physical offset with which the file begins."""
    start: int
    """Physical offset with which a record begins."""
    end: int
    """Physical offset behind the last record, or behind the blank that ends the file."""
    by_units: bool = False
    """Whether the records are those that consume queues name; else all that the log holds there."""

    @property
    def size(self) -> int:
        return self.end - self.start


@attrs.frozen
class StorePart:
    """What one task reads, in the order of the log."""

    pieces: tuple[Piece, ...]
    rows: RowFilter = attrs.field(factory=RowFilter)
    """Which messages of them become rows."""


def whole_pieces(log: LogFiles, start: int, end: int, *, by_units_to: int) -> list[Piece]:
    """[start, end) as one piece per file; two where consume queues are complete up to the middle of one.

    ``start``, ``end`` and ``by_units_to`` are places at which records begin or end.
    """
    found = []
    for file in log.between(start, end):
        low, high = max(start, file.start), min(end, file.end)
        border = min(max(by_units_to, low), high)
        if low < border:
            found.append(Piece(file.path, file.start, low, border, by_units=True))
        if border < high:
            found.append(Piece(file.path, file.start, border, high))
    return found


def parted(
    log: LogFiles, splitters: list[QueueUnits], pieces: Sequence[Piece], target_bytes: int
) -> list[tuple[Piece, ...]]:
    """Pieces in parts of about a size: small files go together, and large ones are cut where consume queues name a place."""
    parts: list[list[Piece]] = [[]]
    slack = target_bytes // _SLACK
    room = target_bytes
    for piece in pieces:
        left = piece
        while left.size > room + slack:
            place = first_place(log, splitters, left.start + room) if room > slack else left.start
            if place is None or place >= left.end:
                break
            if place > left.start:
                parts[-1].append(attrs.evolve(left, end=place))
                room -= place - left.start
                left = attrs.evolve(left, start=place)
            parts.append([])
            room += target_bytes
        if parts[-1] and left.size > room + slack:
            parts.append([])
            room = target_bytes
        parts[-1].append(left)
        room -= left.size
    return [tuple(part) for part in parts if part]


def target_bytes(total_bytes: int, max_partition_bytes: int, min_partitions: int | None) -> int:
    """Return how large a part shall be: as large as allowed, smaller where cores would stand idle or more parts are
    asked for."""
    cores = os.cpu_count() or 1
    rounds = max(1, -(-total_bytes // (max_partition_bytes * cores)))
    wanted = max(-(-total_bytes // (rounds * cores)), min(_SMALL_BYTES, max_partition_bytes))
    if min_partitions is not None:
        wanted = min(wanted, -(-total_bytes // min_partitions))
    return max(1, wanted)


_SAMPLES = 64
"""How many messages of a part are looked at to find where it ends …"""
_SAMPLES_MAX = 1_000_000
"""… and how many of all."""


def even_parts(
    log: LogFiles, queues: Sequence[QueueUnits], pieces: Sequence[Piece], count: int
) -> list[tuple[Piece, ...]]:
    """Pieces in so many parts with about as many messages of some queues in each; fewer where there are not so many messages.

    Raises:
        StoreError: a file cannot be read.
    """
    spans = [(queue, queue.first_at(pieces[0].start), queue.first_at(pieces[-1].end)) for queue in queues]
    total = sum(max(0, end - first) for _queue, first, end in spans)
    step = max(1, total // (count * max(1, min(_SAMPLES, _SAMPLES_MAX // count))))
    seen = {
        unit[:2]
        for queue, first, end in spans
        for at in range(first, end, step)
        if (unit := queue.unit(at)) is not None
    }
    units = sorted(unit for unit in seen if log.has_record(*unit))
    places = {len(units) * number // count for number in range(1, count)} - {0} if units else set()
    borders = [units[place][0] for place in sorted(places)]
    parts: list[list[Piece]] = [[]]
    for piece in pieces:
        left = piece
        for border in borders[bisect_right(borders, piece.start) : bisect_left(borders, piece.end)]:
            parts[-1].append(attrs.evolve(left, end=border))
            parts.append([])
            left = attrs.evolve(left, start=border)
        if left.start in borders and parts[-1]:
            parts.append([])
        parts[-1].append(left)
    return [tuple(part) for part in parts]


_STEP_BYTES = 16 * 1024 * 1024


def always_fits(start: int, end: int, limit: Limit) -> bool:
    """Return whether what lies in [start, end) keeps within a limit whatever it is."""
    size = end - start
    fits_bytes = limit.max_bytes is None or size <= limit.max_bytes
    return fits_bytes and (limit.max_rows is None or size < limit.max_rows * RECORD_MIN_BYTES)


@attrs.frozen
class Told:
    """Counts messages: by the consume queues, and by the log where they do not tell all (a copy of a log alone, a store whose
    broker has crashed, or is just writing them)."""

    log: LogFiles
    queues: Sequence[QueueUnits]
    """Those that are read."""
    units_complete_to: int
    """Up to this physical offset their units name every message."""
    rows: RowFilter
    """Chooses the messages that they do not name."""

    def cut(self, start: int, end: int, limit: Limit) -> int:
        """Return the furthest place in (start, end] that keeps within a limit: ``end``, or the place of a message that
        is read.

        At least one message is let through.
        """
        rows = size = 0
        for position, sizes in self._messages(start, end, limit.max_rows):
            count = len(position)
            if limit.max_rows is not None:
                count = min(count, limit.max_rows - rows)
            if limit.max_bytes is not None:
                fitting = int(np.searchsorted(size + np.cumsum(sizes), limit.max_bytes, side="right"))
                count = min(count, fitting if rows or fitting else 1)
            for place, place_size in zip(position[count:].tolist(), sizes[count:].tolist(), strict=True):
                if self.log.has_record(place, place_size):
                    return int(place)
            rows += count
            size += int(sizes[:count].sum())
        return end

    def count(self, start: int, end: int, enough: int) -> int:
        """Return how many messages that are read lie in [start, end); stops counting at ``enough``."""
        border = self._border(start, end)
        total = sum(max(0, queue.first_at(border) - queue.first_at(start)) for queue in self.queues)
        for position, _sizes in self._walked(border, end) if total < enough else ():
            total += len(position)
            if total >= enough:
                break
        return total

    def is_countable(self, start: int, end: int, walked_max_bytes: int) -> bool:
        """Return whether the messages in [start, end) can be counted without walking through more of the log than a limit."""
        return end - self._border(start, end) <= walked_max_bytes

    def first(self, start: int, end: int) -> int | None:
        """Return the place of the first message in [start, end) that is read; None without one."""
        return next((int(position[0]) for position, _sizes in self._messages(start, end, 1) if len(position)), None)

    def _border(self, start: int, end: int) -> int:
        """Before it, the queues name every message."""
        return min(max(start, self.units_complete_to), end)

    def _messages(self, start: int, end: int, max_rows: int | None) -> Iterator[tuple[Ints, Ints]]:
        """Places and sizes of the messages in [start, end)."""
        border = self._border(start, end)
        for step in merged(self.queues, start, border, None if max_rows is None else min(max_rows + 1, STEP_UNITS)):
            position = step.units.position
            first = np.diff(position, prepend=-1) > 0  # a place that two queues name counts once
            yield position[first], step.units.size[first]
        yield from self._walked(border, end)

    def _walked(self, start: int, end: int) -> Iterator[tuple[Ints, Ints]]:
        """Places and sizes of messages that become rows, going by their heads.

        Where no record is found, the next file follows: reading reports the damage, or leaves it out.
        """
        for file in self.log.between(start, end):
            data = map_file(file.path)
            if data is None:
                continue
            at, stop = max(start, file.start) - file.start, min(end, file.end) - file.start
            step = _STEP_BYTES
            while at < stop:
                found = chain.walk(data, at, min(stop, at + step))
                if len(found.starts):
                    heads = read_heads(data, found.starts)
                    heads = heads if heads.bad is None else heads.chosen(~heads.bad)
                    keep = self.rows.mask(data, heads)
                    heads = heads if keep is None else heads.chosen(keep)
                    yield heads.start + file.start, heads.size
                elif at + step >= stop:
                    break
                else:
                    step = stop - at  # a record that is larger
                if found.why in ("blank", "zero"):
                    break
                at = found.end


_SPLITTERS_MAX = 16


def splitters(queues: list[QueueUnits]) -> list[QueueUnits]:
    """Return the queues whose units are looked at for places to split: the fullest ones."""
    return sorted(queues, key=lambda queue: queue.end_unit - queue.first_unit, reverse=True)[:_SPLITTERS_MAX]


def first_place(log: LogFiles, queues: list[QueueUnits], position: int) -> int | None:
    """Return the first place from a position on at which a unit says that a record begins, and it does; None without
    any."""
    found = None
    for queue in queues:
        unit = queue.unit(queue.first_at(position))
        if unit is not None and (found is None or unit[0] < found) and log.has_record(unit[0], unit[1]):
            found = unit[0]
    return found


def first_place_from(log: LogFiles, splitters: list[QueueUnits], timestamp_ms: int, end: int) -> int | None:
    """Return the place of the first message that was stored at a time or later; None where there is none before
    ``end``.

    Store times grow along the log, so the files' first records lead to the right file.

    ``splitters`` are queues whose units may be asked to come near. Raises StoreError.
    """
    files = log.between(log.start, end)
    late = bisect_left(files, True, key=lambda file: not _is_before(log, file.start, timestamp_ms))
    for file in files[max(0, late - 1) :]:
        start = _nearer(log, splitters, file, timestamp_ms, end)
        place = _walked(file, start, min(end, file.end), timestamp_ms)
        if place is not None:
            return place
    return None


def _is_before(log: LogFiles, position: int, timestamp_ms: int) -> bool:
    """Return whether a record lies at a place that was stored before a time."""
    record = log.bytes_at(position, RECORD_MIN_BYTES)
    return record is not None and store_timestamp_at(record, 0) < timestamp_ms


def _nearer(log: LogFiles, splitters: list[QueueUnits], file: LogFile, timestamp_ms: int, end: int) -> int:
    """Return the end of the last message of a file that queues know of and that was stored before a time."""
    best = file.start
    limit = min(end, file.end)

    def is_behind(position: int) -> bool:
        return position >= file.start and not (position < limit and _is_before(log, position, timestamp_ms))

    for queue in splitters:
        unit = queue.unit(queue.first_where(is_behind) - 1)
        if unit is not None and file.start <= unit[0] and unit[0] + unit[1] <= limit:
            best = max(best, unit[0] + unit[1])
    return best


def _walked(file: LogFile, start: int, end: int, timestamp_ms: int) -> int | None:
    data = map_file(file.path)
    if data is None:
        return None
    starts = chain.walk(data, start - file.start, end - file.start).starts
    if not len(starts):
        return None
    late = read_heads(data, starts).store_timestamp_ms >= timestamp_ms
    return file.start + int(starts[np.argmax(late)]) if late.any() else None

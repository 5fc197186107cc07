"""Divides the log into parts for tasks, at positions where records are known to begin, and finds where micro-batches end."""

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
"""Minimum size in bytes of a task's part of the log, if the log is divided only to keep more processors busy
(docs/spark.md)."""
_SLACK = 32
"""Denominator of the fraction 1/32 by which a task's part of the log may exceed its target size. Without this allowance, a
small rest at the end of the log would need a separate task."""


@attrs.frozen
class Piece:
    """A part of one file of the log. Instances are small and picklable."""

    path: str
    file_start: int
    """Physical offset of the first byte of the file that contains the piece."""
    start: int
    """Physical offset of the first record of the piece."""
    end: int
    """Physical offset just past the piece's last record, or just past the blank record that ends the file."""
    by_units: bool = False
    """Whether only records with a consume queue unit are read. If not, all records of the piece are read."""

    @property
    def size(self) -> int:
        return self.end - self.start


@attrs.frozen
class StorePart:
    """The input of one Spark task: pieces of the log in the order of the log."""

    pieces: tuple[Piece, ...]
    rows: RowFilter = attrs.field(factory=RowFilter)
    """Filter for the messages that become rows."""


def whole_pieces(log: LogFiles, start: int, end: int, *, by_units_to: int) -> list[Piece]:
    """Return the range [start, end) of the log as pieces, one for each file. A file becomes two pieces if the consume queues
    are complete only up to a position inside the file.

    A record must begin or end at ``start``, at ``end`` and at ``by_units_to``, up to which the consume queues are complete.
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
    """Divide the pieces of a log into parts of about ``target_bytes``. Small pieces are combined. Large pieces are divided at a
    record to which a consume queue unit refers."""
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
    """Return the size in bytes of the part of the log that one Spark task reads. The size is as large as allowed, but smaller
    if processors would be idle or ``min_partitions`` asks for more parts."""
    cores = os.cpu_count() or 1
    rounds = max(1, -(-total_bytes // (max_partition_bytes * cores)))
    wanted = max(-(-total_bytes // (rounds * cores)), min(_SMALL_BYTES, max_partition_bytes))
    if min_partitions is not None:
        wanted = min(wanted, -(-total_bytes // min_partitions))
    return max(1, wanted)


_SAMPLES = 64
"""Number of messages that are examined for each part of the log to find the part's end."""
_SAMPLES_MAX = 1_000_000
"""Maximum number of messages that are examined to find the ends of all parts of the log."""


def even_parts(
    log: LogFiles, queues: Sequence[QueueUnits], pieces: Sequence[Piece], count: int
) -> list[tuple[Piece, ...]]:
    """Divide the pieces of a log into ``count`` parts with about the same number of messages of some queues. If there are few
    messages, the result has fewer parts.

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
    """Return whether the size of the range [start, end) of the log shows that the messages in the range do not exceed a limit.
    The messages are not counted."""
    size = end - start
    fits_bytes = limit.max_bytes is None or size <= limit.max_bytes
    return fits_bytes and (limit.max_rows is None or size < limit.max_rows * RECORD_MIN_BYTES)


@attrs.frozen
class Told:
    """Finds and counts the messages of a store by their consume queue units. After the last unit, it reads the log record by
    record.

    The units are incomplete in a copy of only a log, in a store after its broker's crash, and while a broker writes them.
    """

    log: LogFiles
    queues: Sequence[QueueUnits]
    """Consume queues by which the messages of the log are found and counted."""
    units_complete_to: int
    """Physical offset up to which every message has its unit in a consume queue."""
    rows: RowFilter
    """Filter for the messages of the log that have no consume queue unit yet."""

    def cut(self, start: int, end: int, limit: Limit) -> int:
        """Return the position in the log at which a batch that begins at ``start`` has to end. The position is ``end``, or the
        beginning of an earlier message if the batch would otherwise exceed the limit.

        The batch is as large as the limit allows, and has at least one message if the range contains a message.
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
        """Return the number of messages to read in the range [start, end) of the log. Counting stops at ``enough``."""
        border = self._border(start, end)
        total = sum(max(0, queue.first_at(border) - queue.first_at(start)) for queue in self.queues)
        for position, _sizes in self._walked(border, end) if total < enough else ():
            total += len(position)
            if total >= enough:
                break
        return total

    def is_countable(self, start: int, end: int, walked_max_bytes: int) -> bool:
        """Return whether the messages in the range [start, end) of the log can be counted if at most ``walked_max_bytes``
        bytes of the log are read record by record."""
        return end - self._border(start, end) <= walked_max_bytes

    def first(self, start: int, end: int) -> int | None:
        """Return the position of the first message to read in the range [start, end) of the log; None if the range has no such
        message."""
        return next((int(position[0]) for position, _sizes in self._messages(start, end, 1) if len(position)), None)

    def _border(self, start: int, end: int) -> int:
        """Return the position in the range [start, end] of the log up to which each message has a consume queue unit."""
        return min(max(start, self.units_complete_to), end)

    def _messages(self, start: int, end: int, max_rows: int | None) -> Iterator[tuple[Ints, Ints]]:
        """Yield positions and sizes of the messages to read in the range [start, end) of the log."""
        border = self._border(start, end)
        for step in merged(self.queues, start, border, None if max_rows is None else min(max_rows + 1, STEP_UNITS)):
            position = step.units.position
            first = np.diff(position, prepend=-1) > 0  # A message to which two queues refer is read only once.
            yield position[first], step.units.size[first]
        yield from self._walked(border, end)

    def _walked(self, start: int, end: int) -> Iterator[tuple[Ints, Ints]]:
        """Read a range of the log record by record, and yield positions and sizes of the messages that become rows. Only the
        fixed fields and the topic of each record are checked.

        If damaged bytes are found, the rest of the file is left out. A later read of the damaged part reports or skips the
        damage.
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
                    # The next record is larger than ``step`` bytes, so all remaining bytes are read in one step.
                    step = stop - at
                if found.why in ("blank", "zero"):
                    break
                at = found.end


_SPLITTERS_MAX = 16


def splitters(queues: list[QueueUnits]) -> list[QueueUnits]:
    """Return the consume queues with the most messages. The units of these queues give positions at which the log can be
    divided."""
    return sorted(queues, key=lambda queue: queue.end_unit - queue.first_unit, reverse=True)[:_SPLITTERS_MAX]


def first_place(log: LogFiles, queues: list[QueueUnits], position: int) -> int | None:
    """Find the first record, at or after ``position`` in the log, to which a consume queue unit refers. Return the record's
    position; None if no such record is found."""
    found = None
    for queue in queues:
        unit = queue.unit(queue.first_at(position))
        if unit is not None and (found is None or unit[0] < found) and log.has_record(unit[0], unit[1]):
            found = unit[0]
    return found


def first_place_from(log: LogFiles, splitters: list[QueueUnits], timestamp_ms: int, end: int) -> int | None:
    """Return the position in the log of the first message that was stored at or after a time; None if no such message lies
    before ``end``.

    Store times grow along the log, so the first records of the files show which file to search.

    Args:
        log: the log.
        splitters: queues whose units narrow the search.
        timestamp_ms: the store time in ms.
        end: the physical offset at which the search ends.

    Raises:
        StoreError: a file cannot be read.
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
    """Return whether the record at a position of the log was stored before a time."""
    record = log.bytes_at(position, RECORD_MIN_BYTES)
    return record is not None and store_timestamp_at(record, 0) < timestamp_ms


def _nearer(log: LogFiles, splitters: list[QueueUnits], file: LogFile, timestamp_ms: int, end: int) -> int:
    """Find the last message in a log file that has a consume queue unit and was stored before a time. Return the message's end;
    the file's start if no such message is found."""
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

"""What tasks read: stretches of log files, cut where records are known to begin, packed into few large parts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from flintmq.core.record.heads import read_heads
from flintmq.core.record.record import RECORD_MIN_BYTES
from flintmq.plugins.spark.decoder import RowFilter, chain
from flintmq.plugins.spark.ports import Limit, Range
from flintmq.plugins.spark.store.log_files import LogFile, LogFiles, map_file
from flintmq.plugins.spark.store.queue_units import QueueUnits, Units
from flintmq.plugins.spark.store.record_places import first_place, is_record

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
    queue_offsets: tuple[tuple[str, int, Range], ...] = ()
    """Topic, queue and which queue offsets of it are read, of queues that have a start or end of their own."""


def whole_pieces(log: LogFiles, start: int, end: int, *, by_units_to: int) -> list[Piece]:
    """[start, end) as one piece per file; two where consume queues are complete up to the middle of one.

    ``start``, ``end`` and ``by_units_to`` are places at which records begin or end.
    """
    found = []
    for file in log.between(start, end):
        low, high = max(start, file.start), min(end, file.end)
        border = min(max(by_units_to, low), high)
        if low < border:
            found.append(_piece(file, low, border, by_units=True))
        if border < high:
            found.append(_piece(file, border, high, by_units=False))
    return found


def _piece(file: LogFile, start: int, end: int, *, by_units: bool) -> Piece:
    return Piece(file.path, file.start, start, end, by_units)


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
    """How large a part shall be: as large as allowed, smaller where cores would stand idle or more parts are asked for."""
    cores = os.cpu_count() or 1
    rounds = max(1, -(-total_bytes // (max_partition_bytes * cores)))
    wanted = max(-(-total_bytes // (rounds * cores)), min(_SMALL_BYTES, max_partition_bytes))
    if min_partitions is not None:
        wanted = min(wanted, -(-total_bytes // min_partitions))
    return max(1, wanted)


_STEP_UNITS = 65_536
_STEP_BYTES = 16 * 1024 * 1024


@attrs.frozen
class Told:
    """The queue units from which the messages to read are counted."""

    queues: Sequence[QueueUnits]
    """Those that are read."""
    units_complete_to: int
    """Up to this physical offset they name every message."""
    rows: RowFilter
    """Chooses the messages that they do not name."""


def always_fits(start: int, end: int, limit: Limit) -> bool:
    """Whether what lies in [start, end) keeps within a limit whatever it is."""
    size = end - start
    fits_bytes = limit.max_bytes is None or size <= limit.max_bytes
    return fits_bytes and (limit.max_rows is None or size < limit.max_rows * RECORD_MIN_BYTES)


def cut_at_limit(log: LogFiles, told: Told, start: int, end: int, limit: Limit) -> int:
    """The furthest place in (start, end] with at most so many messages, or bytes of records, before it.

    Args:
        log: the commit log.
        told: the queue units that name the messages.
        start: a place in the log.
        end: one behind it.
        limit: at least one message is let through.

    Returns:
        ``end``, or the place of a message that is read.
    """
    border = min(max(start, told.units_complete_to), end)
    rows = size = 0
    for units in _told(log, told, start, border, end, limit):
        count = len(units)
        if limit.max_rows is not None:
            count = min(count, limit.max_rows - rows)
        if limit.max_bytes is not None:
            fitting = int(np.searchsorted(size + np.cumsum(units.size), limit.max_bytes, side="right"))
            count = min(count, fitting if rows or fitting else 1)
        for index in range(count, len(units)):
            place = int(units.position[index])
            if is_record(log, place, int(units.size[index])):
                return place
        rows += count
        size += int(units.size[:count].sum())
    return end


def _told(log: LogFiles, told: Told, start: int, border: int, end: int, limit: Limit) -> Iterator[Units]:
    """The messages in [start, end): as the queues name them up to a border, and behind it as they are found by walking."""
    yield Units.merged([_first_units(queue, start, border, limit) for queue in told.queues])
    yield from _walked(log, told.rows, border, end)


def _walked(log: LogFiles, rows: RowFilter, start: int, end: int) -> Iterator[Units]:
    """The messages in [start, end) that become rows, going by their heads; the tags code of all is 0.

    Where no record is found, the next file follows: reading reports the damage, or leaves it out.
    """
    for file in log.between(start, end):
        try:
            data = map_file(file.path)
        except FileNotFoundError:
            continue
        at, stop = max(start, file.start) - file.start, min(end, file.end) - file.start
        step = _STEP_BYTES
        while at < stop:
            found = chain.walk(data, at, min(stop, at + step))
            if len(found.starts):
                heads = read_heads(data, found.starts)
                heads = heads if heads.bad is None else heads.chosen(~heads.bad)
                keep = rows.mask(data, heads)
                heads = heads if keep is None else heads.chosen(keep)
                yield Units(heads.start + file.start, heads.size, np.zeros(len(heads), np.int64))
            elif at + step >= stop:
                break
            else:
                step = stop - at  # a record that is larger
            if found.why in ("blank", "zero"):
                break
            at = found.end


def _first_units(queue: QueueUnits, start: int, end: int, limit: Limit) -> Units:
    """The first messages of a queue from a place on: one more than the limit lets through."""
    at, until = queue.first_at(start), queue.first_at(end)
    found: list[Units] = []
    rows = size = 0
    while at < until:
        step = min(until, at + _STEP_UNITS if limit.max_rows is None else at + limit.max_rows - rows + 1)
        units = queue.range(at, step)
        found.append(units)
        rows += len(units)
        size += int(units.size.sum())
        at = step
        if limit.max_rows is not None and rows > limit.max_rows:
            break
        if limit.max_bytes is not None and size > limit.max_bytes:
            break
    return Units.merged(found)


def rows_between(log: LogFiles, told: Told, start: int, end: int, enough: int) -> int:
    """How many messages that are read lie in [start, end); stops counting at ``enough``."""
    border = min(max(start, told.units_complete_to), end)
    total = 0
    for queue in told.queues:
        total += max(0, queue.first_at(border) - queue.first_at(start))
        if total >= enough:
            return total
    for units in _walked(log, told.rows, border, end):
        total += len(units)
        if total >= enough:
            break
    return total

"""What tasks read: stretches of log files, cut where records are known to begin, packed into few large parts."""

from __future__ import annotations

import os
from collections.abc import Sequence

import attrs

from flintmq.plugins.spark.bounds import Range
from flintmq.plugins.spark.store.log_files import LogFile, LogFiles
from flintmq.plugins.spark.store.queue_units import QueueUnits
from flintmq.plugins.spark.store.record_places import first_place

_SMALL_BYTES = 8 * 1024 * 1024
"""Less than this is not worth a task of its own (reference: spark 8.4)."""


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


def cut(log: LogFiles, splitters: list[QueueUnits], pieces: Sequence[Piece], target_bytes: int) -> list[Piece]:
    """The same pieces, cut into ones of about a size where consume queues name a place for it."""
    found = []
    for piece in pieces:
        count = -(-piece.size // target_bytes)
        start = piece.start
        for number in range(1, count):
            wanted = piece.start + piece.size * number // count
            if wanted <= start:
                continue
            place = first_place(log, splitters, wanted)
            if place is None or place >= piece.end:
                break
            found.append(attrs.evolve(piece, start=start, end=place))
            start = place
        found.append(attrs.evolve(piece, start=start))
    return found


def packed(pieces: Sequence[Piece], target_bytes: int) -> list[tuple[Piece, ...]]:
    """Neighbouring pieces together up to a size: a store of small files is no store of many tasks."""
    parts: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        if not parts or piece.size > room:
            parts.append([])
            room = max(target_bytes, piece.size)
        parts[-1].append(piece)
        room -= piece.size
    return [tuple(part) for part in parts]


def target_bytes(total_bytes: int, max_partition_bytes: int, min_partitions: int | None) -> int:
    """How large a part shall be: as large as allowed, smaller where cores would stand idle or more parts are asked for."""
    wanted = max_partition_bytes
    idle = -(-total_bytes // (os.cpu_count() or 1))
    if idle < wanted:
        wanted = max(idle, min(_SMALL_BYTES, max_partition_bytes))
    if min_partitions is not None:
        wanted = min(wanted, -(-total_bytes // min_partitions))
    return max(1, wanted)

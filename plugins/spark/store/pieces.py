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

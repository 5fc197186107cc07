"""One piece of the log becomes consume queue units in place, and keys for the index."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs
import numpy as np

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.io.paths import queue_folder
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.record import record as rec
from flintmq.core.record.bulk_columns import ColumnReader, RecordColumns
from flintmq.core.record.queue_unit import UNIT_BYTES
from flintmq.dispatchers.consume_queue import queue_units
from flintmq.plugins.delay.delay_times import DelayTimes
from flintmq.plugins.doctor.expected import request_of
from flintmq.plugins.doctor.files import map_read_only
from flintmq.plugins.spark.maintenance.errors import MaintenanceError
from flintmq.plugins.spark.maintenance.pieces import Piece

KEY: Final = np.dtype([("hash", "<i8"), ("physical", "<i8"), ("stored_ms", "<i8")])
"""A key of the index on its way from the piece to the index file."""
_WRITE_BYTES: Final = 4 * 1024 * 1024
_DISPATCHED_TO_MANY: Final = b"INNER_MULTI_DISPATCH"

QueueKey = tuple[str, int]


@attrs.frozen
class RebuildTask:
    """What one task needs to know."""

    piece: Piece
    out: str
    """Where the new queues are made."""
    queue_file_bytes: int
    delays: DelayTimes
    """Of every level that a message may have."""
    keys_path: str | None
    """Where the piece's keys go; None without an index."""


@attrs.frozen
class QueueRun:
    """What one piece has of one queue."""

    first: int
    """Queue offset of its first message."""
    count: int
    is_run: bool
    """Whether each message's queue offset is one more than that of the one before it; else nothing was written."""


@attrs.frozen
class PieceDone:
    """What one task found."""

    records: int
    keys: int
    end_offset_bytes: int
    """Physical offset behind the last record; behind the file where a blank ends it."""
    ends_log: bool
    """Whether there are zeros where the next record would be: then no record may follow in any later piece."""
    queues: tuple[tuple[QueueKey, QueueRun], ...]


class _Queue:
    """The units of one queue, as far as they are not written."""

    __slots__ = ("count", "first", "is_run", "units", "written")

    def __init__(self, first: int) -> None:
        self.first = first
        self.count = 0
        self.is_run = first >= 0
        self.units: list[bytes] = []
        self.written = 0
        """Units that are in the file already."""


def rebuild_piece(task: RebuildTask) -> PieceDone:
    """Read a piece, write its units where they belong, and its keys into a file.

    Several tasks may write into one file: each writes only the units of its own records, whose places no other record has,
    and a task that runs twice writes the same twice.

    Raises:
        MaintenanceError: bytes that are no record where one must be, or a message that belongs into several queues.
        OSError: the new files cannot be written.
    """
    piece = task.piece
    view = map_read_only(Path(piece.path))
    mentions = _mentions(view, piece)
    queues: dict[QueueKey, _Queue] = {}
    keys: list[bytes] = []
    records = key_count = waiting = 0
    end = piece.base + piece.at
    for columns in columns_of(view, piece, task.delays):
        records += len(columns)
        if len(mentions):
            _refuse_many_queues(columns, mentions)
        end = columns.end_offset_bytes
        waiting += _add_units(columns, queues)
        if task.keys_path is not None:
            made = _keys(columns)
            key_count += len(made)
            keys.append(made.tobytes())
        if waiting > _WRITE_BYTES:
            _write_all(task, queues)
            waiting = 0
    end_at, ends_log = check_end(view, piece, end - piece.base)
    _write_all(task, queues)
    if task.keys_path is not None:
        Path(task.keys_path).write_bytes(b"".join(keys))
    runs = tuple((key, QueueRun(queue.first, queue.count, queue.is_run)) for key, queue in queues.items())
    return PieceDone(records, key_count, piece.base + end_at, ends_log, runs)


def columns_of(view: memoryview, piece: Piece, delays: DelayTimes) -> Iterator[RecordColumns]:
    """The records of a piece in bulk; see :class:`flintmq.core.record.bulk_columns.ColumnReader`."""

    def request_at(at: int) -> DispatchRequest:
        return request_of(rec.decode_record(view, at, check_crc=False), delays)

    return ColumnReader((SCHEDULE_TOPIC,)).read(view, piece.base, piece.at, piece.end_at, request_at)


def check_end(view: memoryview, piece: Piece, at: int) -> tuple[int, bool]:
    """Where a piece ends, given where reading ended: the file's end where a blank is there; and whether the log may end there.

    Raises:
        MaintenanceError: it does not end in a record.
    """
    if at == piece.end_at:
        return at, False
    if piece.end_at == len(view):
        if len(view) - at < rec.BLANK_MIN_BYTES:
            if not any(view[at:]):
                return at, True
        else:
            size, magic = rec.SIZE_AND_MAGIC.unpack_from(view, at)
            if magic == rec.MAGIC_BLANK:
                return len(view), False
            if not size and not magic:
                return at, True
    raise damage(piece, at)


def damage(piece: Piece, at: int) -> MaintenanceError:
    """What to say of bytes that are no record where one must be."""
    return MaintenanceError(
        f"{piece.path}: no record at position {piece.base + at}: the log is damaged there, or torn. "
        "flintmq store repair mends it; flintmq store explain says more"
    )


def _mentions(view: memoryview, piece: Piece) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where in the file the name of the property of messages of several queues stands, in properties or elsewhere."""
    found: list[int] = []
    mapped = view.obj
    if isinstance(mapped, mmap.mmap):
        at = mapped.find(_DISPATCHED_TO_MANY, piece.at, piece.end_at)
        while at >= 0:
            found.append(at)
            at = mapped.find(_DISPATCHED_TO_MANY, at + 1, piece.end_at)
    return np.array(found, np.int64)


def _refuse_many_queues(columns: RecordColumns, mentions: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """A message with that property also has a place in queues that only the broker that dispatched it knew."""
    begins = columns.begin_at
    rows = np.unique(np.searchsorted(begins, mentions, "right") - 1)
    for row in rows[rows >= 0].tolist():
        inside = mentions[(mentions >= begins[row]) & (mentions < begins[row] + columns.size[row])]
        if len(inside) and _DISPATCHED_TO_MANY.decode() in columns.request_at(int(begins[row])).properties:
            raise MaintenanceError(
                f"the message at position {columns.physical[row]} has the property {_DISPATCHED_TO_MANY.decode()}: it belongs "
                "into queues that the log does not name; let the broker that wrote the store rebuild them"
            )


def _add_units(columns: RecordColumns, queues: dict[QueueKey, _Queue]) -> int:
    """Take the units of some records; return their size."""
    rows = queue_units.visible_rows(columns)
    if not len(rows):
        return 0
    for key, group in queue_units.by_queue(columns, rows):
        first = int(columns.queue_offset[group[0]])
        queue = queues.get(key)
        if queue is None:
            queue = queues[key] = _Queue(first)
            queue.is_run = queue.is_run and key[1] >= 0
        if queue.is_run:
            run_first = queue_units.first_of_run(columns, group)
            if run_first == queue.first + queue.count:
                queue.units.append(queue_units.units(columns, group))
            else:
                queue.is_run = False
                queue.units.clear()
        queue.count += len(group)
    return len(rows) * UNIT_BYTES


def _keys(columns: RecordColumns) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    kept = columns.indexed[columns.key_row]
    row = columns.key_row[kept]
    made = np.empty(len(row), KEY)
    made["hash"] = columns.key_hash[kept]
    made["physical"] = columns.physical[row]
    made["stored_ms"] = columns.store_timestamp_ms[row]
    return made


def _write_all(task: RebuildTask, queues: Mapping[QueueKey, _Queue]) -> None:
    for (topic, queue_id), queue in queues.items():
        if queue.units:
            data = b"".join(queue.units)
            queue.units.clear()
            folder = queue_folder(Path(task.out) / "consumequeue", topic, queue_id)
            write_units(folder, task.queue_file_bytes, (queue.first + queue.written) * UNIT_BYTES, data)
            queue.written += len(data) // UNIT_BYTES


def write_units(folder: Path, file_bytes: int, position: int, data: bytes) -> None:
    """Put units where they belong, into as many files as it takes; each file gets its full size, the rest are zeros."""
    folder.mkdir(parents=True, exist_ok=True)
    done = 0
    while done < len(data):
        start = (position + done) // file_bytes * file_bytes
        at = position + done - start
        part = data[done : done + file_bytes - at]
        fd = os.open(folder / f"{start:020d}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(fd).st_size != file_bytes:
                os.ftruncate(fd, file_bytes)
            if os.pwrite(fd, part, at) != len(part):
                raise OSError(f"{folder}: the units could not be written whole")
        finally:
            os.close(fd)
        done += len(part)

"""The two kinds of tasks of a rebuild: :func:`rebuild_piece` writes consume queue units and keys, :func:`build_index` writes an
index file from keys."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import numpy as np

from flintmq.config.rocketmq.system_topics import DELETED_TOPIC
from flintmq.config.sections.models import IndexSection
from flintmq.core.io.paths import queue_folder
from flintmq.core.record.bulk_columns import RecordColumns
from flintmq.core.record.queue_unit import UNIT_BYTES
from flintmq.core.record.record_batch import RecordBatch
from flintmq.core.record.topic_lives import deleted_topics
from flintmq.dispatchers.consume_queue import queue_units
from flintmq.dispatchers.consume_queue.delay_times import DelayTimes
from flintmq.dispatchers.index import index_bulk
from flintmq.dispatchers.index.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES, IndexFile
from flintmq.plugins.spark.errors import MaintenanceError
from flintmq.plugins.spark.maintenance.pieces import Piece, PieceTask, check_end, columns_of
from flintmq.programs.doctor.expected import QueueKey
from flintmq.programs.doctor.files import map_read_only
from flintmq.programs.doctor.verify_index import INDEX_HEADER

KEY: Final = np.dtype([("hash", "<i8"), ("physical", "<i8"), ("stored_ms", "<i8")])
"""Numpy format of an index key in the file of index keys of a piece of the log."""
_WRITE_BYTES: Final = 4 * 1024 * 1024
_DISPATCHED_TO_MANY: Final = b"INNER_MULTI_DISPATCH"


@attrs.frozen
class RebuildTask(PieceTask):
    """The task to rebuild the consume queue units and the index keys of one piece of the commit log."""

    out: str
    """Folder in which the task makes the new consume queues."""
    queue_file_bytes: int
    delays: DelayTimes
    """Delays of each delay level, from which the task computes the delivery times of delayed messages."""
    keys_path: str | None
    """Path of the file to which the task writes the index keys of the piece; None if the rebuild makes no index."""


@attrs.define
class QueueRun:
    """The messages of one queue in one piece of the log: their number, and whether their queue offsets are consecutive."""

    first: int
    """Queue offset of the first message of the queue in the piece."""
    is_run: bool
    """Whether the queue's messages in this piece of the log have consecutive queue offsets. If the queue offsets have gaps or
    repeats, the task writes no consume queue units of this queue."""
    count: int = 0
    units: list[bytes] = attrs.field(factory=list)
    """Consume queue units of the queue that the task has not written yet."""
    written: int = 0
    """Number of consume queue units of the queue that the task has written."""


@attrs.frozen
class PieceDone:
    """The result of rebuilding the consume queue units and index keys of one piece of the log."""

    records: int
    keys: int
    end_offset_bytes: int
    """Physical offset just past the last record of the piece; if a blank record ends the file, the physical offset just past
    the file."""
    ends_log: bool
    """Whether zeros follow the last record of the piece. After such a piece, no later piece may contain a record."""
    queues: dict[QueueKey, QueueRun]
    deleted: frozenset[str]
    """Topics that a record in this piece of the log deletes."""


def rebuild_piece(task: RebuildTask) -> PieceDone:
    """Write the consume queue units of a piece of the log to the new queue files, and the piece's index keys to a key file.

    Several tasks may write to one queue file: each task writes only the units of its records, at positions that no other record
    has. A task that runs twice writes the same bytes twice.

    Raises:
        MaintenanceError: no record begins at a position at which a record must begin, or a message belongs to several queues.
        OSError: the new files cannot be written.
    """
    piece = task.piece
    view = map_read_only(Path(piece.path))
    mentions = _mentions(view, piece)
    queues: dict[QueueKey, QueueRun] = {}
    keys: list[bytes] = []
    deleted: set[str] = set()
    records = key_count = waiting = 0
    end = piece.base + piece.at
    for columns in columns_of(view, piece, task.delays):
        records += len(columns)
        if len(mentions):
            _refuse_many_queues(columns, mentions)
        end = columns.end_offset_bytes
        waiting += _add_units(columns, queues)
        if DELETED_TOPIC in columns.topics:
            deleted.update(deleted_topics(RecordBatch.of_columns(columns)))
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
    return PieceDone(records, key_count, piece.base + end_at, ends_log, queues, frozenset(deleted))


def _mentions(view: memoryview, piece: Piece) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the positions in the file at which the bytes ``INNER_MULTI_DISPATCH`` lie, whether in properties or elsewhere."""
    found: list[int] = []
    mapped = view.obj
    if isinstance(mapped, mmap.mmap):
        at = mapped.find(_DISPATCHED_TO_MANY, piece.at, piece.end_at)
        while at >= 0:
            found.append(at)
            at = mapped.find(_DISPATCHED_TO_MANY, at + 1, piece.end_at)
    return np.array(found, np.int64)


def _refuse_many_queues(columns: RecordColumns, mentions: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Raise MaintenanceError if a message belongs to several queues. The queues cannot be rebuilt in this case, because the log
    does not record the message's queue offset in each queue."""
    begins = columns.begin_at
    rows = np.unique(np.searchsorted(begins, mentions, "right") - 1)
    for row in rows[rows >= 0].tolist():
        inside = mentions[(mentions >= begins[row]) & (mentions < begins[row] + columns.size[row])]
        if len(inside) and _DISPATCHED_TO_MANY.decode() in columns.request_at(int(begins[row])).properties:
            raise MaintenanceError(
                f"the message at position {columns.physical[row]} has the property {_DISPATCHED_TO_MANY.decode()}, so it "
                "belongs to several queues. The log does not contain its offset in each queue: rebuild the queues with the "
                "broker that wrote the store"
            )


def _add_units(columns: RecordColumns, queues: dict[QueueKey, QueueRun]) -> int:
    """Make the consume queue units of some records, add the units to ``queues`` to be written later, and return the units' size
    in bytes."""
    rows = queue_units.visible_rows(columns)
    if not len(rows):
        return 0
    for key, group in queue_units.by_queue(columns, rows):
        first = int(columns.queue_offset[group[0]])
        queue = queues.get(key)
        if queue is None:
            queue = queues[key] = QueueRun(first, is_run=first >= 0 and key[1] >= 0)
        if queue.is_run:
            if queue_units.first_of_run(columns, group) == queue.first + queue.count:
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


def _write_all(task: RebuildTask, queues: Mapping[QueueKey, QueueRun]) -> None:
    for (topic, queue_id), queue in queues.items():
        if queue.units:
            data = b"".join(queue.units)
            queue.units.clear()
            folder = queue_folder(Path(task.out) / "consumequeue", topic, queue_id)
            write_units(folder, task.queue_file_bytes, (queue.first + queue.written) * UNIT_BYTES, data)
            queue.written += len(data) // UNIT_BYTES


def write_units(folder: Path, file_bytes: int, position: int, data: bytes) -> None:
    """Write consecutive units at a position of a consume queue, into as many of the queue's files as needed. A new file has its
    full size, filled with zeros."""
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
                raise OSError(f"{folder}: only a part of the consume queue entries could be written")
        finally:
            os.close(fd)
        done += len(part)


_INT_MAX: Final = 0x7FFFFFFF
_CHUNK: Final = 2_000_000
"""Number of index keys that are read into memory at a time. An index file may have twenty million keys."""


@attrs.frozen
class KeySlice:
    """A range of the index keys in a key file, which contains the keys of one piece of the log."""

    path: str
    first: int
    count: int


@attrs.frozen
class IndexTask:
    """The task to build one index file: its path, its size, and the keys to write."""

    path: str
    slots: int
    entries: int
    keys: tuple[KeySlice, ...]
    """Slices of files of index keys, in the order of the log. Together, the slices contain the keys that the task writes to the
    index file. These are at most :attr:`entries` - 1 keys: the index file has :attr:`entries` entries, one for each key, but
    entry 0 is never used."""

    @property
    def size(self) -> int:
        return sum(part.count for part in self.keys)


def build_index(task: IndexTask) -> None:
    """Write an index file with the same bytes that the broker would write. Raises OSError."""
    slots = np.zeros(task.slots, ">i4")
    entries_at = HEADER_BYTES + task.slots * SLOT_BYTES
    count, used = 1, 0
    begin: tuple[int, int] | None = None
    end = (0, 0)
    with Path(task.path).open("wb") as file:
        file.truncate(IndexFile.size_bytes(task.slots, task.entries))
        for keys in _chunks(task):
            if begin is None:
                begin = (int(keys["stored_ms"][0]), int(keys["physical"][0]))
            end = (int(keys["stored_ms"][-1]), int(keys["physical"][-1]))
            hashes = keys["hash"]
            stored = slots[hashes % task.slots].astype(np.int64)
            previous, changed, values, empty = index_bulk.chain(hashes, task.slots, stored, count)
            slots[changed] = values
            used += empty
            seconds = np.clip((keys["stored_ms"] - begin[0]) // 1000, 0, _INT_MAX)
            file.seek(entries_at + count * ENTRY_BYTES)
            file.write(index_bulk.pack_entries(hashes, keys["physical"], seconds, previous))
            count += len(keys)
        begin = begin or (0, 0)
        file.seek(0)
        file.write(INDEX_HEADER.pack(begin[0], end[0], begin[1], end[1], used, count))
        file.write(slots.tobytes())


def _chunks(task: IndexTask) -> list[np.ndarray[tuple[int], np.dtype[np.void]]]:
    """Return the index keys of a task in chunks. Each chunk is a memory map of a part of a key file."""
    found = []
    for part in task.keys:
        keys = np.memmap(part.path, KEY, "r", 0)[part.first : part.first + part.count]
        found += [keys[at : at + _CHUNK] for at in range(0, len(keys), _CHUNK)]
    return found


def index_tasks(key_counts: Sequence[int], keys_folder: Path, work: Path, index: IndexSection) -> Iterator[IndexTask]:
    """Yield the index files to build, from the keys of all pieces in the order of the pieces.

    Args:
        key_counts: the number of keys of each piece.
        keys_folder: the folder with one key file per piece, named by the piece's number.
        work: the folder that gets the folder ``index``.
        index: the settings of the index.
    """
    room = index.max_index_num - 1
    slices: list[KeySlice] = []
    left = room
    name = 0

    def task() -> IndexTask:
        path = str(work / "index" / f"{name:017d}")
        return IndexTask(path, index.max_hash_slot_num, index.max_index_num, tuple(slices))

    for number, key_count in enumerate(key_counts):
        path = key_file(keys_folder, number)
        first = 0
        while first < key_count:
            count = min(left, key_count - first)
            slices.append(KeySlice(path, first, count))
            first += count
            left -= count
            if not left:
                name = _index_name(slices[0], name)
                yield task()
                slices, left = [], room
    if slices:
        name = _index_name(slices[0], name)
        yield task()


def key_file(keys_folder: Path, piece: int) -> str:
    """Return the path of the file with the index keys of one piece of the log."""
    return str(keys_folder / f"{piece:08d}")


def _index_name(first: KeySlice, before: int) -> int:
    """Return the name of an index file, which is the time of the file's first key. Keys are in the log's order, so each rebuild
    gives the same names."""
    stored_ms = int(np.memmap(first.path, KEY, "r", 0)[first.first]["stored_ms"])
    try:
        local = time.localtime(stored_ms // 1000)
        name = int(f"{time.strftime('%Y%m%d%H%M%S', local)}{stored_ms % 1000:03d}")
    except (OverflowError, ValueError, OSError):
        # If the calendar cannot represent the store timestamp, the index file's name is the previous file's name plus 1.
        name = 0
    return max(name, before + 1)

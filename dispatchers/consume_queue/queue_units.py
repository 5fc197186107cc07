"""Functions on consume queue units: writing and checking many units with numpy, and the search by time.

The functions that need numpy are used once numpy is loaded (:mod:`flintmq.core.io.lazy_numpy`). Until then,
:mod:`.consume_queue` writes and checks the units in loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from flintmq.core.io.lazy_numpy import numpy
from flintmq.core.log.mapped_file_queue import MappedFile
from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT, UNIT_BYTES, is_filler

if TYPE_CHECKING:
    from flintmq.core.record.bulk_columns import RecordColumns
    from flintmq.core.record.bulk_scan import Column
    from flintmq.dispatchers.consume_queue.consume_queue import ConsumeQueue

_UNIT: Final = [("physical", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]
OFFSET_MAX: Final = 2**62
"""Physical offset above which a unit is invalid, because no log reaches this offset."""
_SMALL: Final = 1 << 16
_TURN: Final = 16_384


def visible_rows(columns: RecordColumns) -> Column:
    """Return the row numbers of the records that have units in consume queues. The columns contain one row for each record."""
    return numpy.flatnonzero(columns.visible)


def by_queue(columns: RecordColumns, rows: Column) -> Iterator[tuple[tuple[str, int], Column]]:
    """Group the records in the given rows of the columns by their queues.

    Yield, for each queue, the pair (topic, queue id) and the row numbers of the queue's records in order.
    """
    queue_id, topic_code = columns.queue_id[rows], columns.topic_code[rows]
    number = topic_code * (int(queue_id.max()) + 1) + queue_id
    if queue_id.min() >= 0 and number.max() < _SMALL:
        # The stable sort of 16-bit integers is fast, because numpy uses a radix sort for them.
        number = number.astype(numpy.uint16)
    else:
        number = (topic_code << 32) + queue_id
    order = numpy.argsort(number, kind="stable")
    in_order = number[order]
    bounds = numpy.flatnonzero(in_order[1:] != in_order[:-1]) + 1
    for group in numpy.split(order, bounds):
        first = group[0]
        yield (columns.topics[topic_code[first]], int(queue_id[first])), rows[group]


def behind(columns: RecordColumns, rows: Column, end_offset_bytes: int) -> Column:
    """Return those of the given row numbers whose records end after a physical offset."""
    ends = columns.physical[rows] + columns.size[rows]
    return rows if ends[0] > end_offset_bytes else rows[ends > end_offset_bytes]


def first_of_run(columns: RecordColumns, rows: Column) -> int:
    """Return the queue offset of the first record in the given rows; -1 if the records' queue offsets are not consecutive."""
    queue_offset = columns.queue_offset[rows]
    is_run = (queue_offset[1:] - queue_offset[:-1] == 1).all()
    return int(queue_offset[0]) if is_run else -1


def units(columns: RecordColumns, rows: Column) -> bytes:
    """Return the bytes of the consume queue units of the records in the given rows."""
    packed = numpy.empty(len(rows), _UNIT)
    packed["physical"] = columns.physical[rows]
    packed["size"] = columns.size[rows]
    packed["tags_code"] = columns.tags_code[rows]
    return packed.tobytes()


def valid_units(units: memoryview, known: int) -> tuple[int, int]:
    """Return the number of valid consume queue units before the first invalid unit, and the physical end of the newest message
    of these units.

    See :meth:`flintmq.dispatchers.consume_queue.consume_queue.ConsumeQueue.recover`. Reading stops at the first invalid unit,
    so the unused end of a queue is not read.
    """
    table = numpy.frombuffer(units, _UNIT)
    for begin in range(0, len(table), _TURN):
        part = table[begin : begin + _TURN]
        physical, size = part["physical"].astype(numpy.int64), part["size"].astype(numpy.int64)
        is_filler = (physical == 0) & (size == FILLER_SIZE)
        ends = numpy.empty(len(part) + 1, numpy.int64)
        ends[0] = known
        ends[1:] = numpy.where(is_filler, -1, physical + size)
        before = numpy.maximum.accumulate(ends)
        is_valid = is_filler | ((physical >= before[:-1]) & (size > 0) & (physical >= 0) & (physical <= OFFSET_MAX))
        if not is_valid.all():
            valid = int(is_valid.argmin())
            return begin + valid, int(before[valid])
        known = int(before[-1])
    return len(table), known


def nearest_in_time(
    queue: ConsumeQueue, timestamp_ms: int, min_physical_offset_bytes: int, store_time: Callable[[int], int]
) -> int:
    """Return the queue offset of the message stored nearest to a time; 0 for an empty queue.

    The file is chosen by the store time of its last message, not by its modification time, which a copy or a restore changes.
    See docs/internals/algorithms.md, Offset by time.

    Args:
        queue: the queue.
        timestamp_ms: the time, in ms since 1970.
        min_physical_offset_bytes: the physical start of the log; messages below it are deleted.
        store_time: returns the store time in ms of the message at a physical offset; -1 if it is deleted.
    """
    file = _file_by_time(queue, timestamp_ms, store_time)
    if file is None:
        return 0
    low = max(0, queue.min_logic_offset_bytes - file.start)
    high = file.wrote - UNIT_BYTES
    left = right = -1
    left_ms = right_ms = -1
    target = -1
    while high >= low:
        mid = (low + high) // (2 * UNIT_BYTES) * UNIT_BYTES
        physical, size, _tags = UNIT.unpack_from(file.view, mid)
        if size == FILLER_SIZE and not physical:
            limit = (file.start + high) // UNIT_BYTES + 1
            behind = queue.behind_fillers((file.start + mid) // UNIT_BYTES, limit)
            if behind == limit:
                high = mid - UNIT_BYTES  # only fillers
                continue
            mid = behind * UNIT_BYTES - file.start
            physical = UNIT.unpack_from(file.view, mid)[0]
        if physical < min_physical_offset_bytes:
            low, left = mid + UNIT_BYTES, mid
            continue
        stored_ms = store_time(physical)
        if stored_ms < 0:
            return 0
        if stored_ms == timestamp_ms:
            target = mid
            break
        if stored_ms > timestamp_ms:
            high, right, right_ms = mid - UNIT_BYTES, mid, stored_ms
        else:
            low, left, left_ms = mid + UNIT_BYTES, mid, stored_ms
    if target == -1:
        if left_ms == -1:
            target = right
        elif right_ms == -1:
            target = left
        else:
            target = right if timestamp_ms - left_ms > right_ms - timestamp_ms else left
    return (file.start + max(0, target)) // UNIT_BYTES


def _file_by_time(queue: ConsumeQueue, timestamp_ms: int, store_time: Callable[[int], int]) -> MappedFile | None:
    files = [file for file in queue.files.files if file.wrote]
    low, high = 0, len(files) - 1
    while low < high:
        middle = (low + high) // 2
        physical = _last_physical(files[middle])
        if physical >= 0 and store_time(physical) >= timestamp_ms:
            high = middle
        else:
            low = middle + 1
    return files[low] if files else None


def _last_physical(file: MappedFile) -> int:
    """Return the physical offset of the newest message in a consume queue file; -1 if the file has only filler units, which
    stand for no message."""
    for at in range(file.wrote - UNIT_BYTES, -1, -UNIT_BYTES):
        unit = UNIT.unpack_from(file.view, at)
        if not is_filler(unit):
            return int(unit[0])
    return -1

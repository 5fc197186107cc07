"""Consume queue units many at a time with numpy: which records go to which queue, what is written, where a queue ends.

Used once numpy is loaded (:mod:`flintmq.core.io.lazy_numpy`); :mod:`.consume_queue` writes and finds the same one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from flintmq.core.io.lazy_numpy import numpy
from flintmq.core.record.queue_unit import FILLER_SIZE

if TYPE_CHECKING:
    from flintmq.core.record.bulk_columns import RecordColumns
    from flintmq.core.record.bulk_scan import Column

_UNIT: Final = [("physical", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]
OFFSET_MAX: Final = 2**62
"""No log is as long: a unit that says otherwise is none."""
_SMALL: Final = 1 << 16
_TURN: Final = 16_384


def visible_rows(columns: RecordColumns) -> Column:
    """The records that belong into queues."""
    return numpy.flatnonzero(columns.visible)


def by_queue(columns: RecordColumns, rows: Column) -> Iterator[tuple[tuple[str, int], Column]]:
    """The rows of each (topic, queue id), in order."""
    queue_id, topic_code = columns.queue_id[rows], columns.topic_code[rows]
    number = topic_code * (int(queue_id.max()) + 1) + queue_id
    if queue_id.min() >= 0 and number.max() < _SMALL:
        number = number.astype(numpy.uint16)  # sorted by counting
    else:
        number = (topic_code << 32) + queue_id
    order = numpy.argsort(number, kind="stable")
    in_order = number[order]
    bounds = numpy.flatnonzero(in_order[1:] != in_order[:-1]) + 1
    for group in numpy.split(order, bounds):
        first = group[0]
        yield (columns.topics[topic_code[first]], int(queue_id[first])), rows[group]


def behind(columns: RecordColumns, rows: Column, end_offset_bytes: int) -> Column:
    """The rows whose records end behind a physical offset."""
    ends = columns.physical[rows] + columns.size[rows]
    return rows if ends[0] > end_offset_bytes else rows[ends > end_offset_bytes]


def first_of_run(columns: RecordColumns, rows: Column) -> int:
    """The first queue offset when all of them follow one another; else -1."""
    queue_offset = columns.queue_offset[rows]
    is_run = (queue_offset[1:] - queue_offset[:-1] == 1).all()
    return int(queue_offset[0]) if is_run else -1


def units(columns: RecordColumns, rows: Column) -> bytes:
    """The units as they lie in the file."""
    packed = numpy.empty(len(rows), _UNIT)
    packed["physical"] = columns.physical[rows]
    packed["size"] = columns.size[rows]
    packed["tags_code"] = columns.tags_code[rows]
    return packed.tobytes()


def valid_units(units: memoryview, known: int) -> tuple[int, int]:
    """How many units are valid before the first that is not, and where the newest message that they speak of ends.

    See :meth:`flintmq.dispatchers.consume_queue.consume_queue.ConsumeQueue.recover`; a queue's unused end is not looked at.
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

"""Consume queue units in bulk with numpy: which records go to which queue, and what is written there.

Used where numpy is installed (``pip install 'flintmq[fast]'``); :mod:`.consume_queue` alone writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from flintmq.core.io.lazy_numpy import numpy

if TYPE_CHECKING:
    from flintmq.core.store.bulk_columns import RecordColumns
    from flintmq.core.store.bulk_scan import Column

_UNIT: Final = [("physical", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]
_SMALL: Final = 1 << 16


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

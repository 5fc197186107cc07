"""Makes rows from consume queues alone. A unit has 20 bytes with the position, the size and the tags code of a message. The
place of the unit shows the message's topic, queue and queue offset.

The units of all queues are merged into the order of the log, some units at a time. Units are used only while they agree with
the log. If units do not agree with the log, the result contains a :class:`Span`, which the caller reads from the log:

* If all messages are read, each message must end where the next message begins. There are gaps for messages without a unit
  (prepared and rolled back messages, messages of deleted topics, missing units), and for the blank record at a file's end. Each
  gap becomes a span. After the span, units are used again.
* If the message of a unit begins inside the previous message, the rest of the piece (the part of a log file that is being read)
  becomes one span. In this case two queues name the same position, or a size is wrong.
* Some units are compared with the fixed fields of their records: the first and last unit of each queue in a step, the units
  beside a gap, and one in :data:`SAMPLED` others. If one of these units differs, the rest of the piece becomes one span.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import numpy as np
import pyarrow as pa

from flintmq.core.record.heads import read_heads
from flintmq.core.record.record import RECORD_MIN_BYTES
from flintmq.core.record.sys_flag import is_queued
from flintmq.plugins.spark.decoder import Decoder, RowFilter
from flintmq.plugins.spark.decoder.slices import Bools, take_slices
from flintmq.plugins.spark.ports import ANY
from flintmq.plugins.spark.schema import arrow_schema
from flintmq.plugins.spark.store.log_files import Bytes
from flintmq.plugins.spark.store.pieces import Piece
from flintmq.plugins.spark.store.queue_units import Ints, QueueUnits, Step, merged

SAMPLED: Final = 1_024
"""Interval, in consume queue units, at which a unit is compared with its record in the log."""
_GAPS_MAX: Final = 1_000
_LMQ_PREFIX: Final = "%LMQ%"
"""Prefix of the names of topics whose consume queue units refer to messages of other topics (docs/internals/store-format.md,
Special topics)."""

_COLUMNS: Final = frozenset({"topic", "brokerName", "queueId", "queueOffset", "physicalOffset", "storeSize"})


def told_by_units(columns: Sequence[str], rows: RowFilter, *, examines_records: bool) -> bool:
    """Return whether consume queue units contain all requested columns and all data that the filter of the rows needs."""
    return (
        _COLUMNS.issuperset(columns) and rows.tags is None and rows.store_timestamp_ms == ANY and not examines_records
    )


@attrs.frozen
class Span:
    """A range of the log, in physical offsets, whose rows cannot be made from consume queue units and must be read from the
    log."""

    start: int
    end: int


class UnitRows:
    """Makes rows from the units of some consume queues: either the queues to read, or all queues of the store (see
    :meth:`read`)."""

    def __init__(self, queues: Sequence[QueueUnits], decoder: Decoder, batch_rows: int) -> None:
        self._queues = queues
        self._decoder = decoder
        self._batch_rows = batch_rows
        self._schema = arrow_schema(decoder.columns, decoder.properties_format)
        self._topics = pa.array([queue.topic for queue in queues], pa.string())
        self._raw_topics = [queue.topic.encode() for queue in queues]
        self._ids = np.array([queue.queue_id for queue in queues], np.int32)
        rows = decoder.rows
        self._wanted = np.array([rows.wants_queue(queue.topic, queue.queue_id) for queue in queues], np.bool_)
        ranges = {(topic, number): allowed for topic, number, allowed in rows.queue_offsets}
        allowed = [rows.queue_offset.both(ranges.get((queue.topic, queue.queue_id), ANY)) for queue in queues]
        self._allowed = None if all(one == ANY for one in allowed) else allowed

    @property
    def tells_topics(self) -> bool:
        """Whether each consume queue contains only messages of the topic after which the queue is named."""
        return not any(queue.topic.startswith(_LMQ_PREFIX) for queue in self._queues)

    def read(self, data: Bytes, piece: Piece, *, complete: bool) -> Iterator[pa.RecordBatch | Span]:
        """Yield the rows of a piece of the log, and the ranges between the rows that must be read from the log, in the order of
        the log.

        If ``complete`` is set, the queues are all queues of the store, and should contain every message of the piece.
        """
        at = piece.start
        gaps = 0
        for step in merged(self._queues, piece.start, piece.end):
            position = step.units.position
            ends = position + step.units.size
            before = np.concatenate([[at], ends[:-1]])
            breaks = np.flatnonzero(position > before)[: _GAPS_MAX + 1] if complete else step.tips[:0]
            if (
                (position < before).any()
                or ends[-1] > piece.end
                or not self._agrees(data, piece, step, np.concatenate([step.tips, breaks, np.maximum(breaks - 1, 0)]))
            ):
                yield Span(at, piece.end)
                return
            begin = 0
            for gap in breaks.tolist():
                yield from self._batches(step.chosen(slice(begin, gap)))
                gaps += 1
                if gaps > _GAPS_MAX:
                    yield Span(int(before[gap]), piece.end)
                    return
                yield Span(int(before[gap]), int(position[gap]))
                begin = gap
            yield from self._batches(step.chosen(slice(begin, None)))
            at = int(ends[-1])
        if complete and at < piece.end:
            yield Span(at, piece.end)

    def _agrees(self, data: Bytes, piece: Piece, step: Step, index: Ints) -> bool:
        """Return whether consume queue units agree with the fixed fields of their records. Only units at some indices and at
        regular distances are compared."""
        index = np.union1d(index, np.arange(0, len(step), SAMPLED))
        units = step.units.chosen(index)
        starts = units.position - piece.file_start
        if starts[-1] + RECORD_MIN_BYTES > len(data):
            return False
        heads = read_heads(data, starts)
        if heads.bad is not None:
            return False
        raw, queue = heads.raw, step.queue[index]
        topics = take_slices(data, heads.topic_at, heads.topic_length).to_pylist()
        return bool(
            (heads.size == units.size).all()
            and (raw["physical_offset"] == units.position).all()
            and (raw["queue_offset"] == units.queue_offset).all()
            and (raw["queue_id"] == self._ids[queue]).all()
            and is_queued(heads.sys_flag).all()
            and topics == [self._raw_topics[one] for one in queue.tolist()]
        )

    def _batches(self, step: Step) -> Iterator[pa.RecordBatch]:
        keep = self._mask(step)
        if keep is not None:
            step = step.chosen(keep)
        for start in range(0, len(step), self._batch_rows):
            rows = step.chosen(slice(start, start + self._batch_rows))
            yield pa.RecordBatch.from_arrays(
                [self._column(name, rows) for name in self._schema.names], schema=self._schema
            )

    def _mask(self, step: Step) -> Bools | None:
        """Return, for each message, whether the message becomes a row; None if all messages become rows."""
        keep: Bools | None = None if self._wanted.all() else self._wanted[step.queue]
        physical = self._decoder.rows.physical_offset
        if physical != ANY:
            keep = _both(keep, physical.holds(step.units.position))
        for number, allowed in enumerate(self._allowed or ()):
            if allowed != ANY:
                keep = _both(keep, (step.queue != number) | allowed.holds(step.units.queue_offset))
        return keep

    def _column(self, name: str, rows: Step) -> pa.Array:
        if name == "topic":
            return self._topics.take(pa.array(rows.queue))
        if name == "brokerName":
            return pa.array([self._decoder.broker_name], pa.string()).take(pa.array(np.zeros(len(rows), np.int32)))
        if name == "queueId":
            return pa.array(self._ids[rows.queue])
        if name == "storeSize":
            return pa.array(rows.units.size.astype(np.int32))
        return pa.array(rows.units.queue_offset if name == "queueOffset" else rows.units.position)


def _both(one: Bools | None, other: Bools) -> Bools:
    return other if one is None else one & other

"""Where a micro-batch ends that may hold so many messages or bytes: exact, from the consume queues, or from the log where they
do not tell all: a copy of a log alone, a store whose broker has crashed, or is just writing them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from flintmq.core.record.heads import read_heads
from flintmq.core.record.record import RECORD_MIN_BYTES
from flintmq.plugins.spark.decoder import RowFilter, chain
from flintmq.plugins.spark.ports import Limit
from flintmq.plugins.spark.store.log_files import LogFiles, map_file
from flintmq.plugins.spark.store.queue_units import QueueUnits, Units
from flintmq.plugins.spark.store.record_places import is_record

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

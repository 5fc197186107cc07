"""Where a micro-batch ends that may hold so many messages or bytes: exact, from the consume queues."""

from __future__ import annotations

import numpy as np

from flintmq.core.message.record import RECORD_MIN_BYTES
from flintmq.plugins.spark.ports import Limit
from flintmq.plugins.spark.store.log_files import LogFiles
from flintmq.plugins.spark.store.queue_units import QueueUnits, Units
from flintmq.plugins.spark.store.record_places import is_record

_STEP_UNITS = 65_536


def always_fits(start: int, end: int, limit: Limit) -> bool:
    """Whether what lies in [start, end) keeps within a limit whatever it is."""
    size = end - start
    fits_bytes = limit.max_bytes is None or size <= limit.max_bytes
    return fits_bytes and (limit.max_rows is None or size < limit.max_rows * RECORD_MIN_BYTES)


def cut_at_limit(log: LogFiles, queues: list[QueueUnits], start: int, end: int, limit: Limit) -> int:
    """The furthest place in (start, end] with at most so many messages, or bytes of records, before it.

    Args:
        log: the commit log.
        queues: those that are read.
        start: a place in the log.
        end: one behind it.
        limit: at least one message is let through.

    Returns:
        ``end``, or the place of a message of these queues.
    """
    units = Units.merged([_first_units(queue, start, end, limit) for queue in queues])
    count = len(units)
    if limit.max_rows is not None:
        count = min(count, limit.max_rows)
    if limit.max_bytes is not None:
        fitting = int(np.searchsorted(np.cumsum(units.size), limit.max_bytes, side="right"))
        count = min(count, max(1, fitting))
    for index in range(count, len(units)):
        place = int(units.position[index])
        if is_record(log, place, int(units.size[index])):
            return place
    return end


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


def rows_between(queues: list[QueueUnits], start: int, end: int, enough: int) -> int:
    """How many messages of some queues lie in [start, end); stops counting at ``enough``."""
    total = 0
    for queue in queues:
        total += max(0, queue.first_at(end) - queue.first_at(start))
        if total >= enough:
            break
    return total

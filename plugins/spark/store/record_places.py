"""Places of the log that are known to begin a record, because something other than the bytes there says so."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from flintmq.core.record.heads import read_heads
from flintmq.core.record.record import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_MIN_BYTES,
    RecordError,
    decode_record,
    store_timestamp_at,
)
from flintmq.plugins.spark.decoder import chain
from flintmq.plugins.spark.store.log_files import LogFile, LogFiles, map_file
from flintmq.plugins.spark.store.queue_units import QueueUnits

_SPLITTERS_MAX = 16


def is_record(log: LogFiles, position: int, size: int) -> bool:
    """Whether a record of that size that names this place lies there, going by its head."""
    record = log.bytes_at(position, size) if size >= RECORD_MIN_BYTES else None
    return (
        record is not None
        and int.from_bytes(record[:4], "big") == size
        and int.from_bytes(record[4:8], "big") in (MAGIC_V1, MAGIC_V2)
        and int.from_bytes(record[28:36], "big") == position
    )


def is_whole_record(log: LogFiles, position: int, size: int) -> bool:
    """Return whether a record lies at a place, with every length and the CRC of its body checked."""
    record = log.bytes_at(position, size) if is_record(log, position, size) else None
    if record is None:
        return False
    try:
        decode_record(record)
    except RecordError:
        return False
    return True


def splitters(queues: list[QueueUnits]) -> list[QueueUnits]:
    """The queues whose units are looked at for places to split: the fullest ones."""
    return sorted(queues, key=lambda queue: queue.end_unit - queue.first_unit, reverse=True)[:_SPLITTERS_MAX]


def first_place(log: LogFiles, queues: list[QueueUnits], position: int) -> int | None:
    """The first place from a position on at which a unit says that a record begins, and it does; None without any."""
    found = None
    for queue in queues:
        unit = queue.unit(queue.first_at(position))
        if unit is not None and (found is None or unit[0] < found) and is_record(log, unit[0], unit[1]):
            found = unit[0]
    return found


def first_place_from(log: LogFiles, splitters: list[QueueUnits], timestamp_ms: int, end: int) -> int | None:
    """The place of the first message that was stored at a time or later; None where there is none before ``end``.

    Store times grow along the log, so the files' first records lead to the right file.

    Args:
        log: the commit log.
        splitters: queues whose units may be asked to come near.
        timestamp_ms: since 1970.
        end: how far the log may be read.

    Raises:
        StoreError: a file cannot be read.
    """
    files = log.between(log.start, end)
    late = bisect_left(files, True, key=lambda file: not _is_before(log, file.start, timestamp_ms))
    for file in files[max(0, late - 1) :]:
        start = _nearer(log, splitters, file, timestamp_ms, end)
        place = _walked(file, start, min(end, file.end), timestamp_ms)
        if place is not None:
            return place
    return None


def _is_before(log: LogFiles, position: int, timestamp_ms: int) -> bool:
    """Whether a record lies at a place that was stored before a time."""
    record = log.bytes_at(position, RECORD_MIN_BYTES)
    return record is not None and store_timestamp_at(record, 0) < timestamp_ms


def _nearer(log: LogFiles, splitters: list[QueueUnits], file: LogFile, timestamp_ms: int, end: int) -> int:
    """The end of the last message of a file that queues know of and that was stored before a time."""
    best = file.start
    limit = min(end, file.end)

    def is_behind(position: int) -> bool:
        return position >= file.start and not (position < limit and _is_before(log, position, timestamp_ms))

    for queue in splitters:
        unit = queue.unit(queue.first_where(is_behind) - 1)
        if unit is not None and file.start <= unit[0] and unit[0] + unit[1] <= limit:
            best = max(best, unit[0] + unit[1])
    return best


def _walked(file: LogFile, start: int, end: int, timestamp_ms: int) -> int | None:
    data = map_file(file.path)
    if data is None:
        return None
    starts = chain.walk(data, start - file.start, end - file.start).starts
    if not len(starts):
        return None
    late = read_heads(data, starts).store_timestamp_ms >= timestamp_ms
    return file.start + int(starts[np.argmax(late)]) if late.any() else None

"""Places of the log that are known to begin a record, because something other than the bytes there says so."""

from __future__ import annotations

import numpy as np

from flintmq.core.record.heads import read_heads
from flintmq.core.record.record import MAGIC_V1, MAGIC_V2, RECORD_MIN_BYTES, RecordError, decode_record
from flintmq.plugins.spark.decoder import chain
from flintmq.plugins.spark.store.log_files import LogFile, LogFiles, map_file
from flintmq.plugins.spark.store.queue_units import QueueUnits

_SPLITTERS_MAX = 16


def is_record(log: LogFiles, position: int, size: int) -> bool:
    """Whether a record of that size that names this place lies there, going by its head."""
    file = log.holding(position)
    if file is None or size < RECORD_MIN_BYTES or position + size > file.end:
        return False
    try:
        head = map_file(file.path)[position - file.start : position - file.start + 36].tobytes()
    except FileNotFoundError:
        return False
    return (
        int.from_bytes(head[:4], "big") == size
        and int.from_bytes(head[4:8], "big") in (MAGIC_V1, MAGIC_V2)
        and int.from_bytes(head[28:36], "big") == position
    )


def is_whole_record(log: LogFiles, position: int, size: int) -> bool:
    """Return whether a record lies at a place, with every length and the CRC of its body checked."""
    file = log.holding(position)
    if file is None or not is_record(log, position, size):
        return False
    try:
        decode_record(map_file(file.path).data, position - file.start)
    except (RecordError, FileNotFoundError):
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


def store_timestamp_ms(log: LogFiles, position: int) -> int | None:
    """When the record at a place was stored; None where the place is gone."""
    from flintmq.core.record.record import store_timestamp_at

    file = log.holding(position)
    if file is None or position + RECORD_MIN_BYTES > file.end:
        return None
    try:
        return store_timestamp_at(map_file(file.path).data, position - file.start)
    except FileNotFoundError:
        return None


def first_place_from(log: LogFiles, splitters: list[QueueUnits], timestamp_ms: int, end: int) -> int | None:
    """The place of the first message that was stored at a time or later; None where there is none before ``end``.

    Args:
        log: the commit log.
        splitters: queues whose units may be asked to come near.
        timestamp_ms: since 1970.
        end: how far the log may be read.

    Raises:
        StoreError: a file cannot be read.
    """
    files = log.between(log.start, end)
    low, high = 0, len(files)
    while low < high:  # the first file that begins at the time or later
        middle = (low + high) // 2
        first_ms = store_timestamp_ms(log, files[middle].start)
        if first_ms is not None and first_ms < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    for file in files[max(0, low - 1) :]:
        start = _nearer(log, splitters, file, timestamp_ms, end)
        place = _walked(file, start, min(end, file.end), timestamp_ms)
        if place is not None:
            return place
    return None


def _nearer(log: LogFiles, splitters: list[QueueUnits], file: LogFile, timestamp_ms: int, end: int) -> int:
    """The end of the last message of a file that queues know of and that was stored before a time."""
    best = file.start
    limit = min(end, file.end)

    def is_behind(position: int) -> bool:
        if position < file.start:
            return False
        stored_ms = store_timestamp_ms(log, position) if position < limit else None
        return stored_ms is None or stored_ms >= timestamp_ms

    for queue in splitters:
        unit = queue.unit(queue.first_where(is_behind) - 1)
        if unit is not None and file.start <= unit[0] and unit[0] + unit[1] <= limit:
            best = max(best, unit[0] + unit[1])
    return best


def _walked(file: LogFile, start: int, end: int, timestamp_ms: int) -> int | None:
    try:
        data = map_file(file.path)
    except FileNotFoundError:
        return None
    starts = chain.walk(data, start - file.start, end - file.start).starts
    if not len(starts):
        return None
    late = read_heads(data, starts).store_timestamp_ms >= timestamp_ms
    return file.start + int(starts[np.argmax(late)]) if late.any() else None

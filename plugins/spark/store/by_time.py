"""From a time to a place in the log. Store times grow along the log, so the files' first records lead to the right file."""

from __future__ import annotations

import numpy as np

from flintmq.core.record.heads import read_heads
from flintmq.plugins.spark.decoder import chain
from flintmq.plugins.spark.store.log_files import LogFile, LogFiles, map_file
from flintmq.plugins.spark.store.queue_units import QueueUnits
from flintmq.plugins.spark.store.record_places import store_timestamp_ms


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

"""Places of the log that are known to begin a record, because something other than the bytes there says so."""

from __future__ import annotations

from flintmq.core.record.record import MAGIC_V1, MAGIC_V2, RECORD_MIN_BYTES, RecordError, decode_record
from flintmq.plugins.spark.store.log_files import LogFiles, map_file
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

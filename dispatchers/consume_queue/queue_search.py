"""The search for the message nearest in time, over the files of one queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.core.log.mapped_file import MappedFile
from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT, UNIT_BYTES, is_filler

if TYPE_CHECKING:
    from flintmq.dispatchers.consume_queue.consume_queue import ConsumeQueue


def nearest_in_time(
    queue: ConsumeQueue, timestamp_ms: int, min_physical_offset_bytes: int, store_time: Callable[[int], int]
) -> int:
    """Return the logical offset of the message nearest in time (docs/internals/algorithms.md, Offset by time); 0 without any.

    The file is picked by the store time of its last unit, not by its modification time, which a copy or a restore changes.

    Args:
        queue: the queue.
        timestamp_ms: the time.
        min_physical_offset_bytes: messages below it are deleted.
        store_time: gives the store time in ms of the message at a physical offset, -1 when it is gone.
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
                high = mid - UNIT_BYTES  # nothing but fillers
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
    """The place of the newest message that a file's units speak of; -1 where there are only fillers."""
    for at in range(file.wrote - UNIT_BYTES, -1, -UNIT_BYTES):
        unit = UNIT.unpack_from(file.view, at)
        if not is_filler(unit):
            return int(unit[0])
    return -1

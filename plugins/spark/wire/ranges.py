"""What tasks pull: ranges of queues, cut and packed into few parts of equal size. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.plugins.spark.errors import CheckpointError
from flintmq.plugins.spark.ports import OFFSET_VERSION, Bounds, Offset, check_offset

_INT64_MAX: Final = 2**63 - 1
SMALL_BYTES: Final = 8 * 1024 * 1024
"""Less than this is not worth a task of its own (docs/spark.md)."""


@attrs.frozen
class QueueRange:
    """Messages of one queue."""

    queue: MessageQueue
    start: int
    """Queue offset of the first."""
    end: int
    """Queue offset behind the last."""

    @property
    def rows(self) -> int:
        return self.end - self.start


def ranges_between(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], first: Mapping[MessageQueue, int]
) -> list[QueueRange]:
    """Return every queue's messages between two offsets; a queue that ``start`` does not know begins at its
    ``first``."""
    found = (QueueRange(queue, start.get(queue, first.get(queue, 0)), end[queue]) for queue in ordered(end))
    return [one for one in found if one.rows > 0]


def narrowed(ranges: Iterable[QueueRange], bounds: Bounds) -> list[QueueRange]:
    """Return what of ranges can lie within bounds."""
    found = []
    for one in ranges:
        if bounds.topics is not None and one.queue.topic not in bounds.topics:
            continue
        if not bounds.queue_id.holds(one.queue.queue_id):
            continue
        start, end = max(one.start, bounds.queue_offset.low), min(one.end, bounds.queue_offset.high + 1)
        if start < end:
            found.append(attrs.evolve(one, start=start, end=end))
    return found


def parts_wanted(total_bytes: int, max_partition_bytes: int, min_partitions: int | None, cores: int) -> int:
    """Return how many tasks: as few as ``max_partition_bytes`` lets, more where cores would stand idle or more are
    asked for."""
    least = -(-total_bytes // max_partition_bytes)
    if least > cores:
        least = -(-least // cores) * cores  # the last ones, too, keep all cores busy
    busy = min(cores, -(-total_bytes // SMALL_BYTES))
    return max(1, least, busy, min_partitions or 1)


def packed(ranges: Sequence[QueueRange], count: int) -> list[tuple[QueueRange, ...]]:
    """Ranges cut into at most ``count`` parts with the same number of messages, but for one."""
    total = sum(one.rows for one in ranges)
    share = -(-total // count) if total else 1
    parts: list[list[QueueRange]] = []
    room = 0
    for one in ranges:
        start = one.start
        while start < one.end:
            if room == 0:
                parts.append([])
                room = share
            end = min(one.end, start + room)
            parts[-1].append(attrs.evolve(one, start=start, end=end))
            room -= end - start
            start = end
    return [tuple(part) for part in parts]


def limited_rows(ranges: Sequence[QueueRange], max_rows: int) -> dict[MessageQueue, int]:
    """Return where each queue's range ends when all together have at most ``max_rows``, which is at least 1.

    Every queue gets one message, so that none starves, and of what is left its share. Where there are more queues than
    messages, those with the most get one.
    """
    if sum(one.rows for one in ranges) <= max_rows:
        return {one.queue: one.end for one in ranges}
    if max_rows < len(ranges):
        longest = sorted(ranges, key=lambda one: -one.rows)[: max(1, max_rows)]
        return {one.queue: one.start for one in ranges} | {one.queue: one.start + 1 for one in longest}
    left, waiting = max_rows - len(ranges), sum(one.rows - 1 for one in ranges)
    return {one.queue: one.start + 1 + (one.rows - 1) * left // waiting for one in ranges}


def offset_of(queues: Mapping[MessageQueue, int]) -> Offset:
    """Return the offset of a read over the wire: for each queue, the queue offset of its next message.

    ::

        {"v": 1, "transport": "broker", "queues": {"orders": {"broker-a": {"0": 23, "1": 17}}}}
    """
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue in ordered(queues):
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = queues[queue]
    return {"v": OFFSET_VERSION, "transport": "broker", "queues": found}


def queues_of(offset: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """Read :func:`offset_of` back.

    Raises:
        CheckpointError: it is another transport's, of a later version, or no offset.
    """
    check_offset(offset, "broker")
    return queue_numbers(offset.get("queues"))


def queue_numbers(topics: Any) -> dict[MessageQueue, int]:
    """Read a number for each queue: topic to broker to queue id to number. Raises CheckpointError."""
    queues = {}
    try:
        for topic, brokers in topics.items():
            for broker_name, numbers in brokers.items():
                for queue_id, number in numbers.items():
                    if type(number) is not int or not 0 <= number <= _INT64_MAX:
                        raise ValueError(number)
                    queues[MessageQueue(broker_name, int(queue_id), topic)] = number
    except (AttributeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint's offset is none: {str(topics)[:200]}") from error
    return queues


def ordered(queues: Mapping[MessageQueue, int]) -> list[MessageQueue]:
    """Queues by topic, broker and number."""
    return sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))

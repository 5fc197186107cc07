"""Pure functions that cut the queues' ranges of messages, and pack them into a few parts of equal size for Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.plugins.spark.errors import CheckpointError
from flintmq.plugins.spark.ports import OFFSET_VERSION, Bounds, Offset, check_offset

_INT64_MAX: Final = 2**63 - 1
SMALL_BYTES: Final = 8 * 1024 * 1024
"""Size in bytes up to which messages are not divided among several tasks, if the only reason is to keep more processors busy
(docs/spark.md)."""


@attrs.frozen
class QueueRange:
    """A range of consecutive messages in one queue."""

    queue: MessageQueue
    start: int
    """Queue offset of the first message of the range."""
    end: int
    """Queue offset just past the last message of the range."""

    @property
    def rows(self) -> int:
        return self.end - self.start


def ranges_between(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], first: Mapping[MessageQueue, int]
) -> list[QueueRange]:
    """Return the range of messages of each queue between two offsets, without empty ranges. A queue that is missing in
    ``start`` begins at its queue offset in ``first``."""
    found = (QueueRange(queue, start.get(queue, first.get(queue, 0)), end[queue]) for queue in ordered(end))
    return [one for one in found if one.rows > 0]


def narrowed(ranges: Iterable[QueueRange], bounds: Bounds) -> list[QueueRange]:
    """Shorten ranges of queues to the messages that may fulfill the conditions in ``bounds``, and return the ranges. Ranges
    that become empty are left out."""
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
    """Return the number of Spark tasks that pull some ranges of queues: as few as ``max_partition_bytes`` allows, but more if
    processors would be idle or ``min_partitions`` is larger."""
    least = -(-total_bytes // max_partition_bytes)
    if least > cores:
        # If the number of tasks is a multiple of the number of processors, all processors are busy until the end.
        least = -(-least // cores) * cores
    busy = min(cores, -(-total_bytes // SMALL_BYTES))
    return max(1, least, busy, min_partitions or 1)


def packed(ranges: Sequence[QueueRange], count: int) -> list[tuple[QueueRange, ...]]:
    """Divide ranges of queues into at most ``count`` parts. All parts but the last have the same number of messages."""
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
    """Shorten ranges of queues to at most ``max_rows`` messages together, and return the end of each queue's range.
    ``max_rows`` is at least 1.

    Every queue gets one message, and a share of the remaining messages in proportion to its range. If there are more queues
    than ``max_rows``, only the longest ranges get one message each.
    """
    if sum(one.rows for one in ranges) <= max_rows:
        return {one.queue: one.end for one in ranges}
    if max_rows < len(ranges):
        longest = sorted(ranges, key=lambda one: -one.rows)[: max(1, max_rows)]
        return {one.queue: one.start for one in ranges} | {one.queue: one.start + 1 for one in longest}
    left, waiting = max_rows - len(ranges), sum(one.rows - 1 for one in ranges)
    return {one.queue: one.start + 1 + (one.rows - 1) * left // waiting for one in ranges}


def offset_of(queues: Mapping[MessageQueue, int]) -> Offset:
    """Return the JSON offset of a read from brokers: the queue offset of each queue's next message.

    ::

        {"v": 1, "transport": "broker", "queues": {"orders": {"broker-a": {"0": 23, "1": 17}}}}
    """
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue in ordered(queues):
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = queues[queue]
    return {"v": OFFSET_VERSION, "transport": "broker", "queues": found}


def queues_of(offset: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """Return the queue offsets in a JSON offset that :func:`offset_of` made.

    Raises:
        CheckpointError: the offset belongs to another transport, has a later version, or is not valid.
    """
    check_offset(offset, "broker")
    return queue_numbers(offset.get("queues"))


def queue_numbers(topics: Any) -> dict[MessageQueue, int]:
    """Return the numbers in a JSON object that is keyed by topic, broker and queue id. Raises CheckpointError."""
    queues = {}
    try:
        for topic, brokers in topics.items():
            for broker_name, numbers in brokers.items():
                for queue_id, number in numbers.items():
                    if type(number) is not int or not 0 <= number <= _INT64_MAX:
                        raise ValueError(number)
                    queues[MessageQueue(broker_name, int(queue_id), topic)] = number
    except (AttributeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint's offset cannot be read: {str(topics)[:200]}") from error
    return queues


def ordered(queues: Mapping[MessageQueue, int]) -> list[MessageQueue]:
    """Sort queues by topic, broker and queue id."""
    return sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))

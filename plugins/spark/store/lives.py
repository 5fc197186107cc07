"""Finds where the messages of recreated topics begin in the log; earlier messages were deleted with the topic.

See :mod:`flintmq.core.record.topic_lives`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from flintmq.config.rocketmq.system_topics import DELETED_TOPIC
from flintmq.core.io.paths import queue_folder
from flintmq.core.record.layout import HEAD_V4
from flintmq.core.record.queue_unit import FILLER_SIZE
from flintmq.core.record.record import RecordError, decode_record
from flintmq.core.record.topic_lives import DELETIONS, deleted_topic
from flintmq.plugins.spark.decoder.rows import Life, RowFilter
from flintmq.plugins.spark.store.log_files import LogFiles, map_file
from flintmq.plugins.spark.store.queue_units import QueueUnits, list_queues

_ASKED_MAX: Final = 256
_TOPIC_FIELD: Final = bytes((len(DELETED_TOPIC),)) + DELETED_TOPIC.encode()


def lives(
    root: Path, log: LogFiles, end: int, units_complete_to: int, rows: RowFilter | None = None
) -> tuple[Life, ...]:
    """Return the physical offset at which the messages of each topic or queue begin, if the topic may have been deleted and
    recreated.

    Args:
        root: the store.
        log: the store's commit log.
        end: the physical offset up to which the log may be read.
        units_complete_to: the physical offset up to which each message has its consume queue unit. The log after this offset is
            searched for deletions of topics.
        rows: the filter for topics and queues; None for all.

    Raises:
        StoreError: a file cannot be read.
    """
    found = {topic: position for position, topic in _deletions(root, log, end, units_complete_to)}
    whole = [Life(topic, None, begin) for topic, begin in found.items() if rows is None or rows.wants(topic)]
    return (*whole, *_made_again(root, log, units_complete_to, rows))


def _deletions(root: Path, log: LogFiles, end: int, units_complete_to: int) -> Iterator[tuple[int, str]]:
    """Yield the physical offset and the topic of each topic deletion, in the order of the log."""
    queue = QueueUnits(*DELETIONS, queue_folder(root / "consumequeue", *DELETIONS))
    units = queue.within(log.start, min(end, max(units_complete_to, log.start)))
    places = units.position.tolist()
    for place in (*places, *_searched(log, max(units_complete_to, log.start), end)):
        topic = _named_at(log, place)
        if topic:
            yield place, topic


def _searched(log: LogFiles, start: int, end: int) -> Iterator[int]:
    """Search the bytes of a part of the log, and yield the positions at which the record of a topic deletion may begin."""
    for file in log.between(start, end):
        data = map_file(file.path)
        mapped: Any = data.base if data is not None else None
        mapped = mapped.obj if isinstance(mapped, memoryview) else mapped
        if isinstance(mapped, mmap.mmap):
            at, stop = max(start, file.start) - file.start, min(end, file.end) - file.start
            while (at := mapped.find(_TOPIC_FIELD, at, stop)) >= 0:
                yield file.start + at - HEAD_V4.size
                at += 1


def _named_at(log: LogFiles, position: int) -> str:
    """Return the topic that the record at a position declares deleted; an empty text if the record declares no topic
    deleted."""
    file = log.holding(position)
    data = map_file(file.path) if file is not None else None
    if file is None or data is None:
        return ""
    try:
        record = decode_record(data.data, position - file.start)
    except RecordError:
        return ""
    return deleted_topic(record) if record.commit_log_offset_bytes == position else ""


def _made_again(root: Path, log: LogFiles, units_complete_to: int, rows: RowFilter | None) -> Iterator[Life]:
    """Yield, for each queue, the position in the log of the message with queue offset 0. In a log that RocketMQ wrote, only a
    message with queue offset 0 shows that a topic was recreated.

    Yields nothing for a store with more than 256 queues.
    """
    queues: Sequence[QueueUnits] = [*islice(list_queues(root, rows), _ASKED_MAX + 1)] if units_complete_to else ()
    for queue in queues if len(queues) <= _ASKED_MAX else ():
        unit = queue.unit(0) if queue.files and not queue.first_unit else None
        if unit is not None and unit[1] != FILLER_SIZE and unit[0] > log.start:
            yield Life(queue.topic, queue.queue_id, unit[0])

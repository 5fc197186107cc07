"""The expected content of queues and index, collected while the commit log is read."""

from __future__ import annotations

from array import array
from typing import Final

import attrs

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.record import properties as props
from flintmq.core.record.java_hash import index_key_hash, tags_hash
from flintmq.core.record.java_number import number_or
from flintmq.core.record.message_keys import index_keys
from flintmq.core.record.queue_unit import UNIT
from flintmq.core.record.record import RECORD_MIN_BYTES, Record
from flintmq.core.record.sys_flag import is_indexed, is_queued
from flintmq.core.record.topic_lives import begins_again, deleted_topic
from flintmq.core.recovery.repair import LOST_TOPIC
from flintmq.dispatchers.consume_queue.delay_times import DelayTimes, unknown_due

UNKNOWN: Final = UNIT.pack(-1, -1, -1)
"""Placeholder for the queue unit of a message that was lost with a damaged part of the log."""

QueueKey = tuple[str, int]
"""(topic, queue id) of a consume queue."""


def request_of(record: Record, delays: DelayTimes) -> DispatchRequest:
    """Return the dispatch request of a record.

    The queue of a delayed message stores the message's delivery time in place of the tags code. If the delay is not known, the
    tags code is a placeholder (:func:`~flintmq.dispatchers.consume_queue.delay_times.unknown_due`).
    """
    properties = record.properties
    tags = properties.get(props.TAGS)
    tags_code = tags_hash(tags) if tags else 0
    level = number_or(properties.get(props.DELAY), 0)
    if record.topic == SCHEDULE_TOPIC and level > 0:
        delay_ms = delays.delay_ms(level, record.commit_log_offset_bytes)
        stored_ms = record.store_timestamp_ms
        tags_code = unknown_due(stored_ms) if delay_ms is None else stored_ms + delay_ms
    return DispatchRequest(
        record.topic,
        record.queue_id,
        record.commit_log_offset_bytes,
        record.size_bytes,
        tags_code,
        record.store_timestamp_ms,
        record.queue_offset,
        properties.get(props.KEYS, ""),
        properties.get(props.UNIQ_KEY, ""),
        record.sys_flag,
        record.prepared_transaction_offset_bytes,
        properties,
    )


def is_lost(record: Record) -> bool:
    """Return whether a record is only a replacement for a damaged part of the log, written by a broker when it started on the
    damaged log."""
    return record.topic in (LOST_TOPIC, "") and not is_indexed(record.sys_flag) and not any(record.store_host)


@attrs.frozen
class Gap:
    """A gap in a consume queue: a record whose queue offset is not the next queue offset of the record's queue."""

    topic: str
    queue_id: int
    wanted: int
    found: int
    position: int
    """Physical offset of the record with the unexpected queue offset."""
    lost: bool
    """Whether a damaged part of the log before the record explains why the record does not have the expected queue offset."""


class Expected:
    """The queue units and index entries that a store's log requires, in the order of the log. Takes some 20 bytes of memory per
    message and queue, and 20 per key."""

    def __init__(self) -> None:
        self.units: dict[QueueKey, bytearray] = {}
        self.first_queue_offset: dict[QueueKey, int] = {}
        self._next: dict[QueueKey, int] = {}
        self.gaps: list[Gap] = []
        self.begun_anew: dict[QueueKey, int] = {}
        """Physical offset of the first record of each queue that began again because its topic was deleted and recreated, keyed
        by queue."""
        self.deleted: dict[str, int] = {}
        """Physical offset of the record with which the broker noted the latest deletion of a topic in the log, keyed by topic.
        Only deleted topics have an entry."""
        self.key_hashes = array("i")
        self.key_positions = array("q")
        self.key_times_ms = array("q")
        self.newest_timestamp_ms = 0
        self._ended: set[QueueKey] = set()
        self._lost_max = 0

    def lose(self, size_bytes: int) -> None:
        """Record a damaged part of the log, and how many records at most the part can have contained."""
        self._lost_max += size_bytes // RECORD_MIN_BYTES

    def add(self, request: DispatchRequest) -> None:
        """Add the queue unit and the index entries that the next record of the log requires."""
        self.newest_timestamp_ms = max(self.newest_timestamp_ms, request.store_timestamp_ms)
        if is_queued(request.sys_flag):
            if topic := deleted_topic(request):
                self._end_topic(topic, request.commit_log_offset_bytes)
            self._add_unit(request)
        if is_indexed(request.sys_flag):
            for key in index_keys(request):
                self._add_key(index_key_hash(request.topic, key), request)

    def _end_topic(self, topic: str, position: int) -> None:
        self.deleted[topic] = position
        for key in [key for key in self.units if key[0] == topic]:
            del self.units[key], self.first_queue_offset[key]
            self.begun_anew.pop(key, None)
            self._ended.add(key)

    def life_begins(self, key: QueueKey) -> int:
        """Return the physical offset at which a recreated queue begins; -1 if the queue was never recreated."""
        return max(self.begun_anew.get(key, -1), self.deleted.get(key[0], -1))

    def _add_unit(self, request: DispatchRequest) -> None:
        key = (request.topic, request.queue_id)
        units = self.units.get(key)
        queue_offset, position = request.queue_offset, request.commit_log_offset_bytes
        wanted = self._next.get(key, queue_offset)
        if units is None:
            units = self.units[key] = bytearray()
            self.first_queue_offset[key] = queue_offset
            if key in self._ended:
                self.begun_anew[key] = position
        elif begins_again(queue_offset, wanted):
            units.clear()
            self.first_queue_offset[key] = queue_offset
            self.begun_anew[key] = position
        elif queue_offset != wanted:
            lost = 0 < queue_offset - wanted <= self._lost_max
            self.gaps.append(Gap(*key, wanted, queue_offset, position, lost))
            if lost:
                units += UNKNOWN * (queue_offset - wanted)
        self._next[key] = queue_offset + 1
        units += UNIT.pack(position, request.message_size_bytes, request.tags_code)

    def _add_key(self, key_hash: int, request: DispatchRequest) -> None:
        self.key_hashes.append(key_hash)
        self.key_positions.append(request.commit_log_offset_bytes)
        self.key_times_ms.append(request.store_timestamp_ms)

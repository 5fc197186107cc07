"""Chooses the commit log records that become rows of a Spark read, before any field of variable length is copied."""

from __future__ import annotations

import re
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.config.rocketmq.system_topics import SYSTEM_TOPICS
from flintmq.core.broker.topic_name import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX
from flintmq.core.record.heads import Heads
from flintmq.core.record.sys_flag import is_queued
from flintmq.plugins.spark.decoder.slices import Bools, take_slices
from flintmq.plugins.spark.ports import ANY, Bounds, Range

_SYSTEM_TOPIC_PREFIXES: Final = ("RMQ_SYS_", SYSTEM_TOPIC_PREFIX, RETRY_PREFIX, DLQ_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Return whether a topic belongs to the broker itself (docs/internals/store-format.md, Special topics)."""
    return topic in SYSTEM_TOPICS or topic.startswith(_SYSTEM_TOPIC_PREFIXES)


@attrs.frozen
class Life:
    """The beginning of a recreated topic's messages in the log. Earlier messages were deleted with the topic."""

    topic: str
    queue_id: int | None
    """Id of the only queue whose messages begin at the physical offset :attr:`begin`, because earlier messages of the queue
    were deleted. None if this is true of all queues of the topic."""
    begin: int
    """Physical offset at which the messages of the recreated topic begin. Messages before this offset were deleted."""


@attrs.frozen
class RowFilter:
    """The conditions that a record must fulfill to become a row. Prepared and rolled-back messages never become rows. Instances
    are picklable."""

    topics: frozenset[str] | None = None
    """The accepted topics; None to accept all topics that fulfill the other conditions."""
    topic_pattern: re.Pattern[str] | None = None
    """Pattern that the whole name of an accepted topic must match; None to accept any name."""
    system_topics: bool = True
    """Whether system topics are accepted if :attr:`topics` is None."""
    queues: tuple[tuple[str, frozenset[int]], ...] = ()
    """The accepted queues: topics, each with the ids of the topic's accepted queues. An empty tuple accepts all queues."""
    tags: frozenset[str] | None = None
    """Tags of the accepted messages; None to accept all messages, with or without a tag."""
    store_timestamp_ms: Range = ANY
    queue_offsets: tuple[tuple[str, int, Range], ...] = ()
    """Ranges of accepted queue offsets. An element has a topic, a queue id and the range for this queue. In queues without an
    element, all messages are accepted."""
    queue_id: Range = ANY
    queue_offset: Range = ANY
    physical_offset: Range = ANY
    lives: tuple[Life, ...] = ()
    """Physical offsets at which the messages of recreated topics and queues begin in the log. A message of such a topic or
    queue that is before this offset in the log is not accepted, because it was deleted with the old topic."""
    without: tuple[RowFilter, ...] = ()
    """Filters whose topics and queues are excluded: a message that matches one of these filters is not accepted."""

    def narrowed(self, bounds: Bounds) -> RowFilter:
        """Return this filter of records with the additional conditions in ``bounds``."""
        topics, tags = bounds.topics, bounds.tags
        if topics is not None:
            topics = frozenset(topic for topic in topics if self.wants(topic))
        return attrs.evolve(
            self,
            topics=self.topics if topics is None else topics,
            tags=self.tags if tags is None else tags if self.tags is None else self.tags & tags,
            store_timestamp_ms=self.store_timestamp_ms.both(bounds.store_timestamp_ms),
            queue_id=self.queue_id.both(bounds.queue_id),
            queue_offset=self.queue_offset.both(bounds.queue_offset),
            physical_offset=self.physical_offset.both(bounds.physical_offset),
        )

    def mask(self, data: npt.NDArray[np.uint8], heads: Heads) -> Bools | None:
        """Return, for each record, whether its fixed fields and its topic fulfill the filter's conditions; None if all records
        fulfill them. This method does not check tags."""
        keep: Bools | None = None
        queued = is_queued(heads.sys_flag)
        if not queued.all():
            keep = queued
        for allowed, field in (
            (self.store_timestamp_ms, "store_timestamp"),
            (self.queue_id, "queue_id"),
            (self.queue_offset, "queue_offset"),
            (self.physical_offset, "physical_offset"),
        ):
            if allowed != ANY:
                fits = allowed.holds(heads.raw[field].astype(np.int64))
                keep = fits if keep is None else keep & fits
        if self._asks_for_topics and len(heads):
            fits = self._topic_mask(data, heads)
            keep = fits if keep is None else keep & fits
        return None if keep is None or keep.all() else keep

    def wants(self, topic: str) -> bool:
        """Return whether this filter lets messages of a topic become rows."""
        return self._wants(topic) and not any(one.wants(topic) and not one.queues for one in self.without)

    def _wants(self, topic: str) -> bool:
        if self.topics is not None:
            return topic in self.topics
        if self.topic_pattern is not None and self.topic_pattern.fullmatch(topic) is None:
            return False
        return self.system_topics or not is_system_topic(topic)

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether this filter lets messages of a queue become rows."""
        if not self.wants(topic) or not self.queue_id.holds(queue_id):
            return False
        chosen = dict(self.queues)
        if chosen and queue_id not in chosen.get(topic, ()):
            return False
        return not any(one.wants_queue(topic, queue_id) for one in self.without)

    @property
    def _asks_for_topics(self) -> bool:
        return (
            self.topics is not None
            or self.topic_pattern is not None
            or not self.system_topics
            or bool(self.queues)
            or bool(self.queue_offsets)
            or bool(self.lives)
            or bool(self.without)
        )

    def _topic_mask(self, data: npt.NDArray[np.uint8], heads: Heads) -> Bools:
        encoded = take_slices(data, heads.topic_at, heads.topic_length).dictionary_encode()
        topics = [raw.decode("utf-8", "replace") for raw in encoded.dictionary.to_pylist()]
        codes = encoded.indices.to_numpy(zero_copy_only=True)
        wanted = np.array([self.wants(topic) for topic in topics], np.bool_)
        keep: Bools = wanted[codes]
        of_queues = [one for one in self.without if one.queues]
        if not self.queues and not self.queue_offsets and not self.lives and not of_queues:
            return keep
        queue_id = heads.raw["queue_id"].astype(np.int32)
        chosen = dict(self.queues)
        for code, topic in enumerate(topics):
            if chosen and wanted[code]:
                keep &= (codes != code) | np.isin(queue_id, list(chosen.get(topic, ())))
        for code, topic in enumerate(topics):
            for one in of_queues if wanted[code] else ():
                left_out = dict(one.queues).get(topic, ()) if one.wants(topic) else ()
                keep &= (codes != code) | ~np.isin(queue_id, list(left_out))
        queue_offset = heads.raw["queue_offset"].astype(np.int64)
        for topic, number, offsets in self.queue_offsets:
            if topic in topics:
                there = (codes == topics.index(topic)) & (queue_id == number)
                keep &= ~there | offsets.holds(queue_offset)
        physical = heads.raw["physical_offset"].astype(np.int64)
        numbers = {topic: code for code, topic in enumerate(topics)}
        for life in self.lives:
            if life.topic in numbers:
                earlier = (codes == numbers[life.topic]) & (physical < life.begin)
                keep &= ~earlier if life.queue_id is None else ~(earlier & (queue_id == life.queue_id))
        return keep


def has_tag(tags: pa.Array, wanted: frozenset[str]) -> Bools:
    """Return, for each tag in an array, whether the tag is one of the wanted tags."""
    import pyarrow.compute as pc

    found = pc.is_in(tags, value_set=pa.array(sorted(wanted), pa.string()))
    result: Bools = found.to_numpy(zero_copy_only=False)
    return result

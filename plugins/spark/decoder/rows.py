"""Which records become rows: chosen before anything variable is copied."""

from __future__ import annotations

import re
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.core.message.sys_flag import TRANSACTION_PREPARED
from flintmq.plugins.spark.bounds import ANY, Range
from flintmq.plugins.spark.decoder.heads import Bools, Heads
from flintmq.plugins.spark.decoder.slices import take_slices

SYSTEM_TOPIC_PREFIXES: Final = ("RMQ_SYS_", "%RETRY%", "%DLQ%", "rmq_sys_")
SYSTEM_TOPICS: Final = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "TBW102",
        "BenchmarkTest",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)


def is_system_topic(topic: str) -> bool:
    """Whether a topic is the broker's own (reference: algorithms, store-format 2.5)."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIXES)


@attrs.frozen
class RowFilter:
    """What a record must be to become a row. Prepared and rolled-back messages never do. A value that pickles."""

    topics: frozenset[str] | None = None
    """None for any topic that the other conditions let through."""
    topic_pattern: re.Pattern[str] | None = None
    """Must fit a topic's whole name."""
    system_topics: bool = True
    """Whether system topics are let through that :attr:`topics` does not name."""
    queues: tuple[tuple[str, frozenset[int]], ...] = ()
    """Topics of which only some queues are read."""
    tags: frozenset[str] | None = None
    """None for any, with or without a tag."""
    store_timestamp_ms: Range = ANY
    queue_offsets: tuple[tuple[str, int, Range], ...] = ()
    """Topic, queue and the queue offsets of it that are read; of queues that are not named here, all."""

    def mask(self, data: npt.NDArray[np.uint8], heads: Heads) -> Bools | None:
        """Which records become rows, as far as their heads and topics tell; None for all. Tags come later."""
        keep: Bools | None = None
        hidden = heads.sys_flag & TRANSACTION_PREPARED
        if hidden.any():
            keep = hidden == 0
        if self.store_timestamp_ms != ANY:
            stored = heads.store_timestamp_ms
            fits = (stored >= self.store_timestamp_ms.low) & (stored <= self.store_timestamp_ms.high)
            keep = fits if keep is None else keep & fits
        if self._asks_for_topics and len(heads):
            fits = self._topic_mask(data, heads)
            keep = fits if keep is None else keep & fits
        return None if keep is None or keep.all() else keep

    def wants(self, topic: str) -> bool:
        """Whether messages of a topic can become rows."""
        if self.topics is not None:
            return topic in self.topics
        if self.topic_pattern is not None and self.topic_pattern.fullmatch(topic) is None:
            return False
        return self.system_topics or not is_system_topic(topic)

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Whether messages of a queue can become rows."""
        if not self.wants(topic):
            return False
        chosen = dict(self.queues)
        return not chosen or queue_id in chosen.get(topic, ())

    @property
    def _asks_for_topics(self) -> bool:
        return (
            self.topics is not None
            or self.topic_pattern is not None
            or not self.system_topics
            or bool(self.queues)
            or bool(self.queue_offsets)
        )

    def _topic_mask(self, data: npt.NDArray[np.uint8], heads: Heads) -> Bools:
        encoded = take_slices(data, heads.topic_at, heads.topic_length).dictionary_encode()
        topics = [raw.decode("utf-8", "replace") for raw in encoded.dictionary.to_pylist()]
        codes = encoded.indices.to_numpy(zero_copy_only=True)
        wanted = np.array([self.wants(topic) for topic in topics], np.bool_)
        keep: Bools = wanted[codes]
        if not self.queues and not self.queue_offsets:
            return keep
        queue_id = heads.raw["queue_id"].astype(np.int32)
        chosen = dict(self.queues)
        for code, topic in enumerate(topics):
            if chosen and wanted[code]:
                keep &= (codes != code) | np.isin(queue_id, list(chosen.get(topic, ())))
        queue_offset = heads.raw["queue_offset"].astype(np.int64)
        for topic, number, offsets in self.queue_offsets:
            if topic in topics:
                there = (codes == topics.index(topic)) & (queue_id == number)
                keep &= ~there | ((queue_offset >= offsets.low) & (queue_offset <= offsets.high))
        return keep


def has_tag(tags: pa.Array, wanted: frozenset[str]) -> Bools:
    """Which rows have one of some tags."""
    import pyarrow.compute as pc

    found = pc.is_in(tags, value_set=pa.array(sorted(wanted), pa.string()))
    result: Bools = found.to_numpy(zero_copy_only=False)
    return result

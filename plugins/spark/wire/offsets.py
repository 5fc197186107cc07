"""The offset of a read from brokers, as a checkpoint records it.

The offset contains the queue offset of each queue's next message, and the state of the queues when the offset was made. Queue
offsets alone do not show whether a topic was deleted and recreated. The queues of a recreated topic begin at 0 and may already
have more messages than the query has read from the deleted topic. Brokers report when a queue's first message was stored. If
that time is later than the store time of every message that the query has read, the topic was recreated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.plugins.spark.errors import CheckpointError
from flintmq.plugins.spark.ports import Offset, check_offset
from flintmq.plugins.spark.wire.ranges import QueueRange, offset_of, queue_numbers, queues_of, ranges_between
from flintmq.remoting.wire.bodies import TopicOffset

Edges = Mapping[MessageQueue, TopicOffset]
"""First and last queue offset of each queue, keyed by queue."""
SeenMs = Mapping[tuple[str, str], int]
"""Store time in ms of the newest known message, keyed by topic and broker name."""


@attrs.frozen
class WireOffset:
    """The offset of a read from brokers.

    ::

        {"v": 1, "transport": "broker", "queues": {"orders": {"broker-a": {"0": 23}}},
         "seen": {"orders": {"broker-a": 1764000000000}}}

    ``"queues"`` has the next queue offset to read, and ``"seen"`` has the store time in ms of the newest known message.
    """

    queues: Mapping[MessageQueue, int]
    """Queue offset of the next message to read, keyed by queue. A queue that no longer exists keeps its entry, because the
    queue may come back."""
    began: Mapping[MessageQueue, int] = attrs.field(factory=dict)
    """Queue offset of the first message of a batch, keyed by queue. The batch ends at the offsets in :attr:`queues`. A queue
    has an entry only if the batch does not begin where the previous batch ended. For example, a new queue has an entry."""
    waiting: Mapping[MessageQueue, int] = attrs.field(factory=dict)
    """Queue offset just past the last known message, keyed by queue. Only queues with unread messages have an entry."""
    seen_ms: SeenMs | None = None
    """Store times in ms of the newest known messages, keyed by topic and broker name; None if an earlier version of FlintMQ
    wrote the checkpoint."""

    def to_json(self) -> Offset:
        """Convert this offset of a read from brokers to JSON for Spark's checkpoint."""
        found = offset_of(self.queues)
        found |= {
            name: offset_of(queues)["queues"]
            for name, queues in (("began", self.began), ("waiting", self.waiting))
            if queues
        }
        if self.seen_ms is not None:
            seen: dict[str, dict[str, int]] = {}
            for (topic, broker_name), newest_ms in sorted(self.seen_ms.items()):
                seen.setdefault(topic, {})[broker_name] = newest_ms
            found["seen"] = seen
        return found

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> WireOffset:
        """Parse the JSON of a checkpoint, and return the offset of a read from brokers.

        Raises:
            CheckpointError: the offset belongs to another transport, has a later version, or is not valid.
        """
        check_offset(offset, "broker")
        return cls(
            queues_of(offset),
            queue_numbers(offset.get("began", {})),
            queue_numbers(offset.get("waiting", {})),
            _seen(offset["seen"]) if "seen" in offset else None,
        )

    @classmethod
    def at(cls, queues: Mapping[MessageQueue, int], edges: Edges) -> WireOffset:
        """Return the offset of a Spark query that reads from brokers.

        Args:
            queues: queue offset of the next message to read, keyed by queue.
            edges: first and last queue offset and last store time of each queue, keyed by queue. The returned offset records
                from them which queues have unread messages, and the newest store time of each topic at each broker.
        """
        return WireOffset({}).moved(queues, edges)

    def moved(
        self, queues: Mapping[MessageQueue, int], edges: Edges, began: Mapping[MessageQueue, int] | None = None
    ) -> WireOffset:
        """Return a copy of this offset in which the given queues have new queue offsets, and which contains the current state
        of the queues.

        Args:
            queues: the new queue offsets, keyed by queue.
            edges: the current first and last offsets of the queues.
            began: the first queue offset of the batch that ends at the new offset, keyed by queue. The batch usually begins at
                the end of the previous batch. Only other queues have an entry, for example a new queue, so that a repetition of
                the batch reads the same messages. None if no queue has an entry.
        """
        places = {**self.queues, **queues}
        ends = {**self.waiting, **{queue: edge.max_queue_offset for queue, edge in edges.items()}}
        waiting = {queue: end for queue, end in ends.items() if queue in places and places[queue] < end}
        return WireOffset(places, began or {}, waiting, {**(self.seen_ms or {}), **newest_ms(edges)})

    def ranges_to(self, end: WireOffset, first: Mapping[MessageQueue, int]) -> list[QueueRange]:
        """Return the range of messages of each queue between this offset and a later offset. A queue that is new begins at its
        queue offset in ``first``."""
        return ranges_between({**self.queues, **end.began}, end.queues, first)

    def has_seen_ms(self, queue: MessageQueue) -> int | None:
        """Return the newest store time, in ms since 1970, that this offset contains for a queue's topic at the queue's broker.
        The newest message may be in another queue of the topic at this broker. Return None if this offset contains no store
        time for the topic at this broker."""
        return (self.seen_ms or {}).get((queue.topic, queue.broker_name))


def newest_ms(edges: Edges) -> dict[tuple[str, str], int]:
    """Return the store time in ms of the newest message that a topic has at a broker, keyed by topic and broker name."""
    found: dict[tuple[str, str], int] = {}
    for queue, edge in edges.items():
        if edge.last_update_timestamp_ms > 0:
            key = queue.topic, queue.broker_name
            found[key] = max(found.get(key, 0), edge.last_update_timestamp_ms)
    return found


def _seen(seen: Any) -> dict[tuple[str, str], int]:
    try:
        found = {(topic, name): time_ms for topic, brokers in seen.items() for name, time_ms in brokers.items()}
        if not all(type(time_ms) is int for time_ms in found.values()):
            raise ValueError(found)
    except (AttributeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint's store times of the newest messages cannot be read: {str(seen)[:200]}"
        ) from error
    return found

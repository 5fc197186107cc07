"""What a checkpoint knows of queues that are read over the wire: where each of them stands, and what it was seen to hold.

Queue offsets alone do not tell whether a queue is still the one that was read: a topic that was deleted and made again begins
at 0, and may have more messages by now than were read of it. Brokers say when a queue's first message was stored: one that was
stored after all that the query has seen belongs to another life of the topic.
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
"""Queues with their first and last offsets."""
SeenMs = Mapping[tuple[str, str], int]
"""Topic and broker to the store time of the newest message that was known there, in ms."""


@attrs.frozen
class WireOffset:
    """An offset of a read over the wire.

    ::

        {"v": 1, "transport": "broker", "queues": {"orders": {"broker-a": {"0": 23}}}, "seen": {"orders": {"broker-a": 1764…}}}
    """

    queues: Mapping[MessageQueue, int]
    """The queue offset of each queue's next message. A queue that is not there any more keeps its place: it may come back."""
    began: Mapping[MessageQueue, int] = attrs.field(factory=dict)
    """Where queues begin in the batch that ends here, if that is not where the batch before it ended: those that are new."""
    waiting: Mapping[MessageQueue, int] = attrs.field(factory=dict)
    """Where queues ended that had more messages than were read by then."""
    seen_ms: SeenMs | None = None
    """None in a checkpoint of an earlier FlintMQ."""

    def to_json(self) -> Offset:
        """Return the form in which Spark keeps it."""
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
        """Read it back.

        Raises:
            CheckpointError: it is another transport's, of a later version, or no offset.
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
        """Return the offset of some places, and of what is known of their queues now."""
        return WireOffset({}).moved(queues, edges)

    def moved(
        self, queues: Mapping[MessageQueue, int], edges: Edges, began: Mapping[MessageQueue, int] | None = None
    ) -> WireOffset:
        """Return the offset of the same query with some queues at other places, and with what is known of them now."""
        places = {**self.queues, **queues}
        ends = {**self.waiting, **{queue: edge.max_queue_offset for queue, edge in edges.items()}}
        waiting = {queue: end for queue, end in ends.items() if queue in places and places[queue] < end}
        return WireOffset(places, began or {}, waiting, {**(self.seen_ms or {}), **newest_ms(edges)})

    def ranges_to(self, end: WireOffset, first: Mapping[MessageQueue, int]) -> list[QueueRange]:
        """Return every queue's messages up to an offset; a queue that is new begins at its ``first``."""
        return ranges_between({**self.queues, **end.began}, end.queues, first)

    def has_seen_ms(self, queue: MessageQueue) -> int | None:
        """Return the store time of the newest message that was known of a queue's topic at its broker; None if there is
        none."""
        return (self.seen_ms or {}).get((queue.topic, queue.broker_name))


def newest_ms(edges: Edges) -> dict[tuple[str, str], int]:
    """Return when the newest message was stored of each topic at each broker."""
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
        raise CheckpointError(f"the checkpoint's times of messages are none: {str(seen)[:200]}") from error
    return found

"""The offset of a read over the wire: how far each queue is.

::

    {"v": 1, "transport": "broker", "queues": {"orders": {"broker-a": {"0": 23, "1": 17}}}}

Each number is the queue offset of the next message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from flintmq.core.broker.message_queue import MessageQueue
from flintmq.plugins.spark.errors import CheckpointError
from flintmq.plugins.spark.ports import Offset

VERSION: Final = 1
_INT64_MAX: Final = 2**63 - 1


@attrs.frozen
class WireOffset:
    """How far each queue is."""

    queues: Mapping[MessageQueue, int] = attrs.field(factory=dict)
    """Queue to the queue offset of its next message."""

    def to_json(self) -> Offset:
        """Return the form in which Spark keeps it."""
        found: dict[str, dict[str, dict[str, int]]] = {}
        for queue in sorted(self.queues, key=_order):
            brokers = found.setdefault(queue.topic, {})
            brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = self.queues[queue]
        return {"v": VERSION, "transport": "broker", "queues": found}

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> WireOffset:
        """Read it back.

        Raises:
            CheckpointError: it is another transport's, of a later version, or no offset.
        """
        transport = offset.get("transport")
        if transport != "broker":
            raise CheckpointError(
                f"the checkpoint was written by a query with transport {transport!r}, this one pulls from brokers: offsets of "
                "one mean nothing to the other. Go on with load('/data/store'), or give another checkpointLocation"
            )
        if offset.get("v") != VERSION:
            raise CheckpointError(
                f"the checkpoint has offsets of version {offset.get('v')!r}, this FlintMQ reads {VERSION}"
            )
        queues = {}
        try:
            for topic, brokers in offset["queues"].items():
                for broker_name, numbers in brokers.items():
                    for queue_id, queue_offset in numbers.items():
                        if type(queue_offset) is not int or not 0 <= queue_offset <= _INT64_MAX:
                            raise ValueError(queue_offset)
                        queues[MessageQueue(broker_name, int(queue_id), topic)] = queue_offset
        except (KeyError, AttributeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint's offset is none: {str(offset)[:200]}") from error
        return cls(queues)


def _order(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def ordered(queues: Mapping[MessageQueue, int]) -> list[MessageQueue]:
    """Queues by topic, broker and number."""
    return sorted(queues, key=_order)

"""A queue's full name: topic, broker and queue id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class MessageQueue:
    """One queue of one topic at one broker. Can be a key."""

    topic: str
    broker_name: str
    queue_id: int

    def to_wire(self) -> dict[str, Any]:
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    @classmethod
    def from_wire(cls, value: Mapping[str, Any]) -> MessageQueue:
        return cls(str(value.get("topic") or ""), str(value.get("brokerName") or ""), int(value.get("queueId") or 0))

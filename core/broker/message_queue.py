"""The full name of a queue: broker, queue id and topic."""

from __future__ import annotations

import msgspec

from flintmq.core.io.typed_json import Int


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic on one broker (``MessageQueue``). May be a key."""

    broker_name: str
    queue_id: Int
    topic: str

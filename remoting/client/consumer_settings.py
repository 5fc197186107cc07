"""The settings of a consumer, what its listener returns, and which member consumes which queue."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Literal

import attrs

from flintmq.remoting.client.allocation import AllocateStrategy, allocate_averagely
from flintmq.remoting.client.message import MessageExt

CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"
FROM_LAST: Final = "CONSUME_FROM_LAST_OFFSET"
FROM_FIRST: Final = "CONSUME_FROM_FIRST_OFFSET"
FROM_TIMESTAMP: Final = "CONSUME_FROM_TIMESTAMP"


class ConsumeResult(enum.Enum):
    """The outcome that a listener returns."""

    SUCCESS = "success"
    LATER = "later"
    """Deliver the message again later; raising means the same."""


Listener = Callable[[MessageExt], "ConsumeResult | Awaitable[ConsumeResult | None] | None"]
"""Consume one message. A coroutine function runs on the loop, any other function in a thread."""


BatchListener = Callable[[list[MessageExt]], "ConsumeResult | int | Awaitable[ConsumeResult | int | None] | None"]
"""Consume messages of one queue, in its order: all of them (SUCCESS, None), none (LATER), or so many from the first on (a
number); the others are delivered again later. Called as a :data:`Listener` is."""


@attrs.frozen(kw_only=True)
class ConsumerSettings:
    """The settings of a :class:`~flintmq.remoting.client.consumer.Consumer`."""

    message_model: Literal["CLUSTERING", "BROADCASTING"] = "CLUSTERING"
    """CLUSTERING: members share the queues. BROADCASTING: each gets everything, and nothing is delivered again."""
    consume_from: Literal["CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"] = FROM_LAST
    """The first offset of a queue for which the group has no offset."""
    consume_from_timestamp_ms: int = 0
    orderly: bool = False
    """Consume one message of a queue at a time, in order, under the queue's lock; a failure holds up its queue."""
    concurrency: int = 20
    """Messages, or lists of them, consumed at a time, over all queues; orderly: one per queue."""
    consume_batch_size: int = 32
    """Messages in a list for a batch listener, at most. What has come is handed on; nothing waits for more."""
    max_reconsume_times: int | None = None
    """Tries before a message becomes a dead letter. None: 16, and without end when orderly."""
    delay_level: int = 0
    """The delay level of a failed message; 0: a higher one with each try."""
    consume_timeout_s: float = 900.0
    """A message that a listener has had for so long is delivered again, whatever becomes of it; not when orderly."""
    close_timeout_s: float = 0.0
    """How long ``close()`` waits for the messages that listeners have, so that they are committed. 0 abandons them: they come
    again (awaitTerminationMillisWhenShutdown). An orderly message is always finished."""
    pull_batch_size: int = 32
    max_cached_messages: int = 1_000
    """Per queue, not consumed yet; then pulling pauses."""
    max_cached_bytes: int = 100 * 1024 * 1024
    """Likewise, of the bodies."""
    max_span: int = 2_000
    """Likewise, from the first offset that is not consumed to the last one that is held; not when orderly."""
    pull_interval_ms: int = 0
    """Pause after each pull."""
    suspend_ms: int = 15_000
    """How long a broker may hold a pull."""
    rebalance_interval_s: float = 20.0
    commit_interval_s: float = 5.0
    lock_interval_s: float = 20.0
    """Brokers forget a lock after 60 s."""
    error_delay_s: float = 3.0
    """Pause after a pull that failed."""
    retry_delay_s: float = 1.0
    """Pause before an orderly message is tried again."""
    offset_folder: Path = attrs.field(factory=lambda: Path.home() / ".rocketmq_offsets")
    """BROADCASTING keeps offsets there, in ``<client id>/<group>/offsets.json``."""
    allocate: AllocateStrategy = allocate_averagely
    """Which queues are this member's; all members of a group must share by the same strategy."""

"""The settings of a consumer, what its listener returns, and which member consumes which queue."""

from __future__ import annotations

import enum
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from flintmq.core.errors import InvalidArgumentError
from flintmq.remoting.client.allocation import AllocateStrategy, allocate_averagely
from flintmq.remoting.client.consume_from import FROM_FIRST as FROM_FIRST
from flintmq.remoting.client.consume_from import FROM_LAST as FROM_LAST
from flintmq.remoting.client.consume_from import FROM_TIMESTAMP as FROM_TIMESTAMP
from flintmq.remoting.client.consume_from import ConsumeFrom, begin_of
from flintmq.remoting.client.message import MessageExt

CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"


class ConsumeResult(enum.Enum):
    """The outcome that a listener returns."""

    SUCCESS = "success"
    LATER = "later"
    """Deliver the message again later; raising means the same."""


def _one_of(*values: str) -> Callable[[object, attrs.Attribute[str], str], None]:
    def check(_instance: object, attribute: attrs.Attribute[str], value: str) -> None:
        if value not in values:
            raise ValueError(f"{attribute.name}={value!r}: it is one of {', '.join(map(repr, values))}")

    return check


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
    consume_from: ConsumeFrom = FROM_LAST
    """Where a queue begins for which the group has no offset: ``"first"``, ``"last"``, or a time (a ``datetime``, a text such
    as ``"2026-01-31T12:00"``, or ms since 1970). RocketMQ's names mean the same, and are what is read here."""
    consume_from_timestamp_ms: int = 0
    """The time, where ``consume_from`` is ``CONSUME_FROM_TIMESTAMP``; set where that is a time."""
    orderly: bool = False
    """Consume one message of a queue at a time, in order, under the queue's lock; a failure holds up its queue."""
    concurrency: int = 20
    """Messages, or lists of them, consumed at a time, over all queues; orderly: one per queue."""
    consume_batch_size: int = 32
    """Messages in a list for a batch listener, at most. What has come is handed on; nothing waits for more."""
    max_reconsume_times: int | None = None
    """How often a message comes again before it is a dead letter: with 16 it is tried 17 times. None: 16, and without end when
    orderly."""
    delay_level: int = 0
    """The delay level of a failed message; 0: a higher one with each try."""
    unreadable: Literal["retry", "deliver"] = attrs.field(default="retry", validator=_one_of("retry", "deliver"))
    """A message that cannot be read (``body_error``): ``retry`` has it count as one that the listener failed at, which does not
    see it; when orderly, as one that was tried often enough. ``deliver`` hands it to the listener."""
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
    offset_folder: Path | None = None
    """BROADCASTING keeps offsets there, in ``<client id>/<group>/offsets.json``; None: in ``~/.rocketmq_offsets``."""
    allocate: AllocateStrategy = allocate_averagely
    """Which queues are this member's; all members of a group must share by the same strategy."""

    def __attrs_post_init__(self) -> None:
        """Raise ``InvalidArgumentError`` for a value that does not fit."""
        where, timestamp_ms = begin_of(self.consume_from, self.consume_from_timestamp_ms)
        object.__setattr__(self, "consume_from", where)
        if timestamp_ms:
            object.__setattr__(self, "consume_from_timestamp_ms", timestamp_ms)
        for name, kind in _CHOICES.items():
            if getattr(self, name) not in kind:
                raise InvalidArgumentError(f"{name} is {getattr(self, name)!r}, and must be one of {', '.join(kind)}")
        for name, (kinds, low, high) in _NUMBERS.items():
            value = getattr(self, name)
            if value is None and name == "max_reconsume_times":
                continue
            if not isinstance(value, kinds) or isinstance(value, bool) or not low <= value <= high:
                number = "a whole number" if kinds is int else "a number"
                bounds = f"{low} or more" if high == math.inf else f"from {low} to {high}"
                raise InvalidArgumentError(f"{name} is {value!r}, and must be {number}, {bounds}")
        orderly: object = self.orderly
        if not isinstance(orderly, bool):
            raise InvalidArgumentError(f"orderly is {orderly!r}, and must be True or False")
        folder: object = self.offset_folder
        if isinstance(folder, str):
            object.__setattr__(self, "offset_folder", Path(folder))
        elif folder is not None and not isinstance(folder, Path):
            raise InvalidArgumentError(f"offset_folder is {folder!r}, and must be a pathlib.Path")
        if not callable(self.allocate):
            raise InvalidArgumentError(
                f"allocate is {self.allocate!r}, and must be a function, such as allocate_averagely"
            )


_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "message_model": (CLUSTERING, BROADCASTING),
}
_NUMBERS: Final[dict[str, tuple[Any, float, float]]] = {
    "consume_from_timestamp_ms": (int, 0, 2**63 - 1),
    "concurrency": (int, 1, 10_000),
    "consume_batch_size": (int, 1, 1_024),
    "max_reconsume_times": (int, -1, 2**31 - 1),
    "delay_level": (int, -1, 18),
    "consume_timeout_s": (int | float, 0, math.inf),
    "close_timeout_s": (int | float, 0, math.inf),
    "pull_batch_size": (int, 1, 1_024),
    "max_cached_messages": (int, 1, math.inf),
    "max_cached_bytes": (int, 1, math.inf),
    "max_span": (int, 1, math.inf),
    "pull_interval_ms": (int, 0, math.inf),
    "suspend_ms": (int, 0, math.inf),
    "rebalance_interval_s": (int | float, 0, math.inf),
    "commit_interval_s": (int | float, 0, math.inf),
    "lock_interval_s": (int | float, 0, math.inf),
    "error_delay_s": (int | float, 0, math.inf),
    "retry_delay_s": (int | float, 0, math.inf),
}
"""Setting → its type, and the lowest and the highest value."""

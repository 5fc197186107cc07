"""The settings of a consumer, and the types of its listeners and their results."""

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
    """The result that a listener returns for a message."""

    SUCCESS = "success"
    LATER = "later"
    """Deliver the message again later. An exception has the same effect."""


def _one_of(*values: str) -> Callable[[object, attrs.Attribute[str], str], None]:
    def check(_instance: object, attribute: attrs.Attribute[str], value: str) -> None:
        if value not in values:
            raise ValueError(f"{attribute.name}={value!r}: it is one of {', '.join(map(repr, values))}")

    return check


Listener = Callable[[MessageExt], "ConsumeResult | Awaitable[ConsumeResult | None] | None"]
"""A function that consumes one message. A coroutine function runs on the event loop, any other function on a thread."""


BatchListener = Callable[[list[MessageExt]], "ConsumeResult | int | Awaitable[ConsumeResult | int | None] | None"]
"""A function that consumes messages of one queue, passed in queue order; it runs where a :data:`Listener` runs.

It returns SUCCESS or None if all were consumed, LATER if none was, or the number of messages consumed from the start of the
list. The others are delivered again later."""


@attrs.frozen(kw_only=True)
class ConsumerSettings:
    """The settings of a :class:`~flintmq.remoting.client.consumer.Consumer`."""

    message_model: Literal["CLUSTERING", "BROADCASTING"] = "CLUSTERING"
    """CLUSTERING: the members share the queues. BROADCASTING: each member gets all messages, and failures are not retried."""
    consume_from: ConsumeFrom = FROM_LAST
    """Start of a queue for which the group has no offset yet: ``"first"``, ``"last"``, or a time.

    A time is a ``datetime``, a text such as ``"2026-01-31T12:00"``, or ms since 1970. RocketMQ's names are accepted too. The
    attribute always reads as one of RocketMQ's names."""
    consume_from_timestamp_ms: int = 0
    """The start time in ms since 1970, if ``consume_from`` is ``CONSUME_FROM_TIMESTAMP``; set if that was given as a time."""
    orderly: bool = False
    """Whether to consume the messages of a queue one at a time, in order, under the queue's lock at the broker.

    A message that fails is retried before the next message of its queue."""
    concurrency: int = 20
    """Maximum number of listener calls at the same time, over all queues; an orderly consumer makes one per queue."""
    consume_batch_size: int = 32
    """Maximum number of messages in a list for a batch listener. A shorter list is passed on without waiting for more."""
    max_reconsume_times: int | None = None
    """Number of redeliveries after which a message becomes a dead letter: with 16, it is tried 17 times.

    None: 16, or without limit if the consumer is orderly."""
    delay_level: int = 0
    """The delay level for the redelivery of a failed message; 0: it rises with each attempt."""
    unreadable: Literal["retry", "deliver"] = attrs.field(default="retry", validator=_one_of("retry", "deliver"))
    """Handling of a message that cannot be read (it has a ``body_error``): ``retry`` or ``deliver``.

    ``retry`` treats it like a message at which the listener failed, without calling the listener; an orderly consumer treats it
    as one whose attempts are used up. ``deliver`` passes it to the listener."""
    consume_timeout_s: float = 900.0
    """Seconds after which a message is delivered again although its listener has not returned; not if orderly."""
    close_timeout_s: float = 0.0
    """Seconds that ``close()`` waits for listeners to finish, so that their messages are committed.

    With 0 these messages are abandoned and delivered again (``awaitTerminationMillisWhenShutdown``). An orderly message is
    always finished."""
    pull_batch_size: int = 32
    max_cached_messages: int = 1_000
    """Maximum number of unconsumed messages per queue; pulling pauses at this limit."""
    max_cached_bytes: int = 100 * 1024 * 1024
    """Maximum total size of the bodies of unconsumed messages per queue; pulling pauses at this limit."""
    max_span: int = 2_000
    """Maximum distance per queue, in queue offsets, from the first unconsumed message to the last pulled one; not if orderly.

    Pulling pauses at this limit."""
    pull_interval_ms: int = 0
    """Pause after each pull of a queue."""
    suspend_ms: int = 15_000
    """Maximum time that a broker holds a pull while no message arrives."""
    rebalance_interval_s: float = 20.0
    commit_interval_s: float = 5.0
    lock_interval_s: float = 20.0
    """Interval between renewals of queue locks; a broker drops a lock after 60 s."""
    error_delay_s: float = 3.0
    """Pause after a failed pull."""
    retry_delay_s: float = 1.0
    """Pause before a failed orderly message is retried."""
    offset_folder: Path | None = None
    """Folder for the offsets of BROADCASTING, as ``<client id>/<group>/offsets.json``; None: ``~/.rocketmq_offsets``."""
    allocate: AllocateStrategy = allocate_averagely
    """The function that computes which queues this member consumes; all members of a group must use the same strategy."""

    def __attrs_post_init__(self) -> None:
        """Normalize some values, and raise ``InvalidArgumentError`` for an invalid value."""
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
"""The type, the lowest and the highest value of each number, keyed by setting."""

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
    """Result of a listener for a message that must be delivered again later. An exception of the listener has the same
    effect."""


def _one_of(*values: str) -> Callable[[object, attrs.Attribute[str], str], None]:
    def check(_instance: object, attribute: attrs.Attribute[str], value: str) -> None:
        if value not in values:
            raise ValueError(f"{attribute.name} is {value!r}, and must be one of {', '.join(map(repr, values))}")

    return check


Listener = Callable[[MessageExt], "ConsumeResult | Awaitable[ConsumeResult | None] | None"]
"""A function that consumes one message. A coroutine function runs on the event loop, any other function on a thread."""


BatchListener = Callable[[list[MessageExt]], "ConsumeResult | int | Awaitable[ConsumeResult | int | None] | None"]
"""A function that consumes messages of one queue, passed in queue order. A coroutine function runs on the event loop, any other
function on a thread.

The function returns SUCCESS or None if it consumed all messages, LATER if it consumed none, or the number of messages that it
consumed from the start of the list. The other messages are delivered again later."""


@attrs.frozen(kw_only=True)
class ConsumerSettings:
    """Immutable options of a :class:`~flintmq.remoting.client.consumer.Consumer`: the message model, the position of the first
    read, concurrency, retries, and time limits."""

    message_model: Literal["CLUSTERING", "BROADCASTING"] = "CLUSTERING"
    """How a group consumes. CLUSTERING: the members share the queues. BROADCASTING: each member gets all messages, without
    retries."""
    consume_from: ConsumeFrom = FROM_LAST
    """Position where a queue without an offset of the group is first read: ``"first"``, ``"last"``, or a time.

    A time is a ``datetime``, a text such as ``"2026-01-31T12:00"``, or ms since 1970. RocketMQ's names are accepted too. The
    attribute always reads as one of RocketMQ's names."""
    consume_from_timestamp_ms: int = 0
    """Time in ms since 1970 from which messages are consumed, if ``consume_from`` is ``CONSUME_FROM_TIMESTAMP``. It is set
    automatically if ``consume_from`` is a time."""
    orderly: bool = False
    """Whether to consume the messages of a queue one at a time, in order, under the queue's lock at the broker.

    A message that fails is retried before the next message of its queue is consumed."""
    concurrency: int = 20
    """Maximum number of listener calls at the same time, over all queues. An orderly consumer makes one call at a time for each
    queue."""
    consume_batch_size: int = 32
    """Maximum number of messages in a list for a batch listener. A shorter list is passed to the listener without waiting for
    more messages."""
    max_reconsume_times: int | None = None
    """Number of redeliveries after which a message becomes a dead letter. With 16, the message is delivered up to 17 times.
    None means 16, but no limit for an orderly consumer."""
    delay_level: int = 0
    """The delay level for the redelivery of a failed message. With 0, the level rises with each attempt."""
    unreadable: Literal["retry", "deliver"] = attrs.field(default="retry", validator=_one_of("retry", "deliver"))
    """Handling of a message whose body cannot be read (``body_error`` is not empty): ``retry`` or ``deliver``.

    With ``retry``, the listener is not called, and the message is treated as if the listener had failed. An orderly consumer
    does not retry the message, but asks the broker to make it a dead letter. With ``deliver``, the listener gets the
    message."""
    consume_timeout_s: float = 900.0
    """Seconds after which a message is delivered again although its listener has not returned. Orderly consumers ignore this
    setting."""
    close_timeout_s: float = 0.0
    """Seconds that ``close()`` waits for listeners to finish, so that the offsets of their messages are committed.

    With 0, the messages in running listeners are abandoned and delivered again (``awaitTerminationMillisWhenShutdown``). The
    message in an orderly listener is always finished."""
    pull_batch_size: int = 32
    max_cached_messages: int = 1_000
    """Maximum number of unconsumed messages per queue. Pulling of the queue pauses at this limit."""
    max_cached_bytes: int = 100 * 1024 * 1024
    """Maximum total size of the bodies of unconsumed messages per queue. Pulling of the queue pauses at this limit."""
    max_span: int = 2_000
    """Maximum distance in queue offsets from the first unconsumed message of a queue to the last message pulled from it.

    Pulling of the queue pauses at this limit. Orderly consumers ignore this setting."""
    pull_interval_ms: int = 0
    """Pause in milliseconds between two pulls of a queue."""
    suspend_ms: int = 15_000
    """Maximum time in milliseconds that a broker holds a pull while no message arrives."""
    rebalance_interval_s: float = 20.0
    commit_interval_s: float = 5.0
    lock_interval_s: float = 20.0
    """Interval in seconds between renewals of queue locks. A broker drops a lock 60 s after its last renewal."""
    error_delay_s: float = 3.0
    """Pause in seconds after a failed pull."""
    retry_delay_s: float = 1.0
    """Pause in seconds before an orderly consumer retries a message that failed."""
    offset_folder: Path | None = None
    """Folder in which a consumer with BROADCASTING stores its offsets, as ``<client id>/<group>/offsets.json``. None means
    ``~/.rocketmq_offsets``."""
    allocate: AllocateStrategy = allocate_averagely
    """The function that computes which queues this member consumes. All members of a group must use the same function."""

    def __attrs_post_init__(self) -> None:
        """Normalize the settings' values, and raise ``InvalidArgumentError`` for an invalid value."""
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
"""Type, lowest value and highest value of each setting that is a number, keyed by the setting's name."""

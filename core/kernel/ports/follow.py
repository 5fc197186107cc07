"""The interface of services that are called at each append, each answer to a send, and each pull that finds messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from flintmq.core.kernel.ports.flush import FlushWaiter

if TYPE_CHECKING:
    from flintmq.core.errors import RefusedError
    from flintmq.core.record.batch import MessageBatch
    from flintmq.core.record.dispatch_request import AppendUnit
    from flintmq.core.record.record import MessageExtBrokerInner


class StoredMessages(msgspec.Struct, frozen=True, eq=False):
    """The messages of one append and the results of storing them, for services that follow messages. Read-only."""

    messages: Sequence[MessageExtBrokerInner | MessageBatch]
    """Messages of the append, with the topic and queue in which each message is stored. The sender may have named another topic
    and queue, for example if the message is delayed."""
    results: Sequence[AppendUnit | RefusedError]
    """Result of each message of the append: its position in the log, or the error that prevented its storage."""
    took_s: float
    """Duration of the append, in seconds."""
    flushed: FlushWaiter
    """Waiter that is done when the messages are on disk, if the flush strategy lets senders wait for the disk; otherwise the
    waiter is done at once."""
    durable: FlushWaiter
    """Waiter that is done when :attr:`flushed` is done and, with the role ``sync_master``, a slave has the messages."""


class HandedOut(msgspec.Struct, frozen=True, eq=False):
    """The messages that a pull found, for services that follow messages. Read-only."""

    topic: str
    group: str
    queue_id: int
    records: Sequence[memoryview]
    """Buffers with whole records, in the order of the log. The buffers are valid only during the call of the service."""
    took_s: float
    """Duration of the search for the pull's messages, in seconds."""


@runtime_checkable
class FollowsMessages(Protocol):
    """A service that follows messages, for example to measure, trace or mirror them.

    Its methods are called on the loop's thread for each append, each write of answers and each pull that finds messages.
    Clients wait until the methods return, so the methods must be quick. An exception is counted for the plugin and has no other
    effect. A broker without such a service loses no speed.
    """

    def on_stored(self, stored: StoredMessages) -> None:
        """Process a notice of an append, before its durability is awaited and its senders are answered.

        Called for the messages of clients and for messages that the broker stores itself: delivered delayed messages,
        committed transactions, and messages that consumers sent back.
        """
        ...

    def on_answered(self) -> None:
        """Process a notice that clients' send requests have been answered. The broker gives this notice after it has written
        the answers to the clients' sockets. The notice applies to all sends that were completed before this call."""
        ...

    def on_handed_out(self, handed_out: HandedOut) -> None:
        """Process a notice of the messages that a pull returns to a group, before they are written to the consumer's socket."""
        ...

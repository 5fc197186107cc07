"""The port of services that follow messages through a broker: stored, answered, handed out."""

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
    """What one append made of messages. Read-only."""

    messages: Sequence[MessageExtBrokerInner | MessageBatch]
    """What was to be stored, where intake steps and features have put it."""
    results: Sequence[AppendUnit | RefusedError]
    """For each of them: where it is, or why it is not stored."""
    took_s: float
    """How long the append took."""
    flushed: FlushWaiter
    """Done when the log is on disk so far, where the flush strategy has senders wait for that; else at once."""
    durable: FlushWaiter
    """Done when all of it is as durable as promised: :attr:`flushed`, and held by a slave under ``sync_master``."""


class HandedOut(msgspec.Struct, frozen=True, eq=False):
    """What a pull found. Read-only."""

    topic: str
    group: str
    queue_id: int
    records: Sequence[memoryview]
    """Whole records in the order of the log, in one or more pieces. Valid during the call only."""
    took_s: float
    """How long it took to find them."""


@runtime_checkable
class FollowsMessages(Protocol):
    """A service that follows messages: measures, traces, mirrors.

    It is called for each append, each write of answers and each pull that finds something, on the loop's thread, between two
    pieces of a client's work: it must be quick. What it raises is counted for its plugin and changes nothing. A broker
    without such a service pays nothing.
    """

    def on_stored(self, stored: StoredMessages) -> None:
        """Take note of an append, before anybody waits for its durability or is answered.

        All messages come by here: those of clients, and those that the broker puts itself (deliveries of delayed
        messages, committed transactions, messages that consumers sent back).
        """
        ...

    def on_answered(self) -> None:
        """Take note that the answers to all sends that were settled before this call are handed to their sockets."""
        ...

    def on_handed_out(self, handed_out: HandedOut) -> None:
        """Take note of the messages that a group is given, before they are written to its consumer's socket."""
        ...

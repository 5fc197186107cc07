"""What transactions need of the store and of the broker around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flintmq.core.broker.durable_positions import LogEnds
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.record.record import MessageExtBrokerInner, Record


class TransactionStore(LogEnds, Protocol):
    """The store, as far as transactions go; queues are always queue 0. Loop thread."""

    @property
    def store_host(self) -> bytes:
        """The broker's own address, packed."""
        ...

    @property
    def readable_offset_bytes(self) -> int:
        """End of what can be read: what a client got an answer for lies below, or soon will."""
        ...

    def min_queue_offset(self, topic: str) -> int: ...

    def max_queue_offset(self, topic: str) -> int: ...

    def record(self, topic: str, queue_offset: int) -> Record | None:
        """The message at a queue offset, None when there is none any more."""
        ...

    def record_at(self, commit_log_offset_bytes: int) -> Record | None:
        """The record at a place of the log."""
        ...

    def last_record(self) -> Record | None:
        """The newest record that is in a queue."""
        ...

    def append(self, messages: Sequence[MessageExtBrokerInner]) -> list[DispatchRequest]:
        """Append messages as consecutive records, all or none. Does not wait for durability.

        Raises:
            RefusedError: MESSAGE_ILLEGAL when the store can never take them; any other code when it cannot now.
        """
        ...

    def ensure_topic(self, topic: str) -> None:
        """Makes a topic of one queue when it is missing."""
        ...

    def load_positions(self) -> tuple[int, int]:
        """The saved positions in the half and in the op queue; -1 where there is none."""
        ...

    def save_positions(self, half_queue_offset: int, op_queue_offset: int) -> None: ...

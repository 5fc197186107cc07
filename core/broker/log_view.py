"""The store of a broker for features: its positions, queues and messages, and the store's health."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.core.kernel.ports import SupportsFlushSoon

if TYPE_CHECKING:
    from pathlib import Path

    from flintmq.core.errors import RefusedError
    from flintmq.core.event import Event
    from flintmq.core.histogram import Histogram
    from flintmq.core.kernel.ports import FlushWaiter, QueueReader
    from flintmq.core.log.slow import SlowOperation
    from flintmq.core.log.watermarks import Watermarks
    from flintmq.core.record.dispatch_request import DispatchRequest
    from flintmq.core.record.record_batch import RecordBatch
    from flintmq.core.recovery.plan import RecoveryPlan
    from flintmq.core.recovery.start_walk import Recovered
    from flintmq.core.store.message_reader import MessageReader
    from flintmq.core.store.message_store import MessageStore


class HasStore(Protocol):
    """An object that has a store and dispatches the store's readable records.

    In a broker, this object is the broker's state.
    """

    @property
    def store(self) -> MessageStore: ...
    def dispatch(self) -> None: ...
    def dispatch_soon(self) -> None: ...


class LogView:
    """Read access to the commit log and its queues. Loop thread, unless a method says otherwise.

    Messages are appended with ``BrokerApi.put``.
    """

    __slots__ = ("_owner", "dispatch_soon", "health")

    def __init__(self, owner: HasStore) -> None:
        self._owner: Final = owner
        self.dispatch_soon: Final = owner.dispatch_soon
        """Function that dispatches the log's readable records in the event loop's next iteration."""
        self.health: Final = StoreHealth(owner)
        """Read access to the condition of the store: its current errors, the durations of its syncs, commits and slow
        operations, and the results of its last start."""

    @property
    def marks(self) -> Watermarks:
        """Physical offsets up to which the log is written, flushed, readable and dispatched. Thread-safe to read."""
        return self._owner.store.watermarks

    @property
    def reader(self) -> MessageReader:
        """Reader of messages by queue, key and physical offset."""
        return self._owner.store.reader

    @property
    def min_offset_bytes(self) -> int:
        """Physical offset at which the log begins."""
        return self._owner.store.commit_log.min_offset_bytes

    @property
    def arrived(self) -> Event[[RecordBatch]]:
        """Event published with each batch of records after its dispatch."""
        return self._owner.store.reput.arrived

    @property
    def progressed(self) -> Event[[]]:
        """Event published on the flush service's thread after each flush that made more records durable."""
        return self._owner.store.progressed

    def store_timestamp_ms(self, commit_log_offset_bytes: int) -> int:
        """Return the store timestamp of the record at a physical offset, in ms since 1970."""
        return self._owner.store.commit_log.store_timestamp_ms(commit_log_offset_bytes)

    def slice(self, commit_log_offset_bytes: int, size_bytes: int) -> memoryview | None:
        """Return a view of bytes of the log, without a copy; None if the bytes are deleted."""
        return self._owner.store.commit_log.slice(commit_log_offset_bytes, size_bytes)

    def requests(self, begin_bytes: int, end_bytes: int) -> Iterator[DispatchRequest]:
        """Yield the dispatch requests of the log's records between two physical offsets."""
        return self._owner.store.commit_log.requests(begin_bytes, end_bytes)

    @property
    def queues(self) -> Mapping[tuple[str, int], QueueReader]:
        """Readers of consume queues, keyed by topic and queue id."""
        return self._owner.store.consume_queues.queues

    def check_writeable(self) -> None:
        """Raise ``RefusedError`` if the store takes no messages now."""
        self._owner.store.check_writeable()

    def promise(self) -> FlushWaiter:
        """Return a waiter that is done when all records appended before this call are as durable as the flush strategy and
        replication promise.
        """
        return self._owner.store.writer.promise()

    def flush_soon(self) -> None:
        """Request a sync of the log before the flush strategy would begin the sync. A flush service that cannot sync early
        ignores the request. Can be called from any thread.
        """
        # A truncation of the log replaces the flush service, so each call of flush_soon() looks up the current flush service.
        service = self._owner.store.services.flush_service
        if isinstance(service, SupportsFlushSoon):
            service.flush_soon()

    def delete_topic(self, topic: str) -> FlushWaiter:
        """Record the deletion of a topic in the log and delete its queues; return a waiter for the record's durability."""
        return self._owner.store.delete_topic(topic)

    def dispatch(self, *, everything: bool = False) -> None:
        """Dispatch readable records to the queues and the index, and resume held pulls.

        Args:
            everything: whether all readable records are dispatched before the call returns. If False, the call dispatches a
                limited number, and the remaining records follow in the loop's next iterations.
        """
        if everything:
            self._owner.store.reput.run_all()
        else:
            self._owner.dispatch()


class StoreHealth:
    """Faults and durations of a store, and the results of its last start. Used only on the event loop's thread."""

    __slots__ = ("_owner",)

    def __init__(self, owner: HasStore) -> None:
        self._owner: Final = owner

    @property
    def trouble(self) -> RefusedError | None:
        """Error with which the store refuses messages now; None if the store accepts messages."""
        return self._owner.store.trouble

    @property
    def slow_operations(self) -> Mapping[str, SlowOperation]:
        """Last slow operation of the store for each kind of operation."""
        return self._owner.store.slow_operations

    @property
    def dispatch_error(self) -> Exception | None:
        """Error that stopped dispatch; None if dispatch works."""
        return self._owner.store.reput.error

    @property
    def behind_bytes(self) -> int:
        """Bytes of the log that are not dispatched yet."""
        return self._owner.store.reput.behind_bytes

    @property
    def queues_trouble(self) -> str:
        """Error of the last sync of the consume queues, as a text; empty if the sync succeeded."""
        return self._owner.store.services.flusher.trouble

    @property
    def free_pool_buffers(self) -> int | None:
        """Number of free buffers in the transient store pool; None if the broker does not use the pool."""
        return self._owner.store.free_pool_buffers

    @property
    def sync_s(self) -> Histogram:
        """Durations of syncs of the log, in seconds."""
        return self._owner.store.commit_log.durability.sync_s

    @property
    def commit_s(self) -> Histogram:
        """Durations of commits from buffers of the transient store pool to files of the log, in seconds."""
        return self._owner.store.commit_log.durability.commit_s

    @property
    def started_clean(self) -> bool:
        """Whether the store had been closed without a crash before the last start."""
        return self._owner.store.started_clean

    @property
    def recovery_s(self) -> float:
        """Duration of the recovery at the last start, in seconds."""
        return self._owner.store.recovery_s

    @property
    def catch_up_s(self) -> float:
        """Time, in seconds, that the last start needed to dispatch records that had not been dispatched before."""
        return self._owner.store.catch_up_s

    @property
    def recovery_plan(self) -> RecoveryPlan:
        """Physical offset at which the recovery began, and the reason for that offset."""
        return self._owner.store.recovery_plan

    @property
    def quarantine(self) -> Path:
        """Folder for bytes that a recovery removed from the log. The folder need not exist."""
        return self._owner.store.quarantine

    @property
    def recovered(self) -> Recovered | None:
        """Results of the recovery; None if the recovery did not read the log."""
        return self._owner.store.recovered

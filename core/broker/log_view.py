"""The store of a broker as features see it: positions, queues and messages to read, and what is wrong."""

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
    """What owns a store, and dispatches what is readable in it."""

    @property
    def store(self) -> MessageStore: ...
    def dispatch(self) -> None: ...
    def dispatch_soon(self) -> None: ...


class LogView:
    """The log and its queues, to be read. Loop thread, if nothing else is said. Messages are put with ``BrokerApi.put``."""

    __slots__ = ("_owner", "dispatch_soon", "health")

    def __init__(self, owner: HasStore) -> None:
        self._owner: Final = owner
        self.dispatch_soon: Final = owner.dispatch_soon
        """Make what is readable visible in the next iteration of the loop."""
        self.health: Final = StoreHealth(owner)
        """What is wrong with the store, and how its last start went."""

    @property
    def marks(self) -> Watermarks:
        """The positions: how far the log is written, flushed, readable and dispatched. Thread-safe to read."""
        return self._owner.store.watermarks

    @property
    def reader(self) -> MessageReader:
        """Reads messages by queue, key and position."""
        return self._owner.store.reader

    @property
    def min_offset_bytes(self) -> int:
        """Where the log begins."""
        return self._owner.store.commit_log.min_offset_bytes

    @property
    def arrived(self) -> Event[[RecordBatch]]:
        """Published with each batch that was dispatched."""
        return self._owner.store.reput.arrived

    @property
    def progressed(self) -> Event[[]]:
        """Published when a flush has made more durable, on the flush service's thread."""
        return self._owner.store.progressed

    def store_timestamp_ms(self, commit_log_offset_bytes: int) -> int:
        """Return when the record at a position was stored, in ms since 1970."""
        return self._owner.store.commit_log.store_timestamp_ms(commit_log_offset_bytes)

    def slice(self, commit_log_offset_bytes: int, size_bytes: int) -> memoryview | None:
        """Return bytes of the log, which are not copied; None if they are not there any more."""
        return self._owner.store.commit_log.slice(commit_log_offset_bytes, size_bytes)

    def requests(self, begin_bytes: int, end_bytes: int) -> Iterator[DispatchRequest]:
        """Yield what dispatchers are given of the records between two positions."""
        return self._owner.store.commit_log.requests(begin_bytes, end_bytes)

    @property
    def queues(self) -> Mapping[tuple[str, int], QueueReader]:
        """The consume queues to read, by topic and queue id."""
        return self._owner.store.consume_queues.queues

    def check_writeable(self) -> None:
        """Raise ``RefusedError`` if the store takes no messages now."""
        self._owner.store.check_writeable()

    def promise(self) -> FlushWaiter:
        """Return what is done when everything that is appended now is as durable as promised."""
        return self._owner.store.writer.promise()

    def flush_soon(self) -> None:
        """Have the flush service sync sooner than its strategy would, if it can. Thread-safe."""
        service = self._owner.store.services.flush_service  # another one after a truncation
        if isinstance(service, SupportsFlushSoon):
            service.flush_soon()

    def delete_topic(self, topic: str) -> FlushWaiter:
        """Note in the log that a topic is deleted, and with it its queues; return what is done when that is durable."""
        return self._owner.store.delete_topic(topic)

    def dispatch(self, *, everything: bool = False) -> None:
        """Make what was appended visible as far as it is durable: queues, index, held pulls.

        Args:
            everything: whether all of it is dispatched before this returns; else what is more than a slice follows with the
                next iterations of the loop.
        """
        if everything:
            self._owner.store.reput.run_all()
        else:
            self._owner.dispatch()


class StoreHealth:
    """What is wrong with a store, and how its last start went. Loop thread."""

    __slots__ = ("_owner",)

    def __init__(self, owner: HasStore) -> None:
        self._owner: Final = owner

    @property
    def trouble(self) -> RefusedError | None:
        """What keeps the store from taking messages; None while nothing does."""
        return self._owner.store.trouble

    @property
    def slow_operations(self) -> Mapping[str, SlowOperation]:
        """The last slow operation of each kind."""
        return self._owner.store.slow_operations

    @property
    def dispatch_error(self) -> Exception | None:
        """What stopped dispatch; None while it goes on."""
        return self._owner.store.reput.error

    @property
    def behind_bytes(self) -> int:
        """How much of the log is not dispatched yet."""
        return self._owner.store.reput.behind_bytes

    @property
    def queues_trouble(self) -> str:
        """What keeps the queues from being synced; an empty text while nothing does."""
        return self._owner.store.services.flusher.trouble

    @property
    def free_pool_buffers(self) -> int | None:
        """How many buffers of the transient store pool are free; None without one."""
        return self._owner.store.free_pool_buffers

    @property
    def sync_s(self) -> Histogram:
        """How long syncs of the log took."""
        return self._owner.store.commit_log.durability.sync_s

    @property
    def commit_s(self) -> Histogram:
        """How long commits took, from buffers of the pool to the files."""
        return self._owner.store.commit_log.durability.commit_s

    @property
    def started_clean(self) -> bool:
        """Whether the last stop was one in order."""
        return self._owner.store.started_clean

    @property
    def recovery_s(self) -> float:
        """How long the recovery took."""
        return self._owner.store.recovery_s

    @property
    def catch_up_s(self) -> float:
        """How long it took at the start to dispatch what had not been dispatched before."""
        return self._owner.store.catch_up_s

    @property
    def recovery_plan(self) -> RecoveryPlan:
        """Where the recovery began, and why."""
        return self._owner.store.recovery_plan

    @property
    def quarantine(self) -> Path:
        """The folder of what was taken out of the log; it need not exist."""
        return self._owner.store.quarantine

    @property
    def recovered(self) -> Recovered | None:
        """What the recovery found; None if it did not read the log."""
        return self._owner.store.recovered

"""The interfaces for the durability of messages: flush services, transient store pools, and waiters for syncs and for
replication."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

import attrs

from flintmq.core.io.clock import Clock

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class FlushStatus(enum.Enum):
    """The result of a wait until records are durable (docs/internals/algorithms.md, Append and Flush strategies)."""

    FLUSHED = "flushed"
    """Status of a wait for durability: the log up to the requested position is as durable as the flush strategy promises."""
    TIMEOUT = "timeout"
    """Status of a wait for durability: the sync did not end in time. The record is stored and may still become durable
    (FLUSH_DISK_TIMEOUT)."""
    FENCED = "fenced"
    """Status of a wait for durability: the sync failed, or the flush service stopped before the sync. The record must not be
    acknowledged."""
    SLAVE_TIMEOUT = "slave_timeout"
    """Status of a wait for durability: no slave had the record in time. The record is stored and may still be replicated
    (FLUSH_SLAVE_TIMEOUT)."""
    SLAVE_NOT_AVAILABLE = "slave_not_available"
    """Status of a wait for durability: no slave is connected, or all slaves are too far behind. The record is stored, but not
    replicated in time."""


class ReplicationGate(Protocol):
    """Creates waiters for replication. Such a waiter is done when a slave has the log up to a position. Used only on the event
    loop's thread."""

    def promise(self, end_offset_bytes: int, flushed: FlushWaiter) -> FlushWaiter:
        """Return a waiter that is done when the log up to a position is durable on this broker and present on a slave.

        Args:
            end_offset_bytes: the position, a physical offset.
            flushed: the waiter that is done when the log up to the position is durable on this broker.

        Returns:
            A waiter that ends with the status of ``flushed``, or with SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE.
        """
        ...


class FlushWaiter(Protocol):
    """A wait until the log up to a position is durable. Thread-safe."""

    @property
    def status(self) -> FlushStatus | None:
        """Final status of the wait for durability; None while the wait is pending."""
        ...

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        """Call a function once with the wait's final status: at once if the status is known, else later on the flush thread."""
        ...


@attrs.frozen
class FlushStatistics:
    """Counters of a flush service, from its start on."""

    syncs: int
    """Number of syncs, the calls that forced bytes to disk."""
    synced_bytes: int
    waiters: int
    """Number of waiters for durability that were completed, with any status."""
    timeouts: int
    sync_time_s: float
    """Total time spent in syncs, in seconds."""


class FileWriter(Protocol):
    """Function that writes bytes of a transient pool's buffer to a commit log file. Used on the flush thread."""

    def __call__(self, path: Path, buffer: memoryview, begin: int, end: int) -> None:
        """Write ``buffer[begin:end]`` to the same positions of the commit log file, and return when these bytes are durable.

        The function may also write bytes before and after the range, for example whole blocks. Before ``begin``, the buffer
        equals the file. After ``end``, the buffer has zeros or records that the next call writes. The size of the file must not
        change.

        Raises:
            OSError: the bytes could not be written.
        """
        ...


class FlushableLog(Protocol):
    """The commit log, as flush services use it. One thread may flush while another thread commits. The positions only grow."""

    @property
    def wrote_offset_bytes(self) -> int:
        """Physical offset just past the last byte appended to the log (in mapped memory, or in the transient pool)."""
        ...

    @property
    def committed_offset_bytes(self) -> int:
        """Physical offset up to which the log has left the transient pool and is in the page cache or on disk. Without a
        transient pool, it is equal to ``wrote_offset_bytes``."""
        ...

    @property
    def flushed_offset_bytes(self) -> int:
        """Physical offset up to which the log was synced."""
        ...

    def commit(self, least_pages: int, write: FileWriter | None = None) -> int:
        """Copy bytes of the transient pool into one file, and return the committed position.

        See docs/internals/algorithms.md, Flush strategies.

        Args:
            least_pages: minimum number of 4 KiB pages to copy; the call does nothing if fewer pages wait to be copied. With 0,
                any number of bytes is copied.
            write: the function that writes the bytes to the file and makes them durable. If it is None, the bytes are copied
                into the mapped pages of the file.

        Raises:
            StoreFencedError: ``write`` raised OSError. The store is fenced: every later call raises until the broker is
                restarted.
            StoreExhaustedError: the process has no free file descriptor. Nothing was written; call again later.
        """
        ...

    def flush(self, least_pages: int, *, written_through: bool = False) -> int:
        """Sync the dirty pages of one file, and return the flushed position.

        Args:
            least_pages: minimum number of dirty 4 KiB pages; the call does nothing if fewer pages are dirty. With 0, any number
                of dirty pages is synced.
            written_through: whether every call of :meth:`commit` had a function ``write``, which makes the bytes themselves
                durable. Files with a buffer of the transient pool then need only their first sync, which makes their names
                durable.

        Raises:
            StoreFencedError: the sync failed. The store is fenced: every later call raises until the broker is restarted.
            StoreExhaustedError: the process has no free file descriptor. Nothing was synced; call again later.
        """
        ...


@attrs.frozen
class FlushContext(Generic[S_co]):
    """The argument of a flush service's factory; ``FlushContext[MySection]`` names the type of its settings."""

    log: FlushableLog
    clock: Clock
    settings: S_co
    """Section of the configuration for the flush strategy: an attrs instance for built-in strategies, the plugin's own model
    for others."""
    pool: TransientStorePool | None
    """Transient store pool; None if the flush strategy uses no pool."""


class FlushCommitLogService(Protocol):
    """A flush service, which makes appended bytes durable. ``submit`` is called on the loop thread, once for each batch of
    appends.
    """

    def start(self) -> None:
        """Start the flush service's threads."""
        ...

    def stop(self) -> None:
        """Sync the log as far as possible, complete every waiter and end the flush service's threads. Idempotent."""
        ...

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        """Return a waiter for the durability of the log up to a position, a physical offset.

        A synchronous strategy wakes its thread and returns a pending waiter. An asynchronous strategy returns a waiter that is
        done.
        """
        ...

    def statistics(self) -> FlushStatistics:
        """Return a snapshot of the flush service's counters. All threads may call it."""
        ...


@runtime_checkable
class SupportsFlushSoon(Protocol):
    """A flush service that can sync on request, if a caller waits for bytes that the flush strategy would sync only later."""

    def flush_soon(self) -> None:
        """Start a sync of all bytes that were appended to the log before this call, even if they are few.

        All threads may call this method, which never waits.
        """
        ...


FlushServiceFactory = Callable[[FlushContext[S]], FlushCommitLogService]


@attrs.frozen
class FlushStrategy(Generic[S]):
    """A flush strategy, which a plugin registers: its name, the factory of its flush service, and whether it is synchronous and
    uses a transient store pool."""

    name: str
    factory: FlushServiceFactory[S]
    settings_model: type[S] | None = None
    """The attrs class that validates the section ``flush.<name>`` of the configuration; None for a strategy without
    settings."""
    synchronous: bool = False
    """Whether the waiters that ``submit`` returns are done only after a sync. If so, reads and dispatch stop at the flushed
    position."""
    uses_pool: bool = False
    """Whether appends are written to the transient store pool first."""


class TransientStorePool(Protocol):
    """A transient store pool: buffers for commit log files, outside the page cache (docs/internals/algorithms.md, Mapped
    files). Thread-safe.
    """

    def borrow(self) -> memoryview | None:
        """Return a writable buffer of a log file's size, or None if all buffers are in use. Without a buffer, appends go to
        mapped pages of the file.
        """
        ...

    def give_back(self, buffer: memoryview) -> None:
        """Give a buffer back to the pool. All bytes of the buffer must be committed."""
        ...

    @property
    def available_buffers(self) -> int: ...

    def close(self) -> None: ...

"""The ports of durability: flush services, their waiters, the pool, and the gate of replication."""

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
    """How a wait for durability ended (docs/internals/algorithms.md, Append and Flush strategies)."""

    FLUSHED = "flushed"
    """Everything up to the requested position is as durable as the strategy promises."""
    TIMEOUT = "timeout"
    """Not in time; the record is stored and may still become durable (FLUSH_DISK_TIMEOUT)."""
    FENCED = "fenced"
    """A sync failed or the service stopped before it happened: the record must not be acknowledged."""
    SLAVE_TIMEOUT = "slave_timeout"
    """No slave held it in time; the record is stored and may still be replicated (FLUSH_SLAVE_TIMEOUT)."""
    SLAVE_NOT_AVAILABLE = "slave_not_available"
    """No slave follows, or all are too far behind; the record is stored."""


class ReplicationGate(Protocol):
    """Promises that a slave holds what was appended. Loop thread."""

    def promise(self, end_offset_bytes: int, flushed: FlushWaiter) -> FlushWaiter:
        """Return a promise that a position is durable here and held by a slave.

        Args:
            end_offset_bytes: the position.
            flushed: the promise that it is durable here.

        Returns:
            A waiter that ends as ``flushed`` does, or with SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE.
        """
        ...


class FlushWaiter(Protocol):
    """A promise of durability for a position. Thread-safe."""

    @property
    def status(self) -> FlushStatus | None:
        """None while pending; then final."""
        ...

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        """Call back once with the final status: at once when done, else later on the flush thread."""
        ...


@attrs.frozen
class FlushStatistics:
    """Counters of a flush service since it started."""

    syncs: int
    """Calls that forced bytes to disk."""
    synced_bytes: int
    waiters: int
    """Waiters completed, whatever their status."""
    timeouts: int
    sync_time_s: float
    """Total time spent in syncs."""


class FileWriter(Protocol):
    """Puts bytes of a transient pool's buffer into a commit log file. Flush thread."""

    def __call__(self, path: Path, buffer: memoryview, begin: int, end: int) -> None:
        """Make ``buffer[begin:end]`` the bytes ``begin`` to ``end`` of the file, and durable, before it returns.

        What lies around them in the buffer may be written too: before ``begin`` it is what the file holds, behind ``end``
        it is zeros or records that will be handed over next. The file's size must not change. Raises OSError.
        """
        ...


class FlushableLog(Protocol):
    """The commit log, as flush services see it. Thread-safe: positions only grow, one flusher and one committer at a time."""

    @property
    def wrote_offset_bytes(self) -> int:
        """End of what was appended (in memory, or in the transient pool)."""
        ...

    @property
    def committed_offset_bytes(self) -> int:
        """End of what reached the files' pages; equals wrote without a transient pool."""
        ...

    @property
    def flushed_offset_bytes(self) -> int:
        """End of what was synced."""
        ...

    def commit(self, least_pages: int, write: FileWriter | None = None) -> int:
        """Copy from the transient pool into the files when at least so many 4 KiB pages wait (0: any).

        Handles one file a call (docs/internals/algorithms.md, Flush strategies). Return the committed position.

        Args:
            least_pages: how much must wait.
            write: puts the bytes into the file, durably, where otherwise they are copied into its mapped pages.

        Raises:
            StoreFencedError: ``write`` raised OSError. The store is fenced; every later call raises too.
            StoreExhaustedError: the process has no descriptor for it now. Nothing was tried; call again later.
        """
        ...

    def flush(self, least_pages: int, *, written_through: bool = False) -> int:
        """Sync when at least so many 4 KiB pages are dirty (0: any); one file a call. Return the flushed position.

        Args:
            least_pages: how much must be dirty.
            written_through: every commit was given a ``write``, so that files with a buffer of the pool need no sync but
                their first one, which makes their names durable.

        Raises:
            StoreFencedError: the sync failed. The store is fenced; every later call raises too.
            StoreExhaustedError: the process has no descriptor for it now. Nothing was tried; call again later.
        """
        ...


@attrs.frozen
class FlushContext(Generic[S_co]):
    """What a flush service is made of; ``FlushContext[MySection]`` names the type of its settings."""

    log: FlushableLog
    clock: Clock
    settings: S_co
    """The strategy's section of the configuration: an attrs instance for the built-ins, the plugin's own model otherwise."""
    pool: TransientStorePool | None
    """The transient store pool when the strategy asked for one."""


class FlushCommitLogService(Protocol):
    """When and how appended bytes become durable. ``submit`` is called on the loop thread, once per append batch."""

    def start(self) -> None:
        """Start the service's own threads."""
        ...

    def stop(self) -> None:
        """Make everything durable that can be, complete every waiter, end the threads. Idempotent."""
        ...

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        """Ask for durability up to a position.

        A synchronous strategy returns a pending waiter and wakes its thread; an asynchronous one a waiter that is done.
        """
        ...

    def statistics(self) -> FlushStatistics:
        """Return a snapshot; may be called from any thread."""
        ...


@runtime_checkable
class SupportsFlushSoon(Protocol):
    """A flush service that syncs sooner than its strategy would, when somebody waits for what is not synced yet."""

    def flush_soon(self) -> None:
        """Sync what was appended until now, soon, however little it is. Thread-safe; does not wait."""
        ...


FlushServiceFactory = Callable[[FlushContext[S]], FlushCommitLogService]


@attrs.frozen
class FlushStrategy(Generic[S]):
    """A flush service under a name, with what it needs from the store."""

    name: str
    factory: FlushServiceFactory[S]
    settings_model: type[S] | None = None
    """attrs class that validates ``flush.<name>`` of the configuration."""
    synchronous: bool = False
    """True when ``submit`` stands for a sync: then reads and dispatch stop at the flushed position."""
    uses_pool: bool = False
    """True when appends go through the transient store pool first."""


class TransientStorePool(Protocol):
    """Buffers of one commit log file each, off the page cache (docs/internals/algorithms.md, Mapped files). Thread-safe."""

    def borrow(self) -> memoryview | None:
        """Return a writable buffer of one file's size, or None when all are taken (flow control, not loss)."""
        ...

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer once all of it is committed."""
        ...

    @property
    def available_buffers(self) -> int: ...

    def close(self) -> None: ...

"""The ports: what the kernel wires and plugins implement.

Every port on the hot path takes a batch; one message is a batch of one. A port says which thread calls it: *the loop
thread* is the one event loop that owns the log's tail, *the flush thread* is the flush service's own.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import attrs
import msgspec

from flintmq.core.io.clock import Clock
from flintmq.core.message.properties import stored_properties

if TYPE_CHECKING:
    from flintmq.core.store.bulk_columns import RecordColumns


class DispatchRequest(msgspec.Struct, gc=False):
    """One stored record, as dispatchers see it. Read-only by convention; made per message.

    See docs/internals/algorithms.md, Dispatch.
    """

    topic: str
    queue_id: int
    commit_log_offset_bytes: int
    """Physical offset of the record."""
    message_size_bytes: int
    tags_code: int
    """Signed 64-bit: Java hash of TAGS, 0 without; in the schedule topic the delivery time in ms."""
    store_timestamp_ms: int
    queue_offset: int
    """Logical offset within topic and queue, in messages."""
    keys: str
    """KEYS as stored, separated by blanks; empty without."""
    uniq_key: str
    """UNIQ_KEY, empty without."""
    sys_flag: int
    prepared_transaction_offset_bytes: int
    properties: Mapping[str, str]
    bit_map: bytes | None = None
    """Which groups' filters the record fits; set by the dispatcher that computes it, None without.

    See docs/internals/store-format.md, Bloom filter.
    """


class AppendedBatch(msgspec.Struct, gc=False):
    """The records of a batch send, which lie one behind the other: what as many requests say, in columns. Read-only.

    Its first fields are named as those of a request, and mean the batch as a whole.
    """

    topic: str
    queue_id: int
    commit_log_offset_bytes: int
    """Physical offset of the first record."""
    message_size_bytes: int
    """Of all records."""
    store_timestamp_ms: int
    queue_offset: int
    """Of the first message; those of the others follow."""
    sys_flag: int
    positions: Sequence[int]
    """Physical offsets of the records. Here and below: at least one, and all columns of one length."""
    sizes: Sequence[int]
    """Of the records."""
    tags_codes: Sequence[int]
    all_keys: Sequence[str]
    """KEYS of each message, separated by blanks; empty without."""
    uniq_keys: Sequence[bytes]
    """UNIQ_KEY of each message in UTF-8, empty without."""
    all_stored_properties: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def keys(self) -> str:
        """KEYS of all messages, joined: as long as they are together."""
        return "".join(self.all_keys)

    def part(self, begin: int, end: int) -> AppendedBatch:
        """Some of its messages, one behind the other; at least one."""
        sizes = self.sizes[begin:end]
        return AppendedBatch(
            self.topic,
            self.queue_id,
            self.positions[begin],
            sum(sizes),
            self.store_timestamp_ms,
            self.queue_offset + begin,
            self.sys_flag,
            self.positions[begin:end],
            sizes,
            self.tags_codes[begin:end],
            self.all_keys[begin:end],
            self.uniq_keys[begin:end],
            self.all_stored_properties[begin:end],
        )

    def requests(self) -> list[DispatchRequest]:
        """A request for each message, for those who need them."""
        return [
            *map(
                DispatchRequest,
                repeat(self.topic),
                repeat(self.queue_id),
                self.positions,
                self.sizes,
                self.tags_codes,
                repeat(self.store_timestamp_ms),
                count(self.queue_offset),
                self.all_keys,
                [key.decode() for key in self.uniq_keys],
                repeat(self.sys_flag),
                repeat(0),
                map(stored_properties, self.all_stored_properties),
            )
        ]


Run = DispatchRequest | AppendedBatch
"""What was appended in one piece: a record, or those of a batch."""


def count_messages(runs: Sequence[Run]) -> int:
    """How many messages they are together."""
    return sum([len(run) if isinstance(run, AppendedBatch) else 1 for run in runs])


def requests_of(runs: Sequence[Run]) -> list[DispatchRequest]:
    """A request for each message of all of them, in order."""
    if AppendedBatch not in map(type, runs):
        return cast("list[DispatchRequest]", [*runs])
    requests: list[DispatchRequest] = []
    for run in runs:
        if isinstance(run, AppendedBatch):
            requests += run.requests()
        else:
            requests.append(run)
    return requests


class CommitLogDispatcher(Protocol):
    """Makes something of each stored record: a consume queue unit, index entries, rows for Spark.

    Called on the loop thread, in log order, only with records below the readable ceiling. After a crash records may come
    again: ``dispatch`` must ignore what it has already taken (idempotent by physical offset).
    """

    def dispatch(self, batch: Sequence[DispatchRequest]) -> None:
        """Takes records in ascending physical order. Raising isolates an optional dispatcher and fences an essential one."""
        ...


@runtime_checkable
class SupportsCommitted(Protocol):
    """A dispatcher that makes what it takes durable later than the store does.

    Dispatch goes on after a restart where the consume queues end. A dispatcher that had more in memory than on disk, or was
    switched off meanwhile, says here what it has; the store's start hands it the rest once more before anything new, so that
    dispatch as a whole restarts from the lowest position of all dispatchers. Asked on the loop thread.
    """

    def committed(self) -> int | None:
        """The physical offset below which it needs nothing again; None when nothing is ever to be handed over again."""
        ...


@runtime_checkable
class SupportsCatchUp(Protocol):
    """A :class:`SupportsCommitted` that reads what it has missed from the log by itself: a start does not wait for it."""

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> bool:
        """Told at the start, on the loop thread, what it has missed. Records from the second position on are dispatched.

        The first one may lie below the log's beginning: then retention has deleted what the dispatcher still needed.
        False asks the store to hand the records over after all.
        """
        ...


@runtime_checkable
class SupportsTruncate(Protocol):
    """A dispatcher, or an index builder, that forgets what the log has lost.

    A power cut may take the end of a log with it, and a slave's log is cut where its master's differs: other records follow
    there, at positions that were taken already. Whoever ignores what it has by position must know.
    """

    def truncate(self, end_offset_bytes: int) -> None:
        """Drops everything of records at or behind a physical offset, and nothing of those before it. Loop thread.

        Called at each start and with each such cut, before ``committed`` is asked; usually there is nothing to drop.
        """
        ...


@runtime_checkable
class ColumnDispatcher(CommitLogDispatcher, Protocol):
    """A dispatcher that also takes many records at a time, as numpy columns: a start that must catch up asks for that.

    It makes the same of them as of requests, and never of the same records twice either. When all dispatchers are of this
    kind, and numpy is installed, a store of a gigabyte is dispatched in seconds.
    """

    def dispatch_columns(self, columns: RecordColumns) -> None:
        """As ``dispatch``; ``columns.requests()`` gives the same records as requests."""
        ...


@runtime_checkable
class RunDispatcher(ColumnDispatcher, Protocol):
    """A dispatcher that also takes the messages of a batch send as they were appended, with no object for each.

    It makes the same of them as of requests. The built-in ones are of this kind; where one of several is not, it is handed
    requests, and so are those behind it.
    """

    def dispatch_runs(self, runs: Sequence[Run]) -> None:
        """As ``dispatch``; :func:`requests_of` gives the same records as requests."""
        ...


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

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        """A promise for a position; it ends with FLUSHED, SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE."""
        ...


class FlushWaiter(Protocol):
    """A promise of durability for a position. Thread-safe."""

    @property
    def status(self) -> FlushStatus | None:
        """None while pending; then final."""
        ...

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        """Calls back once with the final status: at once when done, else later on the flush thread."""
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
        """Makes ``buffer[begin:end]`` the bytes ``begin`` to ``end`` of the file, and durable, before it returns.

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
        """Copies from the transient pool into the files when at least so many 4 KiB pages wait (0: any).

        Handles one file a call (docs/internals/algorithms.md, Flush strategies). Returns the committed position.

        Args:
            least_pages: how much must wait.
            write: puts the bytes into the file, durably, where otherwise they are copied into its mapped pages.

        Raises:
            StoreFencedError: ``write`` raised OSError. The store is fenced; every later call raises too.
            StoreExhaustedError: the process has no descriptor for it now. Nothing was tried; call again later.
        """
        ...

    def flush(self, least_pages: int, *, written_through: bool = False) -> int:
        """Syncs when at least so many 4 KiB pages are dirty (0: any); one file a call. Returns the flushed position.

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
class FlushContext:
    """What a flush service is made of."""

    log: FlushableLog
    clock: Clock
    settings: Any
    """The strategy's section of the configuration: an attrs instance for the built-ins, the plugin's own model otherwise."""
    pool: TransientStorePool | None
    """The transient store pool when the strategy asked for one."""


class FlushCommitLogService(Protocol):
    """When and how appended bytes become durable. ``submit`` is called on the loop thread, once per append batch."""

    def start(self) -> None:
        """Starts the service's own threads."""
        ...

    def stop(self) -> None:
        """Makes everything durable that can be, completes every waiter, ends the threads. Idempotent."""
        ...

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        """Asks for durability up to a position.

        A synchronous strategy returns a pending waiter and wakes its thread; an asynchronous one a waiter that is done.
        """
        ...

    def statistics(self) -> FlushStatistics:
        """A snapshot; may be called from any thread."""
        ...


FlushServiceFactory = Callable[[FlushContext], FlushCommitLogService]


@attrs.frozen
class FlushStrategy:
    """A flush service under a name, with what it needs from the store."""

    name: str
    factory: FlushServiceFactory
    settings_model: type[Any] | None = None
    """attrs class that validates ``flush.<name>`` of the configuration."""
    synchronous: bool = False
    """True when ``submit`` stands for a sync: then reads and dispatch stop at the flushed position."""
    uses_pool: bool = False
    """True when appends go through the transient store pool first."""


class TransientStorePool(Protocol):
    """Buffers of one commit log file each, off the page cache (docs/internals/algorithms.md, Mapped files). Thread-safe."""

    def borrow(self) -> memoryview | None:
        """A writable buffer of one file's size, or None when all are taken (flow control, not loss)."""
        ...

    def give_back(self, buffer: memoryview) -> None:
        """Returns a buffer once all of it is committed."""
        ...

    @property
    def available_buffers(self) -> int: ...

    def close(self) -> None: ...


class IndexBuilder(Protocol):
    """Finds messages by key and time. Loop thread.

    It is fed by the dispatcher ``index``, so what holds for a :class:`CommitLogDispatcher` holds for it: after a crash, and at
    any start, records come again that it has. One that is durable later than ``put`` returns is a :class:`SupportsCommitted`,
    too, and one that ignores records by their position a :class:`SupportsTruncate`. A builder that wraps the built-in one
    (``context.store.index``) answers ``committed`` with what that one answers.
    """

    def put(self, batch: Sequence[DispatchRequest]) -> None:
        """Takes records in ascending physical order, without rolled back ones; ignores those that it has."""
        ...

    def query(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> tuple[list[int], int, int]:
        """Physical offsets of candidates, newest first (hash collisions possible), with the index's last update time in ms
        and last physical offset."""
        ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class ColumnIndexBuilder(IndexBuilder, Protocol):
    """An index builder that also takes many records at a time, see :class:`ColumnDispatcher`."""

    def put_columns(self, columns: RecordColumns) -> None:
        """As ``put``; leaves out what is rolled back."""
        ...


@runtime_checkable
class RunIndexBuilder(ColumnIndexBuilder, Protocol):
    """An index builder that also takes batches as they were appended, see :class:`RunDispatcher`."""

    def put_runs(self, runs: Sequence[Run]) -> None:
        """As ``put``."""
        ...


class MessageFilter(Protocol):
    """Decides per queue entry and per record what a subscription sees (docs/internals/algorithms.md, Filters). Loop thread."""

    def matches_tags_code(self, tags_code: int) -> bool:
        """By consume queue entry alone; may say yes too often, never no wrongly."""
        ...

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """By the record's properties; asked only when ``needs_properties``."""
        ...

    @property
    def needs_properties(self) -> bool: ...


@runtime_checkable
class BitMapFilter(MessageFilter, Protocol):
    """A filter that can tell from a bit map, computed when the message was stored, that it does not match."""

    def matches_bit_map(self, bit_map: bytes, store_timestamp_ms: int) -> bool:
        """May say yes too often, never no wrongly; asked instead of ``matches_tags_code``."""
        ...


MessageFilterFactory = Callable[[str, frozenset[int]], MessageFilter]
"""Makes a filter of an expression and its set of tag codes; raises ``RefusedError`` when the expression does not parse."""


@attrs.frozen
class Caller:
    """Who sends a request, as an authenticator sees it."""

    remote_host: str
    code: int
    ext_fields: Mapping[str, str]
    body: bytes


class Authenticator(Protocol):
    """Lets a request pass or refuses it. Loop thread, before the processor."""

    def authenticate(self, caller: Caller) -> None:
        """Raises ``RefusedError`` to refuse."""
        ...


@runtime_checkable
class SupportsClose(Protocol):
    """What is released when the broker stops.

    The store closes its dispatchers, last one first, after everything was dispatched and synced and before its files are
    closed; on the thread that closes the store, which need not be the loop's.
    """

    def close(self) -> None: ...

"""The ports of what is derived from the log: dispatchers, and how they recover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from flintmq.core.record.dispatch_request import DispatchRequest, Run

if TYPE_CHECKING:
    from flintmq.core.record.bulk_columns import RecordColumns


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


@runtime_checkable
class SupportsClose(Protocol):
    """What is released when the broker stops.

    The store closes its dispatchers, last one first, after everything was dispatched and synced and before its files are
    closed; on the thread that closes the store, which need not be the loop's.
    """

    def close(self) -> None: ...

"""The ports of what is derived from the log: dispatchers, and how they recover."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from flintmq.core.record.record_batch import RecordBatch


class CommitLogDispatcher(Protocol):
    """Makes something of each stored record: a consume queue unit, index entries, rows for Spark.

    Called on the loop thread, in log order, only with records below the readable ceiling. After a crash records may come
    again: ``dispatch`` must ignore what it has already taken (idempotent by physical offset).
    """

    def dispatch(self, batch: RecordBatch) -> None:
        """Take the next records of the log; ``batch.requests()`` gives one request a record, and ``context.bodies(batch)``,
        of the context that the factory was given, each with its body.

        Raising isolates an optional dispatcher; with an essential one, nothing more is acknowledged until it works again.
        """
        ...


@runtime_checkable
class SupportsCommitted(Protocol):
    """A dispatcher that makes what it takes durable later than the store does.

    Dispatch continues after a restart where the consume queues end. A dispatcher that had more in memory than on disk, or was
    switched off meanwhile, returns here what it has; the store's start hands it the rest once more before anything new, so that
    dispatch as a whole restarts from the lowest position of all dispatchers. Asked on the loop thread.
    """

    def committed(self) -> int | None:
        """Return the physical offset below which it needs nothing again; None when nothing is ever to be handed over
        again."""
        ...


@runtime_checkable
class SupportsCatchUp(Protocol):
    """A :class:`SupportsCommitted` that reads what it has missed from the log by itself: a start does not wait for it."""

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> bool:
        """Read the part of the log that the dispatcher has missed; called at the start, on the loop thread.

        Records from ``end_offset_bytes`` on are dispatched. ``start_offset_bytes`` may lie below the log's beginning:
        then retention has deleted what the dispatcher still needed.
        False asks the store to hand the records over after all.
        """
        ...


@runtime_checkable
class SupportsTruncate(Protocol):
    """A dispatcher, or an index builder, that forgets what the log has lost.

    A power cut may take the end of a log with it, and a slave's log is cut where its master's differs: other records follow
    there, at positions that were taken already. A dispatcher that ignores what it has by position must know.
    """

    def truncate(self, end_offset_bytes: int) -> None:
        """Drop everything of records at or behind a physical offset, and nothing of those before it. Loop thread.

        Called at each start and with each such cut, before ``committed`` is asked; usually there is nothing to drop. Where a
        start takes damage out of the middle of the log, an index builder is given its position; what follows comes again.
        """
        ...


@runtime_checkable
class SupportsClose(Protocol):
    """What is released when the broker stops.

    The store closes its dispatchers, last one first, after everything was dispatched and synced and before its files are
    closed; on the thread that closes the store, which need not be the loop's.
    """

    def close(self) -> None: ...

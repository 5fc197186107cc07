"""The interfaces that dispatchers implement. A dispatcher derives data, such as consume queues, from the log."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from flintmq.core.record.record_batch import RecordBatch


class CommitLogDispatcher(Protocol):
    """A dispatcher, which derives data from each stored record: a consume queue unit, index entries, rows for Spark.

    Called on the loop thread, in log order, only with records that consumers may already read. After a crash, records may be
    dispatched again: ``dispatch`` must ignore a record whose physical offset it has already processed.
    """

    def dispatch(self, batch: RecordBatch) -> None:
        """Process the next records of the log.

        ``batch.requests()`` yields one request for each record. ``context.bodies(batch)`` yields each request with its body;
        ``context`` is the argument of the dispatcher's factory.

        If an optional dispatcher raises, the failure is counted and logged, and the dispatcher loses the batch. If an essential
        dispatcher raises, the broker acknowledges nothing until the dispatcher works again.
        """
        ...


@runtime_checkable
class SupportsCommitted(Protocol):
    """A dispatcher whose data becomes durable later than the consume queues.

    After a restart, the broker dispatches the records that the consume queues do not contain. A dispatcher may have fewer
    records on disk than the consume queues, because it lost data in memory or was switched off. It then returns its own
    position from ``committed``. The start of the store dispatches from the lowest position of all dispatchers before it
    dispatches new records. Called on the loop thread.
    """

    def committed(self) -> int | None:
        """Return the physical offset up to which the dispatcher has all records; None if it needs no record again."""
        ...


@runtime_checkable
class SupportsCatchUp(Protocol):
    """A dispatcher that reads the records that it has missed from the log itself. The broker's start then does not wait for the
    dispatcher, which reads the records while the broker already works. The dispatcher also implements
    :class:`SupportsCommitted`, so that the store knows up to which physical offset the dispatcher has all records."""

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> bool:
        """Read the part of the log that the dispatcher has missed. Called at the start of the broker, on the loop thread.

        Args:
            start_offset_bytes: the physical offset of the first missed record. It lies below the log's beginning if retention
                has deleted records that the dispatcher still needed.
            end_offset_bytes: the physical offset of the first record that is dispatched as usual.

        Returns:
            True if the dispatcher reads the records itself; False if the store is to dispatch them.
        """
        ...


@runtime_checkable
class SupportsTruncate(Protocol):
    """A dispatcher, or an index builder, that forgets records that the log has lost.

    A power cut may destroy the end of a log, and a slave's log is truncated at the position from which its master's log
    differs. Other records are then stored at the same positions. A dispatcher that ignores records by their position must
    forget the lost records.
    """

    def truncate(self, end_offset_bytes: int) -> None:
        """Drop the data of all records at or after a physical offset, and keep the data of earlier records. Called only on the
        event loop's thread.

        Called each time the log is truncated, and at each start. At a start, this method is called before
        :meth:`SupportsCommitted.committed`, which returns the physical offset up to which the dispatcher has all records.
        Usually, the physical offset is the end of the log, and no record lies after it. If a start removes damage from the
        middle of the log, an index builder gets the position of the damage, and the records after it are dispatched again.
        """
        ...


@runtime_checkable
class SupportsClose(Protocol):
    """A dispatcher that releases resources when the broker stops.

    The store closes its dispatchers in the reverse order of their calls, after all records were dispatched and synced, and
    before it closes its own files. ``close`` is called on the thread that closes the store, which need not be the loop's
    thread.
    """

    def close(self) -> None: ...

"""SparkFeed: a dispatcher that lets Spark read the log while it grows (docs/spark-feed.md).

It serves two readers, and delays no acknowledgment for either:

* The **feed**, ``flint/feed`` in the store, states the positions up to which other processes may read the log's files. Nothing
  is copied, and a reader that was away continues at its last position.
* The **landing zone**, if one is configured, copies messages to files that can be read without FlintMQ. It runs in a separate
  process or thread and reads the log itself; this dispatcher passes it positions.

The plugin that creates the dispatcher passes the feed and the landing zone to it. A change is written to the feed a millisecond
later, so that a thousand batches in that time cost one write. After a flush, the flush thread writes the feed. In addition it
is written once a second, so that readers can detect a dead broker by the file's age.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.core.io.clock import Clock
from flintmq.core.io.disk import Disk
from flintmq.core.kernel.ports import RecordBatch
from flintmq.dispatchers.spark_feed.feed_file import FeedMarks, FeedState, FeedWriter, feed_path

if TYPE_CHECKING:
    from flintmq.core.store.opened_store import OpenedStore


PUBLISH_DELAY_S: Final = 0.001
"""Delay in seconds from a change of the log's positions to the write of the feed file."""
HEARTBEAT_S: Final = 1.0
"""Interval in seconds at which the feed file is written even if the log's positions do not change."""
FLUSH_WANTED_S: Final = 0.2
"""Time in seconds after which the feed requests a flush for dispatched records that are not flushed yet. Without the request,
the flush strategy may flush only after ten seconds."""

CallLater = Callable[[float, Callable[[], None]], object]
"""Type of a function that calls another function after a delay in seconds, such as ``loop.call_later``."""


class Landing(Protocol):
    """A landing zone with the process or thread that fills it. Only :meth:`close` blocks."""

    def start(self) -> None:
        """Start to copy messages to the landing zone; called before the broker listens."""
        ...

    def runtime_info(self) -> Mapping[str, str]:
        """Return figures about the landing zone for operators, keyed by name."""
        ...

    def offer(self, end_offset_bytes: int) -> None:
        """Report to the landing zone that all records below a physical offset are dispatched. For the loop thread only. The
        report is ignored if too many reports wait."""
        ...

    def committed(self) -> int | None:
        """Return the physical offset below which all records are durably copied to the landing zone; None if no records are
        copied."""
        ...

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> None:
        """Copy the part of the log that the landing zone lacks; called at the broker's start."""
        ...

    def close(self) -> None:
        """Copy the remaining records to the landing zone, and then stop the copying until the broker's next start. After a time
        limit, the copying stops even if records remain; these records are copied after the next start."""
        ...


class SparkFeed:
    """A dispatcher that reports the end of each batch to the feed and the landing zone. It is optional. For the loop thread
    only.

    It runs after the consume queues. It publishes the store's position, which moves when all dispatchers have processed a
    batch, so that a reader finds a queue unit for each record.
    """

    def __init__(self, publisher: FeedPublisher, landing: Landing | None = None) -> None:
        self.publisher = publisher
        self.landing = landing
        self.end_offset_bytes = 0
        """Physical end of the last dispatched batch."""
        self.messages = 0
        """Number of records dispatched since the start."""

    def dispatch(self, batch: RecordBatch) -> None:
        known = self.end_offset_bytes
        if batch.end_offset_bytes <= known:
            return
        if batch.begin_offset_bytes >= known:
            self.messages += len(batch)
        elif batch.has_columns:
            self.messages += int((batch.columns().physical >= known).sum())
        else:
            self.messages += sum(request.commit_log_offset_bytes >= known for request in batch.requests())
        self.end_offset_bytes = batch.end_offset_bytes
        self.publisher.touch()
        if self.landing is not None:
            self.landing.offer(batch.end_offset_bytes)

    def truncate(self, end_offset_bytes: int) -> None:
        """Treat later records at or after a physical offset as new, because the log was cut there."""
        self.end_offset_bytes = min(self.end_offset_bytes, end_offset_bytes)

    def committed(self) -> int | None:
        """Return the physical offset up to which the landing zone has copied the log; None without a landing zone, because
        readers of the feed keep their own positions."""
        if self.landing is None:
            return None
        committed = self.landing.committed()
        return 0 if committed is None else committed

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> bool:
        """Let the landing zone copy the records that it lacks from the log. The broker's start does not wait for these
        copies."""
        if self.landing is not None:
            self.landing.catch_up(start_offset_bytes, end_offset_bytes)
        return True

    def close(self) -> None:
        if self.landing is not None:
            self.landing.close()
        self.publisher.close()


class FeedPublisher:
    """Keeps the feed file of a store up to date. :meth:`touch` is called on the loop thread, :meth:`publish` on any thread.

    Args:
        store: the recovered store.
        clock: the source of time.
        epoch: returns the number of the log's current epoch.
    """

    def __init__(self, store: OpenedStore, clock: Clock, epoch: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self._epoch = epoch
        self._writer: FeedWriter | None = None
        self._call_later: CallLater | None = None
        self._due = False
        self._flush_soon: Callable[[], None] | None = None
        self._awaited_bytes: int | None = None
        """Physical offset up to which the log must be flushed at the next check; if it is not, the feed requests a flush. None
        if no check is scheduled."""

    @property
    def writes(self) -> int:
        """The number of writes of the feed file since the broker's start."""
        return self._writer.writes if self._writer is not None else 0

    def open(self, call_later: CallLater, flush_soon: Callable[[], None] | None = None) -> None:
        """Create the feed file and write it for the first time. Other processes can then read the log while it grows.

        Args:
            call_later: the event loop's ``call_later``.
            flush_soon: requests a flush; None if each acknowledgment waits for a flush anyway.

        Raises:
            StoreError: the file cannot be created.
        """
        self._writer = FeedWriter(self._store.disk, feed_path(self._store.root))
        self._call_later = call_later
        self._flush_soon = flush_soon
        self.publish()

    def touch(self) -> None:
        """Schedule a write of the feed file after a dispatch. All dispatches before the write share it."""
        if not self._due and self._call_later is not None:
            self._due = True
            self._call_later(PUBLISH_DELAY_S, self._publish_due)
            if self._flush_soon is not None and self._awaited_bytes is None:
                self._awaited_bytes = self._store.watermarks.wrote
                self._call_later(FLUSH_WANTED_S, self._want_flush)

    def publish(self) -> None:
        """Write the store's current positions to the feed file."""
        if self._writer is not None:
            self._writer.write(self._marks(FeedState.RUNNING))

    def close(self) -> None:
        """Write the log's end and the state CLOSED to the feed file. Idempotent."""
        if self._writer is not None:
            self._call_later = None
            self._writer.close(self._marks(FeedState.CLOSED))

    def _want_flush(self) -> None:
        """Request a flush of the log if the position of the previous call is not flushed yet; then remember the current
        position for the next call."""
        awaited_bytes, self._awaited_bytes = self._awaited_bytes, None
        marks = self._store.watermarks
        if self._flush_soon is None or self._call_later is None or awaited_bytes is None:
            return
        if marks.flushed < awaited_bytes:
            self._flush_soon()
        elif marks.flushed < marks.dispatched:
            self._awaited_bytes = marks.dispatched
            self._call_later(FLUSH_WANTED_S, self._want_flush)

    def _publish_due(self) -> None:
        self._due = False
        self.publish()

    def _marks(self, state: FeedState) -> FeedMarks:
        marks = self._store.watermarks
        # With synchronous flush, the dispatched position of the log is never behind the flushed position.
        # The dispatched position is read before the flushed position, because both may grow between the two reads.
        dispatched = marks.dispatched
        flushed, replicated = marks.flushed, marks.replicated
        return FeedMarks(
            state=state,
            epoch=self._epoch(),
            min_offset_bytes=self._store.commit_log.min_offset_bytes,
            dispatched_offset_bytes=dispatched,
            flushed_offset_bytes=flushed,
            confirmed_offset_bytes=flushed if replicated is None else min(flushed, replicated),
            written_at_ms=self._clock.now_ms(),
        )


def remove_feed(disk: Disk, root: Path) -> bool:
    """Remove a feed file that no broker updates any more, so that no reader trusts it; return whether it existed.

    Raises OSError.
    """
    path = feed_path(root)
    found = disk.exists(path)
    if found:
        disk.remove(path)
    return found

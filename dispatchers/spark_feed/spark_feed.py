"""SparkFeed: lets Spark follow the log (docs/spark-feed.md).

Two things, and neither makes an acknowledgement wait:

* the **feed**, ``flint/feed`` in the store, says how far other processes may read the log's own files. The log is the queue:
  nothing is copied, nothing can be full, a reader that was away goes on where it was;
* the **landing zone**, where one is configured, copies messages into files that need no FlintMQ to be read. It works in a
  process or thread of its own and reads the log itself; this dispatcher hands it positions.

Both are handed to the dispatcher by the plugin that makes it. A change of the feed is written a millisecond later, so that a
thousand batches in that millisecond cost one write; a flush is written by the thread that flushed, and once a second the file
is written whatever happens, so that its age tells a broker that died.
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
"""How long after a change the file is written."""
HEARTBEAT_S: Final = 1.0
"""How often it is written when nothing changes."""
FLUSH_WANTED_S: Final = 0.2
"""How long something may wait to be flushed before a flush is asked for: the strategy alone might take ten seconds."""

CallLater = Callable[[float, Callable[[], None]], object]
"""``loop.call_later``, as far as it is used here."""


class Landing(Protocol):
    """A landing zone and what fills it. Nothing here blocks but :meth:`close`."""

    def start(self) -> None:
        """Let messages land from now on: the broker is about to listen."""
        ...

    def runtime_info(self) -> Mapping[str, str]:
        """Figures by name, for operators."""
        ...

    def offer(self, end_offset_bytes: int) -> None:
        """Note that everything below a position is dispatched. Loop thread; with more waiting than may, this does nothing."""
        ...

    def committed(self) -> int | None:
        """Return the physical offset below which everything has landed for good; None when nothing has."""
        ...

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> None:
        """Land the part of the log that is missing in the zone; called at the start."""
        ...

    def close(self) -> None:
        """Land what can be landed in time, and stop."""
        ...


class SparkFeed:
    """Passes the end of each batch to the feed and the landing zone. Optional: the broker works without it. Loop thread.

    It stands behind the consume queues; what it publishes is the store's own position, which moves when all dispatchers have
    the batch, so that a reader that trusts it finds a queue unit for each record.
    """

    def __init__(self, publisher: FeedPublisher, landing: Landing | None = None) -> None:
        self.publisher = publisher
        self.landing = landing
        self.end_offset_bytes = 0
        """Everything below was handed to it."""
        self.messages = 0
        """Records handed to it since the start."""

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
        """Take what comes behind the log's end as new, although something lay there before."""
        self.end_offset_bytes = min(self.end_offset_bytes, end_offset_bytes)

    def committed(self) -> int | None:
        """Return what has landed; None without a landing zone: readers of the log keep their own positions."""
        if self.landing is None:
            return None
        committed = self.landing.committed()
        return 0 if committed is None else committed

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> bool:
        """Let the landing zone read what it missed from the log, however much that is; the broker's start does not wait."""
        if self.landing is not None:
            self.landing.catch_up(start_offset_bytes, end_offset_bytes)
        return True

    def close(self) -> None:
        if self.landing is not None:
            self.landing.close()
        self.publisher.close()


class FeedPublisher:
    """Keeps one store's feed file true. :meth:`touch` on the loop thread, :meth:`publish` on any.

    Args:
        store: opened and recovered.
        clock: time.
        epoch: the number of the log's current epoch.
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
        """What should be flushed when the time is over; None while nothing waits."""

    @property
    def writes(self) -> int:
        """How often the file was written since the start."""
        return self._writer.writes if self._writer is not None else 0

    def open(self, call_later: CallLater, flush_soon: Callable[[], None] | None = None) -> None:
        """Make the file and write it for the first time: from now on others may read the log while it grows.

        Args:
            call_later: the loop's.
            flush_soon: asks for a flush; None where each acknowledgement waits for one.

        Raises:
            StoreError: it cannot be made.
        """
        self._writer = FeedWriter(self._store.disk, feed_path(self._store.root))
        self._call_later = call_later
        self._flush_soon = flush_soon
        self.publish()

    def touch(self) -> None:
        """Note that something was dispatched, and have it written soon, once for all that comes until then."""
        if not self._due and self._call_later is not None:
            self._due = True
            self._call_later(PUBLISH_DELAY_S, self._publish_due)
            if self._flush_soon is not None and self._awaited_bytes is None:
                self._awaited_bytes = self._store.watermarks.wrote
                self._call_later(FLUSH_WANTED_S, self._want_flush)

    def publish(self) -> None:
        """Write what is true now."""
        if self._writer is not None:
            self._writer.write(self._marks(FeedState.RUNNING))

    def close(self) -> None:
        """Write where the log ends, and that no broker adds to it any more. Idempotent."""
        if self._writer is not None:
            self._call_later = None
            self._writer.close(self._marks(FeedState.CLOSED))

    def _want_flush(self) -> None:
        """Ask for a flush unless what has waited so long is flushed; what came since then waits for its own time."""
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
        # Dispatched first: the others only grow, so that what is read after it is never behind it by more than is true.
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
    """Remove a feed that no broker updates any more, so that no reader trusts it. Return whether one existed. Raises
    OSError."""
    path = feed_path(root)
    found = disk.exists(path)
    if found:
        disk.remove(path)
    return found

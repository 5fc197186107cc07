"""Publishes the feed of a running broker (see :mod:`flintmq.dispatchers.spark_feed.feed_file`).

A change is written a millisecond later, so that a thousand batches in that millisecond cost one write; a flush is written by
the thread that flushed, and once a second the file is written whatever happens, so that its age tells a broker that died.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from flintmq.core.io.clock import Clock
from flintmq.core.io.disk import Disk
from flintmq.core.log.watermarks import Watermarks
from flintmq.dispatchers.spark_feed.feed_file import FeedMarks, FeedState, FeedWriter, feed_path

PUBLISH_DELAY_S: Final = 0.001
"""How long after a change the file is written."""
HEARTBEAT_S: Final = 1.0
"""How often it is written when nothing changes."""

CallLater = Callable[[float, Callable[[], None]], object]
"""``loop.call_later``, as far as it is used here."""


class FedLog(Protocol):
    """The commit log, as far as the feed tells of it."""

    @property
    def min_offset_bytes(self) -> int: ...


class FedStore(Protocol):
    """The store, as far as the feed describes it."""

    @property
    def root(self) -> Path: ...

    @property
    def disk(self) -> Disk: ...

    @property
    def watermarks(self) -> Watermarks: ...

    @property
    def commit_log(self) -> FedLog: ...


class FeedPublisher:
    """Keeps one store's feed file true. :meth:`touch` on the loop thread, :meth:`publish` on any.

    Args:
        store: opened and recovered.
        clock: time.
        epoch: the number of the log's current epoch.
    """

    def __init__(self, store: FedStore, clock: Clock, epoch: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self._epoch = epoch
        self._writer: FeedWriter | None = None
        self._call_later: CallLater | None = None
        self._due = False

    @property
    def writes(self) -> int:
        """How often the file was written since the start."""
        return self._writer.writes if self._writer is not None else 0

    def open(self, call_later: CallLater) -> None:
        """Makes the file and writes it for the first time: from now on others may read the log while it grows.

        Raises:
            StoreError: it cannot be made.
        """
        self._writer = FeedWriter(self._store.disk, feed_path(self._store.root))
        self._call_later = call_later
        self.publish()

    def touch(self) -> None:
        """Something was dispatched: has it written soon, once for all that comes until then."""
        if not self._due and self._call_later is not None:
            self._due = True
            self._call_later(PUBLISH_DELAY_S, self._publish_due)

    def publish(self) -> None:
        """Writes what is true now."""
        if self._writer is not None:
            self._writer.write(self._marks(FeedState.RUNNING))

    def close(self) -> None:
        """Write where the log ends, and that no broker adds to it any more. Idempotent."""
        if self._writer is not None:
            self._call_later = None
            self._writer.close(self._marks(FeedState.CLOSED))

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

"""SparkFeed: lets Spark follow the log (docs/spark-feed.md).

Two things, and neither makes an acknowledgement wait:

* the **feed**, ``flint/feed`` in the store, says how far other processes may read the log's own files. The log is the queue:
  nothing is copied, nothing can be full, a reader that was away goes on where it was;
* the **landing zone**, where one is configured, copies messages into files that need no FlintMQ to be read. It works in a
  process or thread of its own and reads the log itself; this dispatcher hands it positions.

Both are handed to the dispatcher by the plugin that makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from flintmq.core.kernel.ports import RecordBatch


class Publisher(Protocol):
    """The feed: :class:`flintmq.dispatchers.spark_feed.feed_publisher.FeedPublisher`."""

    def touch(self) -> None:
        """Something was dispatched. Loop thread."""
        ...

    def close(self) -> None:
        """Nothing more is written to the log."""
        ...


class Landing(Protocol):
    """A landing zone and what fills it. Nothing here blocks but :meth:`close`."""

    def start(self) -> None:
        """The broker is about to listen: from now on messages may land."""
        ...

    def runtime_info(self) -> Mapping[str, str]:
        """Figures by name, for operators."""
        ...

    def offer(self, end_offset_bytes: int) -> None:
        """Everything below a position is dispatched. Loop thread; with more waiting than may, this does nothing."""
        ...

    def committed(self) -> int | None:
        """Everything below this physical offset has landed for good; None when nothing has."""
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

    def __init__(self, publisher: Publisher, landing: Landing | None = None) -> None:
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
        """What comes behind the log's end is new, although something lay there before."""
        self.end_offset_bytes = min(self.end_offset_bytes, end_offset_bytes)

    def committed(self) -> int | None:
        """What has landed; None without a landing zone: readers of the log keep their own positions."""
        if self.landing is None:
            return None
        committed = self.landing.committed()
        return 0 if committed is None else committed

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> bool:
        """The landing zone reads what it missed from the log, however much that is; the broker's start does not wait."""
        if self.landing is not None:
            self.landing.catch_up(start_offset_bytes, end_offset_bytes)
        return True

    def close(self) -> None:
        if self.landing is not None:
            self.landing.close()
        self.publisher.close()

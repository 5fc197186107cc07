"""The transport of the Spark source that pulls messages from brokers. It divides ranges of queues into tasks, and decodes
records to rows.

Queues are looked up when a batch is planned, so a new queue is read from its first message on. The transport does not
subscribe, lock or rebalance. Any task may pull from any queue, and only Spark's checkpoint holds the progress of a query.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import FlintError
from flintmq.core.log_events import event_log
from flintmq.plugins.spark.decoder import Decoder, RowFilter
from flintmq.plugins.spark.errors import SparkPluginError
from flintmq.plugins.spark.option_values import Place
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import Bounds, Limit, Offset
from flintmq.plugins.spark.wire import queue_edges
from flintmq.plugins.spark.wire.client import DEFAULT_GROUP, WireClient
from flintmq.plugins.spark.wire.lag import lag_of
from flintmq.plugins.spark.wire.offsets import Edges, WireOffset
from flintmq.plugins.spark.wire.pulling import Puller, batches
from flintmq.plugins.spark.wire.queue_edges import QueueEdges, placed, queue_name
from flintmq.plugins.spark.wire.queue_lives import QueueLives
from flintmq.plugins.spark.wire.ranges import (
    QueueRange,
    limited_rows,
    narrowed,
    packed,
    parts_wanted,
    ranges_between,
)

if TYPE_CHECKING:
    import pyarrow

log = event_log("flintmq.spark")

ASSUMED_BYTES: Final = 512
"""Size in bytes that a record is assumed to have if no record can be measured."""
SAMPLE_ROWS: Final = 32
SAMPLE_QUEUES: Final = 4


class WireTransport:
    """The transport that pulls messages from brokers; see :class:`~flintmq.plugins.spark.ports.MessageTransport`. Instances are
    pickled without their connections.

    Args:
        options: the options of the read, with ``nameServer`` or ``brokerAddr``.
        bounds: conditions of the query's filters.
    """

    def __init__(self, options: ReadOptions, bounds: Bounds | None = None) -> None:
        self.options = options
        self.bounds = bounds or Bounds()
        self._client: WireClient | None = None
        self._queues = QueueEdges(options, self._open)
        self._lives = QueueLives(options, self._open)
        self._fresh_edges: Edges | None = None
        """First and last queue offsets that :meth:`latest` found. The next call of :meth:`limited` uses these offsets."""
        self._planned: Offset | None = None
        """Offset at the end of the last batch that this transport has planned."""
        self._average_bytes: int | None = None
        self._committed: dict[MessageQueue, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return WireTransport, (self.options, self.bounds)

    # --- offsets ---

    def initial(self, default: Literal["earliest", "latest"]) -> Offset:
        edges = self._queues.edges()
        if self.options.starting_timestamp_ms is not None:
            return WireOffset.at(self._queues.since(edges, self.options.starting_timestamp_ms), edges).to_json()
        place = self.options.starting_offsets or Place(default)
        if place.kind == "age":
            found = self._queues.first_since(edges, int(time.time() * 1000) - place.age_ms)
            return WireOffset.at(found, edges).to_json()
        return WireOffset.at(placed("startingOffsets", place, edges, self.options, unnamed=default), edges).to_json()

    def final(self) -> Offset:
        edges = self._queues.complete()
        if self.options.ending_timestamp_ms is not None:
            ends = self._queues.before(edges, self.options.ending_timestamp_ms)
        else:
            place = self.options.ending_offsets or Place("latest")
            ends = placed("endingOffsets", place, edges, self.options, unnamed="latest")
        self._planned = WireOffset.at(ends, edges).to_json()
        return self._planned

    def latest(self) -> Offset:
        self._fresh_edges = edges = self._queues.edges(self.options.subscribe)
        return WireOffset.at({queue: edge.max_queue_offset for queue, edge in edges.items()}, edges).to_json()

    def settled(self) -> Offset:
        found = self.latest()
        while self._queues.contacts.is_waited_for():
            time.sleep(queue_edges.SETTLE_PAUSE_S)
            found = self.latest()
        return found

    def reported(self, start: Offset, end: Offset) -> Offset:
        return {**end, **lag_of(self._between(start, end), self._message_bytes, self._open(), self._queues.contacts)}

    def limited(self, start: Offset, end: Offset, limit: Limit) -> Offset:
        """Return the offset at which a batch ends, so that the batch is as large as the limit allows. The limit in bytes is
        converted to messages by the average size of some records."""
        edges = self._fresh_edges if self._fresh_edges is not None else self._queues.edges(self.options.subscribe)
        # The offsets in ``_fresh_edges`` are used for one batch only, because the queues change before the next batch.
        self._fresh_edges = None
        known = WireOffset.from_json(start)
        first = self._lives.settled(known, edges)
        last = {
            queue: min(place, edges[queue].max_queue_offset) if queue in edges else place
            for queue, place in WireOffset.from_json(end).queues.items()
        }
        new = {queue: edge.min_queue_offset for queue, edge in edges.items() if queue not in first.queues}
        ranges = ranges_between({**first.queues, **new}, last, {})
        if not ranges:
            # Without new messages, the batch ends where it starts.
            # If a topic was recreated, ``first`` has queue offset 0 for its queues, and the checkpoint must record 0.
            return start if first == known else first.to_json()
        rows = [one for one in (limit.max_rows, self._rows_in(limit.max_bytes, ranges)) if one is not None]
        ends = limited_rows(ranges, min(rows)) if rows else {one.queue: one.end for one in ranges}
        begun = {one.queue: one.start for one in ranges if known.queues.get(one.queue) != one.start}
        again = {queue: place for queue, place in first.began.items() if first.queues.get(queue) == place}
        found = first.moved(ends, edges, {**again, **begun}).to_json()
        self._planned = found
        return found

    def rows_between(self, start: Offset, end: Offset, enough: int) -> int:
        """Return the number of messages between two offsets. Messages with tags that are not requested also count."""
        return sum(one.rows for one in self._between(start, end))

    def checked(self, offset: Offset) -> Offset:
        found = WireOffset.from_json(offset)
        read = [queue for queue in found.queues if self._queues.reads(queue)]
        contacts = self._queues.contacts
        contacts.know(read)
        known = {queue.topic for queue in found.queues}
        self._queues.check_names(known)
        edges = self._queues.edges(self._queues.read_of(known))
        settled = self._lives.settled(found, edges)
        self._lives.check_missing(found, [queue for queue in read if queue.broker_name not in contacts.away], edges)
        return offset if settled == found else settled.to_json()

    def commit(self, end: Offset) -> None:
        """Commit the offsets to the brokers for the consumer group in the option ``commitGroup``, so that brokers can show the
        group's lag. A failure is logged, not raised."""
        if self.options.commit_group is None:
            return
        queues = WireOffset.from_json(end).queues
        away = self._queues.contacts.away
        changed = {
            queue: place
            for queue, place in queues.items()
            if self._committed.get(queue) != place and queue.broker_name not in away
        }
        if not changed:
            return
        client = self._open()

        async def tell() -> list[BaseException | None]:
            return await asyncio.gather(*(client.api.commit(*one) for one in changed.items()), return_exceptions=True)

        for (queue, place), failure in zip(changed.items(), client.run(tell()), strict=True):
            if failure is None:
                self._committed[queue] = place
            elif isinstance(failure, FlintError):
                name = queue_name(queue)
                log.warning(
                    "spark.not_committed",
                    "group %(group)s: the offset of %(queue)s was not committed: %(error)s",
                    group=self.options.commit_group,
                    queue=name,
                    error=failure,
                )
            else:
                raise failure

    # --- reading ---

    def narrowed(self, bounds: Bounds) -> WireTransport:
        return WireTransport(self.options, bounds)

    def plan(self, start: Offset, end: Offset) -> Sequence[tuple[QueueRange, ...]]:
        ranges = self._between(start, end)
        if end != self._planned:
            # An earlier run of the query planned this batch, so brokers may since have deleted some of its messages.
            ranges = self._lives.still_there(ranges, WireOffset.from_json(end))
        ranges = narrowed(ranges, self.bounds)
        if not ranges or (self.bounds.tags is not None and not self._tags()):
            return []
        total_bytes = sum(one.rows for one in ranges) * self._message_bytes(ranges)
        options = self.options
        count = parts_wanted(total_bytes, options.max_partition_bytes, options.min_partitions, os.cpu_count() or 1)
        return packed(ranges, count)

    def read(self, part: Sequence[QueueRange]) -> Iterator[pyarrow.RecordBatch]:
        options = self.options
        with contextlib.closing(self._new_client()) as client:
            puller = Puller(
                client,
                self._tags(),
                options.pull_batch_size,
                options.pull_timeout_ms,
                options.pull_pipeline,
                options.fail_on_data_loss,
                options.max_broker_away_ms or 0,
            )
            yield from batches(puller.pull(part), self._decoder(), options.batch_rows, options.batch_bytes)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- helpers ---

    def _decoder(self) -> Decoder:
        options, bounds = self.options, self.bounds
        tags = self._tags()
        stored = options.stored_ms.both(bounds.store_timestamp_ms)
        return Decoder(
            options.columns,
            RowFilter(tags=frozenset(tags) if tags else None, store_timestamp_ms=stored),
            raw_body=options.raw_body,
            properties_format=options.properties_format,
            verify_crc=options.verify_crc,
            bad_records=options.bad_records,
        )

    def _tags(self) -> tuple[str, ...]:
        """Return the tags that both the option ``tags`` and the query's filters accept. An empty result has two meanings.

        If ``bounds.tags`` is None, all messages are accepted. Otherwise no message is accepted, because the option and the
        filters have no common tag.
        """
        asked, queried = self.options.tags, self.bounds.tags
        if queried is None:
            return asked
        return tuple(tag for tag in asked if tag in queried) if asked else tuple(sorted(queried))

    def _open(self) -> WireClient:
        if self._client is None:
            self._client = self._new_client()
        return self._client

    def _new_client(self) -> WireClient:
        group = self.options.commit_group or DEFAULT_GROUP
        return WireClient(self.options.name_server, self.options.broker_addr, group)

    def _between(self, start: Offset, end: Offset) -> list[QueueRange]:
        first, last = WireOffset.from_json(start), WireOffset.from_json(end)
        new = sorted({queue.topic for queue in last.queues if queue not in first.queues and queue not in last.began})
        edges = self._queues.edges(new, remembered=True) if new else {}
        return first.ranges_to(last, {queue: edge.min_queue_offset for queue, edge in edges.items()})

    def _rows_in(self, max_bytes: int | None, ranges: Sequence[QueueRange]) -> int | None:
        if max_bytes is None or not ranges:
            return None
        return max(1, max_bytes // self._message_bytes(ranges))

    def _message_bytes(self, ranges: Sequence[QueueRange]) -> int:
        """Return the average size of a record in bytes. The size is measured once, on the first messages of some queues."""
        if self._average_bytes is None:
            step = -(-len(ranges) // SAMPLE_QUEUES)
            sample = [attrs.evolve(one, end=min(one.end, one.start + SAMPLE_ROWS)) for one in ranges[::step]]
            puller = Puller(self._open(), timeout_ms=self.options.pull_timeout_ms, fail_on_data_loss=False)
            try:
                pulled = list(puller.pull(sample))
            except SparkPluginError:
                # If a broker has just stopped, its records cannot be measured, and a constant average size is assumed.
                # The error of the pull is ignored, because the batch's tasks wait for the broker or report the error.
                return ASSUMED_BYTES
            rows = sum(len(one.starts) for one in pulled)
            self._average_bytes = max(1, sum(len(one.records) for one in pulled) // rows) if rows else ASSUMED_BYTES
        return self._average_bytes

"""The transport over the wire: offsets of queues from brokers, ranges of queues to tasks, records to rows.

Queues are found when a batch is planned, so new ones are read from their first message on. Nothing is subscribed, locked or
rebalanced: any task may pull any queue, and what a query has read stands in Spark's checkpoint alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.plugins.spark.decoder import Decoder, RowFilter
from flintmq.plugins.spark.errors import (
    CheckpointError,
    DataLossError,
    SparkPluginError,
)
from flintmq.plugins.spark.option_values import Place
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import Bounds, Limit, Offset
from flintmq.plugins.spark.wire.client import DEFAULT_GROUP, WireClient
from flintmq.plugins.spark.wire.pulling import Puller, batches
from flintmq.plugins.spark.wire.queue_edges import QueueEdges, placed, queue_name
from flintmq.plugins.spark.wire.ranges import (
    QueueRange,
    limited_rows,
    narrowed,
    offset_of,
    ordered,
    packed,
    parts_wanted,
    queues_of,
    ranges_between,
)

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("flintmq.spark")

ASSUMED_BYTES: Final = 512
"""A record's size where there is none to look at."""
SAMPLE_ROWS: Final = 32
SAMPLE_QUEUES: Final = 4


class WireTransport:
    """See :class:`~flintmq.plugins.spark.ports.MessageTransport`. Pickles without its connections.

    Args:
        options: of the read, with ``nameServer`` or ``brokerAddr``.
    """

    def __init__(self, options: ReadOptions, bounds: Bounds | None = None) -> None:
        self.options = options
        self.bounds = bounds or Bounds()
        self._client: WireClient | None = None
        self._queues = QueueEdges(options, self._open)
        self._average_bytes: int | None = None
        self._committed: Mapping[MessageQueue, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return WireTransport, (self.options, self.bounds)

    # --- offsets ---

    def initial(self, default: Literal["earliest", "latest"]) -> Offset:
        edges = self._queues.edges()
        if self.options.starting_timestamp_ms is not None:
            return offset_of(self._queues.since(edges, self.options.starting_timestamp_ms))
        place = self.options.starting_offsets or Place(default)
        return offset_of(placed("startingOffsets", place, edges, unnamed=default))

    def final(self) -> Offset:
        edges = self._queues.edges()
        if self.options.ending_timestamp_ms is not None:
            return offset_of(self._queues.before(edges, self.options.ending_timestamp_ms))
        place = self.options.ending_offsets or Place("latest")
        return offset_of(placed("endingOffsets", place, edges, unnamed="latest"))

    def latest(self) -> Offset:
        return offset_of({queue: edge.max_queue_offset for queue, edge in self._queues.edges().items()})

    def limited(self, start: Offset, end: Offset, limit: Limit) -> Offset:
        """Bytes by the size of some messages."""
        # A broker that is away takes its queues from the route; forgotten here, they would be read again when it is back.
        ends = {**queues_of(start), **queues_of(end)}
        ranges = self._between(start, end)
        rows = [one for one in (limit.max_rows, self._rows_in(limit.max_bytes, ranges)) if one is not None]
        if not ranges or not rows:
            return offset_of(ends)
        return offset_of({**ends, **limited_rows(ranges, min(rows))})

    def rows_between(self, start: Offset, end: Offset, enough: int) -> int:
        """Messages of other tags count."""
        return sum(one.rows for one in self._between(start, end))

    def checked(self, offset: Offset) -> Offset:
        queues = queues_of(offset)
        edges = self._queues.edges(sorted({queue.topic for queue in queues}) or None)
        found = {}
        for queue in ordered(queues):
            place, edge = queues[queue], edges.get(queue)
            if edge is None:
                self.options.lost(f"{queue_name(queue)} does not exist any more", CheckpointError)
                continue
            if place > edge.max_queue_offset:
                self.options.lost(
                    f"{queue_name(queue)}: the checkpoint stands at {place}, the queue ends at {edge.max_queue_offset}: its "
                    "broker lost its end, or the topic was deleted and created again",
                    CheckpointError,
                )
            if place < edge.min_queue_offset:
                self.options.lost(
                    f"{queue_name(queue)}: messages {place} to {edge.min_queue_offset - 1} are gone", DataLossError
                )
            found[queue] = min(max(place, edge.min_queue_offset), edge.max_queue_offset)
        return offset_of(found)

    def commit(self, end: Offset) -> None:
        """Tell brokers how far it is, as ``commitGroup``, for their lag display; what goes wrong with that is logged."""
        if self.options.commit_group is None:
            return
        queues = queues_of(end)
        changed = {queue: place for queue, place in queues.items() if self._committed.get(queue) != place}
        client = self._open()

        async def tell() -> None:
            for queue, place in changed.items():
                await client.api.commit(queue, place)

        try:
            client.run(tell())
            self._committed = queues
        except SparkPluginError as error:
            log.warning("the offsets of group %s were not committed: %s", self.options.commit_group, error)

    # --- reading ---

    def narrowed(self, bounds: Bounds) -> WireTransport:
        return WireTransport(self.options, bounds)

    def plan(self, start: Offset, end: Offset) -> Sequence[tuple[QueueRange, ...]]:
        ranges = narrowed(self._between(start, end), self.bounds)
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
            )
            yield from batches(puller.pull(part), self._decoder(), options.batch_rows, options.batch_bytes)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- inside ---

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
        """Return what tags are asked for, by the option and by the query; empty for any, and where no tag fits both."""
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
        starts, ends = queues_of(start), queues_of(end)
        new = sorted({queue.topic for queue in ends if queue not in starts})
        first = {queue: edge.min_queue_offset for queue, edge in self._queues.edges(new).items()} if new else {}
        return ranges_between(starts, ends, first)

    def _rows_in(self, max_bytes: int | None, ranges: Sequence[QueueRange]) -> int | None:
        if max_bytes is None or not ranges:
            return None
        return max(1, max_bytes // self._message_bytes(ranges))

    def _message_bytes(self, ranges: Sequence[QueueRange]) -> int:
        """Return how large a record is, going by the first ones of some queues; asked once."""
        if self._average_bytes is None:
            step = -(-len(ranges) // SAMPLE_QUEUES)
            sample = [attrs.evolve(one, end=min(one.end, one.start + SAMPLE_ROWS)) for one in ranges[::step]]
            puller = Puller(self._open(), timeout_ms=self.options.pull_timeout_ms, fail_on_data_loss=False)
            pulled = list(puller.pull(sample))
            rows = sum(len(one.starts) for one in pulled)
            self._average_bytes = max(1, sum(len(one.records) for one in pulled) // rows) if rows else ASSUMED_BYTES
        return self._average_bytes

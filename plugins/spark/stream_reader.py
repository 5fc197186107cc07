"""Streaming reads: ``spark.readStream.format("flintmq")`` in micro-batches, each a range of offsets that reads the same again.

Spark keeps the offsets in the query's checkpoint before it runs a batch. What lies between two of them never changes, so a
batch that is run again after a crash has the same rows: with a sink that takes each batch once, every message is processed
exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import Limit, MessageTransport, Offset
from flintmq.plugins.spark.worker import settle

if TYPE_CHECKING:
    import pyarrow


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in a helper of the driver that lives as long as the query; reads them in workers."""

    def __init__(self, transport: MessageTransport, options: ReadOptions) -> None:
        self._transport = transport
        self._options = options
        self._end: Offset | None = None
        """Where the query ends, under the trigger AvailableNow."""
        self._is_checked = False
        self._batch_at_s = time.monotonic()

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins. Raises SparkPluginError."""
        self._is_checked = True
        return self._transport.initial("latest")

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit that Spark hands back to :meth:`latestOffset`; it holds only one of ours, so they are looked up there."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.bytes_per_trigger is not None:
            return ReadMaxBytes(options.bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Where the next batch ends; ``start`` itself when there is nothing to do. Raises SparkPluginError."""
        if not self._is_checked:
            start = self._transport.checked(start)
            self._is_checked = True
        end = self._end if self._end is not None else self._transport.latest()
        if self._waits(start, end, limit):
            return start
        found = self._transport.limited(start, end, self._limit(limit))
        if found != start:
            self._batch_at_s = time.monotonic()
        return found

    def _limit(self, limit: ReadLimit) -> Limit:
        """The options' limits: none when Spark says that all is to be read."""
        if isinstance(limit, ReadAllAvailable):
            return Limit()
        return Limit(self._options.max_offsets_per_trigger, self._options.bytes_per_trigger)

    def _waits(self, start: Offset, end: Offset, limit: ReadLimit) -> bool:
        """Whether there is too little for a batch yet."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._end is not None or isinstance(limit, ReadAllAvailable):
            return False
        waited_ms = (time.monotonic() - self._batch_at_s) * 1000
        if waited_ms >= self._options.max_trigger_delay_ms:
            return False
        return self._transport.rows_between(start, end, least) < least

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fixes the end of the query. Raises SparkPluginError."""
        self._end = self._transport.latest()

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """The newest offset, for the lag in the query's progress. Raises SparkPluginError."""
        return self._transport.latest()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks of a batch, also of one that a crash left unfinished. Raises SparkPluginError."""
        return [InputPartition(part) for part in self._transport.plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of a part. Raises SparkPluginError."""
        settle()
        return self._transport.read(partition.value) if partition.value is not None else iter(())

    def commit(self, end: Offset) -> None:
        """A batch is done."""
        self._transport.commit(end)

    def stop(self) -> None:
        """The query has ended."""
        self._transport.close()

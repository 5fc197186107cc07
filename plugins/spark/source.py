"""The data source that Spark knows as ``flintmq``, and its readers; the writers are in :mod:`~flintmq.plugins.spark.writer`.

Constructors open no file and no connection, because Spark makes instances in each of its helper processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import ANY, Bounds, Limit, MessageTransport, Offset, Range
from flintmq.plugins.spark.schema import BY_NAME, columns_of, spark_schema
from flintmq.plugins.spark.spark_api import (
    HAS_FILTERS,
    DataSourceStreamArrowWriter,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from flintmq.plugins.spark.sql_table import (
    options_of_new_table,
    read_options,
    reads,
    with_options,
    write_options,
)
from flintmq.plugins.spark.worker_python import settle

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType


class FlintMQDataSource(DataSource):
    """The data source of ``spark.read.format("flintmq")`` and ``spark.readStream.format("flintmq")``. The options are in
    docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "flintmq"

    def schema(self) -> StructType:
        """Return the Spark schema of a read: the columns in the option ``columns``, by default all columns. Raises OptionError,
        SchemaError."""
        settle()
        table = options_of_new_table(self.options)
        options = ReadOptions.parse(self.options if table is None else reads(table))
        found = spark_schema(options.columns, options.properties_format)
        return found if table is None else with_options(found, table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a Spark batch reader of the message columns in a schema. Raises OptionError, SchemaError."""
        options = self._options(schema)
        # If filter pushdown is off in Spark's configuration, Spark rejects a reader with the method pushFilters.
        # Only reads with the option ``pushdown`` use PruningBatchReader, which fails in Spark sessions without filter pushdown.
        return (PruningBatchReader if options.pushdown and HAS_FILTERS else BatchReader)(transport_of(options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a Spark stream reader of the message columns in a schema. Raises OptionError, SchemaError."""
        options = self._options(schema).for_stream()
        options.check_stream()
        return StreamReader(transport_of(options), options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a Spark batch writer that sends rows to brokers as messages. Raises OptionError, SchemaError."""
        from flintmq.plugins.spark.writer import BatchWriter

        return BatchWriter(write_options(self.options, schema), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's name
        """Return a Spark stream writer that sends the rows of micro-batches to brokers as messages. Raises OptionError,
        SchemaError."""
        from flintmq.plugins.spark.writer import StreamWriter

        return StreamWriter(write_options(self.options, schema), schema, overwrite)

    def _options(self, schema: StructType) -> ReadOptions:
        settle()
        options = ReadOptions.parse(read_options(self.options, schema))
        return attrs.evolve(options, columns=columns_of(schema, options.properties_format))


def transport_of(options: ReadOptions) -> MessageTransport:
    """Return the transport that the options of a read choose: the files of a store, or brokers. Only the chosen transport is
    imported."""
    if options.transport == "store":
        from flintmq.plugins.spark.store.transport import StoreTransport

        return StoreTransport(options)
    from flintmq.plugins.spark.wire_transport import WireTransport

    return WireTransport(options)


class BatchReader(DataSourceReader):
    """A Spark reader of the messages between two offsets. Spark calls :meth:`partitions` in a helper process of the driver, and
    :meth:`read` in workers."""

    def __init__(self, transport: MessageTransport) -> None:
        self._transport = transport

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the read, one for each Spark task. Spark runs one task even for an empty list. Raises
        SparkPluginError."""
        start, end = self._transport.initial("earliest"), self._transport.final()
        parts = [InputPartition(part) for part in self._transport.plan(start, end)]
        self._transport.close()
        return parts

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return _rows(self._transport, partition)


class PruningBatchReader(BatchReader):
    """A batch reader that uses a query's filters to read less. Spark filters the rows again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Use a query's filters to read fewer messages, and return all filters, because Spark must apply the filters too."""
        self._transport = self._transport.narrowed(bounds_of(filters))
        return filters


def _rows(transport: MessageTransport, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of one partition of the read, as Arrow batches. Called by Spark in a worker. Raises SparkPluginError."""
    settle()
    return transport.read(partition.value) if partition.value is not None else iter(())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A Spark reader of streams. It plans micro-batches in a helper process of the driver, which runs as long as the query.
    Workers read the messages of the micro-batches.

    Spark writes the offsets into the query's checkpoint before it runs a batch. The messages between two offsets never change,
    so a batch that is repeated after a crash has the same rows. A sink that applies each batch once processes every message
    exactly once.
    """

    def __init__(self, transport: MessageTransport, options: ReadOptions) -> None:
        self._transport = transport
        self._options = options
        self._end: Offset | None = None
        """The offset at which the query ends if it has the trigger AvailableNow; None with another trigger."""
        self._is_checked = False
        self._at: Offset | None = None
        """Offset at the end of the last planned batch; None before the first batch."""
        self._batch_at_s = time.monotonic()
        self._stands_at: Offset | None = None
        """The query's current offset, which is used only with a PySpark that does not pass the offset to
        :meth:`latestOffset`."""
        self._is_limited = False
        """Whether the next batch gets the maximum size that :meth:`getDefaultReadLimit` returns. The first batch of every run
        has no limit. This attribute is used only with a PySpark that passes no limit to :meth:`latestOffset`."""

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset at which a streaming query without a checkpoint begins. Each call returns the same offset. Raises
        SparkPluginError."""
        self._is_checked = True
        if self._stands_at is None:
            self._stands_at = self._transport.initial("latest")
        return self._stands_at

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a micro-batch that Spark passes to :meth:`latestOffset`: ``maxOffsetsPerTrigger`` if this option
        is set, otherwise ``maxBytesPerTrigger``. Spark accepts only one limit here. If both options are set,
        :meth:`latestOffset` takes both from the options."""
        most_rows, most_bytes = self._options.max_offsets_per_trigger, self._options.bytes_per_trigger
        return ReadMaxRows(most_rows) if most_rows is not None else ReadMaxBytes(most_bytes)

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset at which the next micro-batch ends; ``start`` if no new message can be read. Raises
        SparkPluginError.

        PySpark before 4.2 passes neither ``start`` nor ``limit``, and this method cannot find out the query's trigger. With the
        trigger AvailableNow, PySpark before 4.2 calls this method only once in a run, so that one batch must contain all
        messages. With these versions the first batch of every run therefore has no limit.
        """
        if limit is None:
            limit = self.getDefaultReadLimit() if self._is_limited else ReadAllAvailable()
            self._is_limited = True
        if start is None:
            start = self._stands_at if self._stands_at is not None else self.initialOffset()
        if not self._is_checked:
            start = self._transport.checked(start)
            self._is_checked = True
            if self._end is not None:
                # ``_end`` is computed again, because the first computation may not have waited for all brokers of the query.
                # settled() now waits for the answers of all brokers whose names checked() has read from the checkpoint.
                self._end = self._transport.settled()
        # latestOffset() commits the finished batch, because Spark itself reports the batch only once the next batch exists.
        self._transport.commit(start)
        self._at = start
        end = self._end if self._end is not None else self._transport.latest()
        if self._waits(start, end, limit):
            return start
        wanted = Limit(self._options.max_offsets_per_trigger, self._options.bytes_per_trigger)
        found = self._transport.limited(start, end, Limit() if isinstance(limit, ReadAllAvailable) else wanted)
        if found != start:
            self._batch_at_s = time.monotonic()
        self._at = found
        return found

    def _waits(self, start: Offset, end: Offset, limit: ReadLimit) -> bool:
        """Return whether a streaming query should wait for more messages before its next micro-batch."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._end is not None or isinstance(limit, ReadAllAvailable):
            return False
        waited_ms = (time.monotonic() - self._batch_at_s) * 1000
        if waited_ms >= self._options.max_trigger_delay_ms:
            return False
        return self._transport.rows_between(start, end, least) < least

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Set the offset at which a query with the trigger AvailableNow ends to the latest offset. Raises SparkPluginError."""
        self._end = self._transport.settled()

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the latest offset, with the lag of the planned batches, for the query's progress report. Raises
        SparkPluginError."""
        latest = self._transport.latest()
        return self._transport.reported(self._at, latest) if self._at is not None else latest

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the partitions of a micro-batch, one for each Spark task. Spark also calls this method for a micro-batch that
        a crash interrupted. Raises SparkPluginError.

        When a query restarts from its checkpoint, PySpark before 4.2 also calls this method with the last batch's end as both
        arguments.
        """
        self._stands_at = end
        if start == end:
            return []
        return [InputPartition(part) for part in self._transport.plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return _rows(self._transport, partition)

    def commit(self, end: Offset) -> None:
        """Record the offset at which a finished micro-batch ends, for displays of the query's progress."""
        self._transport.commit(end)

    def stop(self) -> None:
        """Do nothing. Spark calls this method when the streaming query ends; the helper process with open files and connections
        then also ends."""


_RANGES: Final = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "storeTimestamp": "store_timestamp_ms",
}
_SETS: Final = {"topic": "topics", "tags": "tags"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """Return conditions that a row fulfills if the row passes all filters of a query. Filters of unknown kinds are ignored."""
    bounds: dict[str, Any] = {}
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        column = BY_NAME.get(path[0].lower()) if len(path) == 1 else None
        if column is None:
            continue
        values = list(one.value) if isinstance(one, In) else [getattr(one, "value", None)]
        if column.name in _SETS and isinstance(one, EqualTo | EqualNullSafe | In):
            field = _SETS[column.name]
            if all(isinstance(value, str) for value in values):
                bounds[field] = frozenset(values) & bounds.get(field, frozenset(values))
        elif column.name in _RANGES:
            field = _RANGES[column.name]
            whole = [_whole(value, is_time=column.name == "storeTimestamp") for value in values]
            bounds[field] = bounds.get(field, ANY).both(_range(one, whole))
    return Bounds(**bounds)


def _range(one: Filter, whole: Sequence[Range]) -> Range:
    """Return a range that contains all whole numbers that a query's filter accepts.

    Args:
        one: the filter, which compares a column with one value or, for IN, with several values.
        whole: the filter's values as ranges of whole numbers, made by :func:`_whole`: one range for each value, which contains
            it.
    """
    low, high = (
        min((value.low for value in whole), default=ANY.low),
        max((value.high for value in whole), default=ANY.high),
    )
    if isinstance(one, EqualTo | EqualNullSafe | In):
        return Range(low, high)
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return Range(low=low)
    if isinstance(one, LessThan | LessThanOrEqual):
        return Range(high=high)
    return ANY


def _whole(value: Any, *, is_time: bool) -> Range:
    """Return a range of whole numbers that contains a filter's value. A number becomes the range of this number alone. A time
    becomes the range of the two milliseconds between which the time lies. Values of other types become :data:`ANY`."""
    if is_time and isinstance(value, datetime):
        since = (value if value.tzinfo is not None else value.astimezone()) - _EPOCH
        below = since // timedelta(milliseconds=1)
        return Range(below, below + 1)
    return Range(value, value) if not is_time and isinstance(value, int) and not isinstance(value, bool) else ANY

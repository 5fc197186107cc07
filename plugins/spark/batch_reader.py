"""Batch reads: ``spark.read.format("flintmq")``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from flintmq.plugins.spark.ports import MessageTransport
from flintmq.plugins.spark.pushdown import bounds_of
from flintmq.plugins.spark.worker import settle

if TYPE_CHECKING:
    import pyarrow


class BatchReader(DataSourceReader):
    """Reads what lies between two offsets. Planned in a helper of the driver, read in workers."""

    def __init__(self, transport: MessageTransport) -> None:
        self._transport = transport

    def partitions(self) -> Sequence[InputPartition]:
        """One per task; Spark wants a list, and makes one task of an empty one. Raises SparkPluginError."""
        start, end = self._transport.initial("earliest"), self._transport.final()
        parts = [InputPartition(part) for part in self._transport.plan(start, end)]
        self._transport.close()
        return parts

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of a part. Raises SparkPluginError."""
        settle()
        return self._transport.read(partition.value) if partition.value is not None else iter(())


class PruningBatchReader(BatchReader):
    """A batch reader that takes the query's filters. They only limit what is read; Spark filters the rows itself."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take note of filters and hand all of them back."""
        self._transport = self._transport.narrowed(bounds_of(filters))
        return filters

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._transport,)

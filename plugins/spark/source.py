"""The data source that Spark knows as ``flintmq``. Nothing is opened here: Spark makes one in each of its helper processes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from flintmq.plugins.spark.batch_reader import BatchReader, PruningBatchReader
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import MessageTransport
from flintmq.plugins.spark.schema import columns_of, spark_schema
from flintmq.plugins.spark.stream_reader import StreamReader
from flintmq.plugins.spark.worker import settle

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_TRANSPORTS: Final = {
    "store": "flintmq.plugins.spark.store:StoreTransport",
    "broker": "flintmq.plugins.spark.wire_transport:WireTransport",
}
"""Where each lives; only the one that is used is imported."""


def transport_of(options: ReadOptions) -> MessageTransport:
    """What these options read from: a path means files, an address a broker."""
    module, _, name = _TRANSPORTS[options.transport].partition(":")
    make: Callable[[ReadOptions], MessageTransport] = getattr(importlib.import_module(module), name)
    return make(options)


class FlintMQDataSource(DataSource):
    """``spark.read.format("flintmq")`` and ``spark.readStream.format("flintmq")``. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "flintmq"

    def schema(self) -> StructType:
        """The columns that the option ``columns`` names, else all. Raises OptionError, SchemaError."""
        settle()
        options = ReadOptions.parse(self.options)
        return spark_schema(options.columns, options.properties_format)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of the columns of a schema. Raises OptionError, SchemaError."""
        options = self._options(schema)
        # A reader that can take filters is refused while Spark has them switched off, so it is made only when asked for.
        return (PruningBatchReader if options.pushdown else BatchReader)(transport_of(options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A stream reader of the columns of a schema. Raises OptionError, SchemaError."""
        options = self._options(schema)
        return StreamReader(transport_of(options), options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Send rows as messages. Raises OptionError, SchemaError."""
        from flintmq.plugins.spark.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's name
        """Send the rows of micro-batches as messages. Raises OptionError, SchemaError."""
        from flintmq.plugins.spark.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _options(self, schema: StructType) -> ReadOptions:
        settle()
        options = ReadOptions.parse(self.options)
        return attrs.evolve(options, columns=columns_of(schema, options.properties_format))

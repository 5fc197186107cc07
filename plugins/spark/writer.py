"""``df.write.format("flintmq")`` and ``writeStream``: rows become messages of any broker, at least once.

The guarantee: when a write, or a micro-batch, has ended without an error, a broker has acknowledged each of its rows. A row may
be sent more than once: a request whose answer is lost is sent again, and so is everything of a task that Spark runs again. Each
message has the property ``SPARK_TXN``, ``<query>:<batch>:<partition>:<number>``, the same each time a row is sent as long
as its partition has the same rows in the same order; consumers that must not see a row twice remember it. ``<query>`` is the
streaming query's id, which outlives restarts, with the micro-batch's number; a batch write has an id of its own and batch 0.

Rows of a partition with the same ``shardingKey`` go to one queue, in their order.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import attrs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from flintmq.plugins.spark.errors import OptionError
from flintmq.plugins.spark.options import WriteOptions
from flintmq.plugins.spark.schema import check_sent_columns
from flintmq.plugins.spark.spark_api import DataSourceStreamArrowWriter
from flintmq.plugins.spark.wire.sending import Sender, row_messages
from flintmq.plugins.spark.worker_python import settle

if TYPE_CHECKING:
    import pyarrow

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""The local properties in which Spark tells tasks which query and micro-batch they are of."""


@attrs.frozen
class SentRows(WriterCommitMessage):
    """What a task has sent."""

    rows: int
    requests: int
    repeated: int
    """Requests that were sent again: so many batches may have come twice."""


class _Writer:
    """Sends a task's rows. Pickled to the workers.

    Args:
        options: as given.
        schema: of the rows.
        overwrite: whether what is there shall be replaced.

    Raises:
        OptionError: an option is unknown or cannot be used, or a topic should be overwritten.
        SchemaError: rows of this schema cannot be sent.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                "messages cannot be overwritten: use mode('append'), in a stream outputMode append or update"
            )
        self._options = WriteOptions.parse(options)
        check_sent_columns(schema, has_topic=self._options.topic is not None)
        self._write_id = uuid.uuid4().hex
        """The query, where Spark has none."""

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Return what a task does.

        Raises:
            RowError: a row cannot be sent; says which and why.
            SparkPluginError: the brokers refuse or do not answer, time and again.
        """
        settle()
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty(QUERY_ID) or self._write_id
        transaction = f"{query}:{context.getLocalProperty(BATCH_ID) or 0}:{context.partitionId()}"
        with contextlib.closing(Sender(self._options)) as sender:
            for message in row_messages(iterator, self._options, transaction):
                sender.send(message)
            sender.flush()
            return SentRows(sender.rows, sender.requests, sender.repeated)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """The writer of a ``df.write``."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer of a ``writeStream``."""

"""The writers of ``df.write.format("flintmq")`` and ``writeStream``, which send rows to brokers as messages, at least once.

When a write or a micro-batch ends without an error, brokers have acknowledged each of its rows. A row may be sent more than
once: a request without an answer is sent again, and a task that Spark repeats sends all its rows again.

Each message has the property ``SPARK_TXN`` with the value ``<query>:<batch>:<partition>:<number>``. A repeated row has the same
value if its partition has the same rows in the same order. Consumers can use this value to discard repeated rows. For a stream,
``<query>`` is the query's id, which survives restarts, and ``<batch>`` the number of the micro-batch. A batch write has a
random id and batch 0.

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
"""Name of a local property of Spark tasks, whose value is the id of the streaming query."""
BATCH_ID: Final = "streaming.sql.batchId"
"""Name of a local property of Spark tasks, whose value is the number of the micro-batch."""


@attrs.frozen
class SentRows(WriterCommitMessage):
    """The counts of the rows that a Spark task sent, and of its requests."""

    rows: int
    requests: int
    repeated: int
    """Number of requests that were sent more than once. The rows of such a request may be stored twice."""


class _Writer:
    """A Spark writer that sends the rows of a task to brokers as messages. Instances are pickled to the workers.

    Args:
        options: the options of the write as Spark passes them.
        schema: the schema of the rows.
        overwrite: whether Spark asks to replace the existing data, which is not supported.

    Raises:
        OptionError: an option is unknown or has an unusable value, or ``overwrite`` is set.
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
        """Id of a batch write in the message property ``SPARK_TXN``. The id is needed because Spark gives an id only to
        streaming queries."""

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a Spark task to brokers as messages, and return the counts. Called by Spark in a worker.

        Raises:
            RowError: a row cannot be sent. The text says which row and why.
            SparkPluginError: a broker refuses a request, or does not answer any attempt.
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
    """The Spark writer of a ``df.write``, which sends rows to brokers as messages."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The Spark writer of a ``writeStream``, which sends the rows of micro-batches to brokers as messages."""

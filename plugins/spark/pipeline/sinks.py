"""Where rows go: each format's way of writing a batch, and of starting a stream."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.plugins.spark.errors import SparkPluginError
from flintmq.plugins.spark.pipeline.models import ConsoleSink, FileSink, JdbcSink, Sink, TopicSink
from flintmq.plugins.spark.pipeline.planning import PlannedPipeline, analysed, revealed
from flintmq.plugins.spark.pipeline.requirements import require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

NATIVE_DELTA: Final = "io.delta.sql.DeltaSparkSessionExtension"
ShowRows = Callable[[str, str], None]
"""Called with the sink's name and the rows as a table."""


@attrs.frozen
class BoundSink:
    """A sink with the rows it takes. Belongs to its session's thread."""

    planned: PlannedPipeline
    place: int
    show: ShowRows = print

    @property
    def sink(self) -> Sink:
        return self.planned.loaded.pipeline.sinks[self.place]

    @property
    def key(self) -> str:
        return f"sinks[{self.place}]"

    @property
    def frame(self) -> DataFrame:
        return self.planned.frame_of(self.place)

    @property
    def spark(self) -> SparkSession:
        return self.frame.sparkSession

    @property
    def is_remote(self) -> bool:
        """Return whether the session is one of Spark Connect, which has no JVM in this process."""
        return type(self.spark).__module__.startswith("pyspark.sql.connect")

    def check(self) -> None:
        """Refuse what could not be written, before anything is.

        Raises:
            ConfigError: a column, a package or a secret is missing, or the place is taken; names the line.
        """
        sink = self.sink
        if isinstance(sink, FileSink):
            self._check_columns(sink.partition_by, "partition_by")
            if sink.format == "delta" and not self._native_delta:
                require("delta", f"'{self.key}.format': delta", self._origin("format"))
                self._check_delta(sink)
        elif isinstance(sink, JdbcSink):
            self._jdbc_options(sink)
        elif isinstance(sink, TopicSink):
            self._check_topic(sink)

    def write(self, frame: DataFrame) -> bool:
        """Write a batch.

        Args:
            frame: :attr:`frame`, or the same rows observed.

        Returns:
            False when nothing was written because ``mode: ignore`` said so.
        """
        sink = self.sink
        if isinstance(sink, ConsoleSink):
            self.show(sink.name, table_text(frame, sink))
            return True
        if isinstance(sink, FileSink) and sink.format == "delta" and not self._native_delta:
            return self._write_delta(frame, sink)
        writer = frame.write.mode("append" if isinstance(sink, TopicSink) else getattr(sink, "mode", "append"))
        with analysed(self.planned.loaded, self.key, self.planned.redactor):
            if isinstance(sink, FileSink):
                writer = writer.options(**self._revealed("options", sink.options)).partitionBy(*sink.partition_by)
                writer.format(sink.format).save(sink.path)
            elif isinstance(sink, JdbcSink):
                writer.format("jdbc").options(**self._jdbc_options(sink)).save()
            elif isinstance(sink, TopicSink):
                writer.format("flintmq").options(**self._topic_options(sink)).save()
        return True

    def start(self, frame: DataFrame) -> StreamingQuery:
        """Start the stream into the sink; ``frame`` as for :meth:`write`."""
        stream = self.planned.loaded.pipeline.stream
        assert stream is not None
        sink = self.sink
        name = f"{self.planned.loaded.pipeline.name}.{sink.name}"
        writer = frame.writeStream.queryName(name).outputMode(sink.output_mode)
        writer = writer.option("checkpointLocation", f"{stream.checkpoint.rstrip('/')}/{sink.name}")
        if stream.trigger == "availableNow":
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{stream.interval_ms} milliseconds")
        with analysed(self.planned.loaded, self.key, self.planned.redactor):
            return self._started(writer, sink)

    def _started(self, writer: Any, sink: Sink) -> StreamingQuery:
        query: StreamingQuery
        if isinstance(sink, FileSink) and sink.format == "delta" and not self._native_delta:
            query = self._delta_options(writer.format(self._registered_delta()), sink).start()
        elif isinstance(sink, FileSink):
            writer = writer.options(**self._revealed("options", sink.options)).partitionBy(*sink.partition_by)
            query = writer.format(sink.format).start(sink.path)
        elif isinstance(sink, JdbcSink):
            query = writer.foreachBatch(jdbc_batches(self._jdbc_options(sink), sink.batch_column)).start()
        elif isinstance(sink, TopicSink):
            query = writer.format("flintmq").options(**self._topic_options(sink)).start()
        elif self.is_remote:  # the server shows the rows: nothing else can show them as they come
            assert isinstance(sink, ConsoleSink)
            query = writer.format("console").option("numRows", sink.rows).option("truncate", sink.truncate).start()
        else:
            assert isinstance(sink, ConsoleSink)
            query = writer.foreachBatch(console_batches(sink, self.show)).start()
        return query

    def _revealed(self, inner: str, options: Any) -> dict[str, str]:
        return revealed(self.planned.loaded, f"{self.key}.{inner}", options, self.planned.redactor)

    def _origin(self, inner: str) -> Any:
        return self.planned.loaded.origin(f"{self.key}.{inner}")

    def _error(self, inner: str, message: str) -> ConfigError:
        key = f"{self.key}.{inner}" if inner else self.key
        return self.planned.loaded.error(key, f"'{key}': {self.planned.redactor.clean(message)}")

    def _check_columns(self, names: tuple[str, ...], inner: str) -> None:
        columns = self.frame.columns
        for name in names:
            if name not in columns:
                raise self._error(inner, f"the rows have no column '{name}', only {', '.join(columns)}")

    # --- Delta without a jar ---

    @property
    def _native_delta(self) -> bool:
        """Whether the session has Delta's own extension: then Spark writes."""
        return NATIVE_DELTA in (self.spark.conf.get("spark.sql.extensions", "") or "")

    def _check_delta(self, sink: FileSink) -> None:
        from flintmq.plugins.spark.pipeline.delta_source import local_folder

        try:
            folder = local_folder(sink.path)
        except SparkPluginError as error:
            raise self._error("path", str(error)) from error
        if not self.planned.loaded.pipeline.is_streaming and sink.mode == "errorifexists":
            from deltalake import DeltaTable

            if DeltaTable.is_deltatable(str(folder)):
                raise self._error("path", f"there is a Delta table {folder} already; 'mode: append' adds to it")

    def _registered_delta(self) -> str:
        from flintmq.plugins.spark.pipeline.delta_source import FORMAT, DeltaSource

        self.spark.dataSource.register(DeltaSource)
        return FORMAT

    def _delta_options(self, writer: Any, sink: FileSink) -> Any:
        from flintmq.plugins.spark.pipeline.delta_source import local_folder

        return writer.option("path", str(local_folder(sink.path))).option("partitionBy", ",".join(sink.partition_by))

    def _write_delta(self, frame: DataFrame, sink: FileSink) -> bool:
        from deltalake import DeltaTable

        from flintmq.plugins.spark.pipeline.delta_source import local_folder

        if sink.mode == "ignore" and DeltaTable.is_deltatable(str(local_folder(sink.path))):
            return False
        self._check_delta(sink)
        writer = frame.write.mode("overwrite" if sink.mode == "overwrite" else "append")
        with analysed(self.planned.loaded, self.key, self.planned.redactor):
            self._delta_options(writer.format(self._registered_delta()), sink).save()
        return True

    # --- databases ---

    def _jdbc_options(self, sink: JdbcSink) -> dict[str, str]:
        given = {"url": sink.url, "dbtable": sink.table, "user": sink.user, "password": sink.password}
        given["driver"] = sink.driver
        own = {name: value for name, value in given.items() if value is not None}
        return {
            **self._revealed("options", sink.options),
            **revealed(self.planned.loaded, self.key, own, self.planned.redactor),
        }

    # --- topics ---

    def _topic_options(self, sink: TopicSink) -> dict[str, str]:
        return revealed(self.planned.loaded, self.key, sink.options, self.planned.redactor)

    def _check_topic(self, sink: TopicSink) -> None:
        from flintmq.plugins.spark.write_options import WriteOptions, check_columns

        options = self._topic_options(sink)
        try:
            check_columns(self.frame.schema, WriteOptions.parse(options))
        except SparkPluginError as error:
            named = next((name for name in options if name.casefold() in str(error).casefold()), "")
            raise self._error(named, str(error)) from error


def table_text(frame: DataFrame, sink: ConsoleSink) -> str:
    """The first rows as Spark's own table."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        frame.show(sink.rows, truncate=sink.truncate)
    return written.getvalue().rstrip()


def console_batches(sink: ConsoleSink, show: ShowRows) -> Callable[[DataFrame, int], None]:
    """Show each micro-batch that has rows."""

    def show_batch(frame: DataFrame, batch_id: int) -> None:
        if frame.take(1):
            show(f"{sink.name}, batch {batch_id}", table_text(frame, sink))

    return show_batch


def jdbc_batches(options: dict[str, str], batch_column: str | None) -> Callable[[DataFrame, int], None]:
    """Write each micro-batch into a table: at least once."""

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        if batch_column is not None:
            from pyspark.sql.functions import lit

            frame = frame.withColumn(batch_column, lit(batch_id).cast("bigint"))
        frame.write.format("jdbc").mode("append").options(**options).save()

    return write_batch

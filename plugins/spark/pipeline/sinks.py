"""Writes the batches of a pipeline to its sinks, and starts the streams into its sinks, for each format of sinks."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

from flintmq.config.errors import ConfigError, nearest
from flintmq.plugins.spark.errors import SparkPluginError
from flintmq.plugins.spark.pipeline.load import LoadedPipeline
from flintmq.plugins.spark.pipeline.models import ConsoleSink, FileSink, JdbcSink, Sink, TopicSink
from flintmq.plugins.spark.pipeline.planning import PlannedPipeline, analysed
from flintmq.plugins.spark.pipeline.references import require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

NATIVE_DELTA: Final = "io.delta.sql.DeltaSparkSessionExtension"
OUR_DELTA_OPTIONS: Final = ("mergeSchema",)
FILE_OPTIONS: Final = {
    "parquet": ("compression", "maxRecordsPerFile", "partitionOverwriteMode", "retention"),
    "delta": (
        "mergeSchema",
        "overwriteSchema",
        "replaceWhere",
        "partitionOverwriteMode",
        "maxRecordsPerFile",
        "compression",
        "optimizeWrite",
        "txnAppId",
        "txnVersion",
        "userMetadata",
        "dataChange",
    ),
}
"""Options that file sinks accept, keyed by the sink's format. Options that begin with ``parquet.`` or ``delta.`` are accepted,
too."""
ShowRows = Callable[[str, str], None]
"""Function that shows the rows of a console sink. Its arguments are the sink's name and the rows as a text table."""


@attrs.frozen
class BoundSink:
    """A sink of a pipeline together with the data frame that it writes. Only the thread of the Spark session may use the
    object."""

    planned: PlannedPipeline
    place: int
    show: ShowRows = print

    @property
    def loaded(self) -> LoadedPipeline:
        return self.planned.loaded

    @property
    def sink(self) -> Sink:
        return self.loaded.pipeline.sinks[self.place]

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
        """Whether the sink's Spark session is a session of Spark Connect, which has no JVM in this process."""
        return is_remote(self.spark)

    def check(self) -> None:
        """Check that the sink of a pipeline can be written, before the pipeline writes any row.

        Raises:
            ConfigError: a column, a package or a secret is missing, or the destination already exists. The error names
                the line in the pipeline's file.
        """
        sink = self.sink
        if isinstance(sink, FileSink):
            columns = self.frame.columns
            missing = next((name for name in sink.partition_by if name not in columns), None)
            if missing is not None:
                raise self._error("partition_by", f"the rows have no column '{missing}', only {', '.join(columns)}")
            check_file_options(self.loaded, self.key, sink, is_our_delta=self._is_our_delta)
            if self._is_our_delta:
                format_key = f"{self.key}.format"
                require("delta", f"'{format_key}': delta", self.loaded.origin(format_key))
                self._check_delta(sink)
        elif isinstance(sink, JdbcSink):
            self._jdbc_options(sink)
        elif isinstance(sink, TopicSink):
            self._check_topic(sink)

    def write(self, frame: DataFrame) -> bool:
        """Write the rows of a batch pipeline to the sink.

        Args:
            frame: the rows of :attr:`frame`, perhaps with an observed metric that counts them.

        Returns:
            False if ``mode: ignore`` left an existing destination unchanged; otherwise True.
        """
        sink = self.sink
        if isinstance(sink, ConsoleSink):
            self.show(sink.name, table_text(frame, sink))
            return True
        mode = sink.mode if isinstance(sink, (FileSink, JdbcSink)) else "append"
        if isinstance(sink, FileSink) and self._is_our_delta:
            if self._check_delta(sink) and mode == "ignore":
                return False
            mode = "overwrite" if mode == "overwrite" else "append"
        with analysed(self.loaded, self.key):
            # Spark Connect does not accept the mode "errorifexists", so its other name, "error", is used.
            self._into(frame.write.mode("error" if mode == "errorifexists" else mode)).save()
        return True

    def start(self, frame: DataFrame) -> StreamingQuery:
        """Start a stream that writes the rows of a frame to the sink, and return the stream's query.

        Args:
            frame: the sink's own :attr:`frame`, or a copy of it to which the caller added an observed metric that counts the
                rows.
        """
        stream = self.loaded.pipeline.stream
        assert stream is not None
        sink = self.sink
        name = f"{self.loaded.pipeline.name}.{sink.name}"
        writer = frame.writeStream.queryName(name).outputMode(sink.output_mode)
        writer = writer.option("checkpointLocation", f"{stream.checkpoint.rstrip('/')}/{sink.name}")
        if stream.trigger == "availableNow":
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{stream.interval_ms} milliseconds")
        with analysed(self.loaded, self.key):
            if isinstance(sink, JdbcSink):
                writer = writer.foreachBatch(jdbc_batches(self._jdbc_options(sink), sink.batch_column))
            elif isinstance(sink, ConsoleSink) and not self.is_remote:
                writer = writer.foreachBatch(console_batches(sink, self.show))
            else:
                writer = self._into(writer)
            return writer.start()

    def _into(self, writer: Any) -> Any:
        """Return a writer of a batch or a stream with the sink's format, options and destination set."""
        sink = self.sink
        if isinstance(sink, JdbcSink):
            return writer.format("jdbc").options(**self._jdbc_options(sink))
        if isinstance(sink, TopicSink):
            return writer.format("flintmq").options(**self.loaded.revealed(self.key, sink.options))
        if isinstance(sink, ConsoleSink):
            # With Spark Connect, only the server can print the rows of a stream, so Spark's own console sink is used.
            # Without Spark Connect, console_batches() prints a stream's rows in this process without Spark's console sink.
            return writer.format("console").option("numRows", sink.rows).option("truncate", sink.truncate)
        assert isinstance(sink, FileSink)
        if self._is_our_delta:
            from flintmq.plugins.spark.pipeline.delta_source import FORMAT, DeltaSource, local_folder
            from flintmq.plugins.spark.spark_api import register_source

            register_source(self.spark, DeltaSource)
            writer = writer.format(FORMAT).option("path", str(local_folder(sink.path)))
            writer = writer.option("partitionBy", ",".join(sink.partition_by))
            return writer.options(**self.loaded.revealed(f"{self.key}.options", sink.options))
        options = self.loaded.revealed(f"{self.key}.options", sink.options)
        writer = writer.format(sink.format).options(**options).partitionBy(*sink.partition_by)
        return writer.option("path", sink.path)

    def _error(self, inner: str, message: str) -> ConfigError:
        key = f"{self.key}.{inner}" if inner else self.key
        return self.loaded.error(key, f"'{key}': {message}")

    @property
    def _is_our_delta(self) -> bool:
        """Whether FlintMQ, not Spark, writes the sink's Delta table. Spark writes the table if the session has the extension of
        Delta Lake, which comes in a jar. False for other formats."""
        own = self.spark.conf.get("spark.sql.extensions", "") or ""
        return self.sink.format == "delta" and NATIVE_DELTA not in own

    def _check_delta(self, sink: FileSink) -> bool:
        """Return whether the sink's Delta table exists. Raises ConfigError if the table exists and must not exist."""
        from deltalake import DeltaTable

        from flintmq.plugins.spark.pipeline.delta_source import local_folder

        try:
            folder = local_folder(sink.path)
        except SparkPluginError as error:
            raise self._error("path", str(error)) from error
        is_there: bool = DeltaTable.is_deltatable(str(folder))
        if is_there and not self.loaded.pipeline.is_streaming and sink.mode == "errorifexists":
            raise self._error("path", f"there is a Delta table {folder} already; 'mode: append' adds to it")
        return is_there

    def _jdbc_options(self, sink: JdbcSink) -> dict[str, str]:
        given = {"url": sink.url, "dbtable": sink.table, "user": sink.user, "password": sink.password}
        own = {name: value for name, value in {**given, "driver": sink.driver}.items() if value is not None}
        return {
            **self.loaded.revealed(f"{self.key}.options", sink.options),
            **self.loaded.revealed(self.key, own),
        }

    def _check_topic(self, sink: TopicSink) -> None:
        from flintmq.plugins.spark.options import WriteOptions
        from flintmq.plugins.spark.schema import check_sent_columns

        options = self.loaded.revealed(self.key, sink.options)
        try:
            check_sent_columns(self.frame.schema, has_topic=WriteOptions.parse(options).topic is not None)
        except SparkPluginError as error:
            named = next((name for name in options if name.casefold() in str(error).casefold()), "")
            raise self._error(named, str(error)) from error


def check_file_options(loaded: LoadedPipeline, key: str, sink: FileSink, *, is_our_delta: bool) -> None:
    """Raise ConfigError if a sink of files has an option that its format does not have. Spark would ignore the option
    silently."""
    known = OUR_DELTA_OPTIONS if is_our_delta else FILE_OPTIONS[sink.format]
    names = {name.casefold() for name in known}
    for name, value in sink.options.items():
        place = f"{key}.options.{name}"
        own = not is_our_delta and name.startswith(f"{sink.format}.")
        if name.casefold() not in names and not own:
            what = "a Delta table that is written without a jar" if is_our_delta else sink.format
            text = f"'{place}': {what} has no option '{name[:80]}', only {', '.join(known)}"
            raise loaded.error(place, text, nearest(name, known))
        if name.casefold() == "mergeschema" and str(value).strip().lower() not in ("true", "false"):
            raise loaded.error(place, f"'{place}' must be true or false, not '{str(value)[:80]}'")


def is_remote(spark: SparkSession) -> bool:
    """Return whether a Spark session is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def table_text(frame: DataFrame, sink: ConsoleSink) -> str:
    """Return the first rows of a data frame as Spark's text table."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        frame.show(sink.rows, truncate=sink.truncate)
    return written.getvalue().rstrip()


def console_batches(sink: ConsoleSink, show: ShowRows) -> Callable[[DataFrame, int], None]:
    """Return a function that shows the rows of each micro-batch on the console. Micro-batches without rows are not shown."""

    def show_batch(frame: DataFrame, batch_id: int) -> None:
        if frame.take(1):
            show(f"{sink.name}, batch {batch_id}", table_text(frame, sink))

    return show_batch


def jdbc_batches(options: dict[str, str], batch_column: str | None) -> Callable[[DataFrame, int], None]:
    """Return a function that writes each micro-batch to a table over JDBC. A repeated micro-batch is written again."""

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        if batch_column is not None:
            from pyspark.sql.functions import lit

            frame = frame.withColumn(batch_column, lit(batch_id).cast("bigint"))
        frame.write.format("jdbc").mode("append").options(**options).save()

    return write_batch

"""Runs a pipeline that Spark has analyzed. Each sink gets one batch write, or one streaming query with a separate
checkpoint."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from flintmq.core.client_log import escape_all
from flintmq.core.errors import FlintError
from flintmq.plugins.spark.job_progress import watched_tasks
from flintmq.plugins.spark.pipeline.planning import PlannedPipeline, first_words
from flintmq.plugins.spark.pipeline.sinks import BoundSink, ShowRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation
    from pyspark.sql.streaming import StreamingQuery
    from rich.progress import Progress

POLL_S: Final = 0.25
ROWS: Final = "flintmq_rows"
"""Name of Spark's observed metric that counts the rows of each sink."""


class PipelineError(FlintError):
    """A pipeline failed while it ran. The error's text names the sink and Spark's reason."""


@attrs.frozen
class SinkResult:
    """The result of one sink in a run of a pipeline: the numbers of rows and batches."""

    name: str
    format: str
    rows: int | None
    """Number of rows that the sink wrote in this run of the pipeline. None if this number is unknown, as for a console sink or
    with ``mode: ignore``."""
    batches: int
    """Number of micro-batches that the sink wrote. For a batch pipeline, the number is 1, or 0 if nothing was written."""
    seconds: float


@attrs.frozen
class PipelineResult:
    """The result of one run of a pipeline: the pipeline's name, whether it ran as a streaming query, and the numbers of rows
    and batches that each sink wrote."""

    name: str
    streaming: bool
    sinks: tuple[SinkResult, ...]


def bound_sinks(planned: PlannedPipeline, show: ShowRows = print) -> list[BoundSink]:
    """Check that each sink of a pipeline can be written, and return the sinks with their data frames.

    Raises:
        ConfigError: a sink cannot be written. The error names the line in the pipeline's file.
    """
    sinks = [BoundSink(planned, place, show) for place in range(len(planned.loaded.pipeline.sinks))]
    for sink in sinks:
        sink.check()
    return sinks


def run(planned: PlannedPipeline, *, show: ShowRows = print, bars: Progress | None = None) -> PipelineResult:
    """Run a pipeline, and return the result. A pipeline runs to its end, or with the trigger ``processingTime`` until it is
    stopped.

    Args:
        planned: the pipeline.
        show: function that shows the rows of a console sink. Its arguments are the sink's name and the rows as a text table.
        bars: progress display, which shows the tasks of a batch or the rows of a stream; None for no display.

    Raises:
        ConfigError: a sink cannot be written.
        PipelineError: a sink has failed. Streams into the other sinks are stopped.
        KeyboardInterrupt: the run was interrupted. Streams are stopped; the next run continues from their checkpoints.
    """
    sinks = bound_sinks(planned, show)
    pipeline = planned.loaded.pipeline
    try:
        results = _stream(sinks, bars) if pipeline.is_streaming else [_write(sink, bars) for sink in sinks]
    finally:
        for step in pipeline.steps:
            if step.cache:
                planned.frames[step.view].unpersist()
    return PipelineResult(pipeline.name, pipeline.is_streaming, tuple(results))


def _observed(frame: DataFrame, observation: Observation | str) -> DataFrame:
    from pyspark.sql.functions import count, lit

    return frame.observe(observation, count(lit(1)).alias("rows"))


def _write(sink: BoundSink, bars: Progress | None) -> SinkResult:
    from pyspark.sql import Observation

    observation = Observation(ROWS)
    begin_s = time.monotonic()
    # Rows of a console sink, or of a sink with mode ignore, are not counted, because Spark may not read all of them.
    uncounted = sink.sink.format == "console" or getattr(sink.sink, "mode", "") == "ignore"
    frame = sink.frame if uncounted else _observed(sink.frame, observation)
    with _named(sink), _task_bar(sink, bars):
        wrote = sink.write(frame)
    rows = None if uncounted else int(observation.get.get("rows") or 0)
    return SinkResult(sink.sink.name, sink.sink.format, rows, int(wrote), time.monotonic() - begin_s)


@contextlib.contextmanager
def _task_bar(sink: BoundSink, bars: Progress | None) -> Iterator[None]:
    if bars is None:
        yield
        return
    bar = bars.add_task(escape_all(sink.sink.name), total=None)
    with contextlib.ExitStack() as stack:
        stack.callback(bars.update, bar, total=1, completed=1)
        if not sink.is_remote:
            context, said = sink.spark.sparkContext, f"pipeline sink {sink.sink.name}"
            told = watched_tasks(context, said, lambda done, total: bars.update(bar, total=total, completed=done))
            stack.enter_context(told)
        yield


def _stream(sinks: Sequence[BoundSink], bars: Progress | None) -> list[SinkResult]:
    begin_s = time.monotonic()
    queries: list[StreamingQuery] = []
    counts = [StreamCount() for _ in sinks]
    tasks = [bars.add_task(escape_all(sink.sink.name), total=None) for sink in sinks] if bars is not None else []
    try:
        for sink in sinks:
            with _named(sink):
                queries.append(sink.start(_observed(sink.frame, ROWS)))
        while any(query.isActive for query in queries):
            time.sleep(POLL_S)
            for query, count in zip(queries, counts, strict=True):
                count.look_at(query)
            if bars is not None:
                for sink, count, task in zip(sinks, counts, tasks, strict=True):
                    bars.update(task, description=f"{sink.sink.name}: {count}")
            _raise_failed(sinks, queries)
        _raise_failed(sinks, queries)
    finally:
        if queries and any(query.isActive for query in queries) and not sinks[0].is_remote:
            # Spark's logging is switched off before the queries are stopped, because Spark logs errors about stopped tasks.
            sinks[0].spark.sparkContext.setLogLevel("OFF")
        for query in queries:
            query.stop()
        for query, count in zip(queries, counts, strict=False):
            count.look_at(query)
    seconds = time.monotonic() - begin_s
    return [
        SinkResult(
            sink.sink.name,
            sink.sink.format,
            None if sink.sink.format == "console" else count.rows,
            len(count.rows_of),
            seconds,
        )
        for sink, count in zip(sinks, counts, strict=True)
    ]


@attrs.define
class StreamCount:
    """The numbers of rows and micro-batches that the stream into one sink has written in a run of a pipeline."""

    rows_of: dict[int, int] = attrs.field(factory=dict)
    """Number of rows written in each micro-batch that had input, keyed by the micro-batch's number."""
    rows_per_s: float = 0.0
    """Number of rows per second that the sink wrote in the last micro-batch."""

    @property
    def rows(self) -> int:
        return sum(self.rows_of.values())

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {len(self.rows_of):,} batches, {self.rows_per_s:,.0f} rows/s"

    def look_at(self, query: StreamingQuery) -> None:
        """Add the rows of a streaming query's latest micro-batches to the counts, from the query's progress reports."""
        for report in query.recentProgress:
            written = _observed_rows(report["observedMetrics"].get(ROWS))
            read = sum(int(source["numInputRows"] or 0) for source in report["sources"])
            if read or written:
                self.rows_of[int(report["batchId"])] = written
                self.rows_per_s = float(report["processedRowsPerSecond"] or 0.0)


def _observed_rows(observed: Any) -> int:
    """Return the number of rows in an observed metric of Spark; 0 if the metric is missing.

    The metric always has one value, but its Python type depends on the session. In a session of this process the metric is a
    ``Row``. Through Spark Connect the metric is a ``Row`` that was made from the server's JSON, and its fields may have no
    names. In older versions of PySpark the metric is a dictionary.
    """
    if observed is None:
        return 0
    values = list(observed.values()) if isinstance(observed, Mapping) else list(observed)
    while len(values) and isinstance(values[0], (list, tuple, Mapping)):
        values = list(values[0].values()) if isinstance(values[0], Mapping) else list(values[0])
    return next((value for value in values if isinstance(value, int)), 0)


def _raise_failed(sinks: Sequence[BoundSink], queries: Sequence[StreamingQuery]) -> None:
    for sink, query in zip(sinks, queries, strict=True):
        with _named(sink):
            failure = query.exception()
            if failure is not None:
                raise failure


@contextlib.contextmanager
def _named(sink: BoundSink) -> Iterator[None]:
    """Turn a Spark error that is raised in the ``with`` block into a PipelineError with the sink's name."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        said = f"sink '{sink.sink.name}': {first_words(error)}"
        raise PipelineError(sink.loaded.redactor.clean(said)) from error

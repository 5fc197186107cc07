"""Runs a planned pipeline: one write per sink, or one streaming query per sink, each with a checkpoint of its own."""

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
"""The name of the count that every sink's rows are observed by."""


class PipelineError(FlintError):
    """A pipeline has failed while it ran; says which sink, and Spark's own first words."""


@attrs.frozen
class SinkResult:
    """What became of one sink."""

    name: str
    format: str
    rows: int | None
    """Written in this run; None where nothing tells: on the console, and with ``mode: ignore``."""
    batches: int
    """How many micro-batches; 1 for a batch, 0 where nothing was written."""
    seconds: float


@attrs.frozen
class PipelineResult:
    """What a run has done."""

    name: str
    streaming: bool
    sinks: tuple[SinkResult, ...]


def bound_sinks(planned: PlannedPipeline, show: ShowRows = print) -> list[BoundSink]:
    """Return the pipeline's sinks, checked.

    Raises:
        ConfigError: one could not be written; names the line.
    """
    sinks = [BoundSink(planned, place, show) for place in range(len(planned.loaded.pipeline.sinks))]
    for sink in sinks:
        sink.check()
    return sinks


def run(planned: PlannedPipeline, *, show: ShowRows = print, bars: Progress | None = None) -> PipelineResult:
    """Run a pipeline to its end; one with trigger ``processingTime`` until it is stopped.

    Args:
        planned: the pipeline.
        show: called with what console sinks have.
        bars: where tasks of batches and rows of streams are shown; None for nowhere.

    Raises:
        ConfigError: a sink could not be written.
        PipelineError: a sink has failed. Streams into the other sinks are stopped.
        KeyboardInterrupt: it was interrupted; the streams are stopped, and continue from their checkpoints.
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
    # Of the console only the first rows are asked for, and what Spark passes over in silence is never counted: waiting for the
    # count would last for ever.
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
            # What Spark says of the tasks that it now ends is long, loud, and about nothing that went wrong.
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
    """What a stream has done in this run."""

    rows_of: dict[int, int] = attrs.field(factory=dict)
    """Rows written of each batch that had any input."""
    rows_per_s: float = 0.0
    """How fast the last batch was."""

    @property
    def rows(self) -> int:
        return sum(self.rows_of.values())

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {len(self.rows_of):,} batches, {self.rows_per_s:,.0f} rows/s"

    def look_at(self, query: StreamingQuery) -> None:
        """Take in what the query says about its latest batches."""
        for report in query.recentProgress:
            written = _observed_rows(report["observedMetrics"].get(ROWS))
            read = sum(int(source["numInputRows"] or 0) for source in report["sources"])
            if read or written:
                self.rows_of[int(report["batchId"])] = written
                self.rows_per_s = float(report["processedRowsPerSecond"] or 0.0)


def _observed_rows(observed: Any) -> int:
    """Return the count out of what Spark says was observed; 0 where it says nothing.

    In a session of this process that is a row with the name of the count, through Spark Connect one made of the server's JSON,
    whose names may be missing, and of older versions a dict. There is one value in any case.
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
    """Report what Spark raises in this block with the sink's name."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        said = f"sink '{sink.sink.name}': {first_words(error)}"
        raise PipelineError(sink.loaded.redactor.clean(said)) from error

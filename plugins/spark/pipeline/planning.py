"""Makes a pipeline's Spark session, and the data frames of its source, of its decoded messages and of its SQL steps. Spark
analyzes every query, but reads no message."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from flintmq.config.errors import ConfigError
from flintmq.core.errors import FlintError
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.pipeline.decoding import decoded, rejected
from flintmq.plugins.spark.pipeline.load import LoadedPipeline
from flintmq.plugins.spark.pipeline.models import Watermark
from flintmq.plugins.spark.pipeline.references import require
from flintmq.plugins.spark.schema import BAD_RECORD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@attrs.frozen
class PlannedPipeline:
    """A pipeline that Spark has analyzed, with its data frames. Only the thread of the Spark session may use the object."""

    loaded: LoadedPipeline
    """The pipeline as it was loaded from its file or text."""
    frames: Mapping[str, DataFrame]
    """Data frames of all views, keyed by the view's name, in the order in which the views are made."""

    def frame_of(self, place: int) -> DataFrame:
        """Return the data frame whose rows a sink of the pipeline writes. ``place`` is the index of the sink."""
        return self.frames[self.loaded.pipeline.sinks[place].view or self.loaded.pipeline.views[-1]]

    @property
    def last(self) -> DataFrame:
        """The data frame of the pipeline's last view."""
        return self.frames[self.loaded.pipeline.views[-1]]

    def explain(self, place: int) -> str:
        """Return Spark's plan for the data frame of a pipeline's sink. Secrets are removed from the text."""
        written = io.StringIO()
        with contextlib.redirect_stdout(written):
            self.frame_of(place).explain(mode="formatted")
        return self.loaded.redactor.clean(written.getvalue().strip())


def check_source(loaded: LoadedPipeline) -> dict[str, str]:
    """Check the options of a pipeline's source, and return the options with their secrets. This check does not need Spark.

    Raises:
        ConfigError: an option is unknown or has an unusable value. The error has the option's line.
    """
    options = loaded.revealed("source", loaded.pipeline.source)
    with source_placed(loaded, options):
        parsed = ReadOptions.parse(options)
    if parsed.bad_records == "keep" and BAD_RECORD not in parsed.columns:
        raise loaded.error(
            "source.columns",
            f"'source.columns' lacks {BAD_RECORD}, which marks bad records: add it, or remove badRecords",
        )
    return options


@contextlib.contextmanager
def source_placed(loaded: LoadedPipeline, options: Mapping[str, str]) -> Iterator[None]:
    """Turn errors about a pipeline's source that are raised in the ``with`` block into a ConfigError. The ConfigError has the
    line of the option that the original error names."""
    try:
        yield
    except FlintError as error:
        if isinstance(error, ConfigError):
            raise
        named = named_option(options, str(error))
        key = f"source.{named}" if named else "source"
        raise loaded.error(key, f"'{key}': {error}") from error


def named_option(options: Mapping[str, str], error: str) -> str | None:
    """Return the name of the option that the text of an error is about; None if no option is found.

    The function first looks for an option's name after the word "option", and then for an option's name anywhere in the text.
    If both searches fail, it looks for an option whose value is at the beginning of the text.
    """
    for before in (r"\boption '?", r"\b"):
        for name in options:
            if re.search(rf"{before}{re.escape(name)}\b", error, re.IGNORECASE):
                return name
    return next((name for name, value in options.items() if value and error.startswith(value)), None)


def plan(spark: SparkSession, loaded: LoadedPipeline) -> PlannedPipeline:
    """Have Spark analyze a pipeline, and return its data frames.

    Args:
        spark: the session. If a temporary view of the session has the name of a view of the pipeline, it is replaced.
        loaded: the pipeline.

    Raises:
        ConfigError: a secret, a schema or a column is missing, or a query is not valid. The error names the line in the
            pipeline's file.
    """
    pipeline = loaded.pipeline
    options = check_source(loaded)
    reader = spark.readStream if pipeline.is_streaming else spark.read
    path = options.pop("path", None)
    with analysed(loaded, "source"):
        messages = reader.format("flintmq").options(**options).load(path)
    with analysed(loaded, "decode"):
        first = decoded(messages, loaded)
        bad = rejected(messages, loaded) if pipeline.decode.on_error == "reject" else None
    if pipeline.stream is not None and pipeline.stream.watermark is not None:
        first = _late(first, pipeline.stream.watermark, loaded, "stream.watermark")
    frames = {pipeline.decode.view: first}
    if bad is not None:
        frames = {pipeline.decode.rejects: bad, **frames}
        bad.createOrReplaceTempView(pipeline.decode.rejects)
    first.createOrReplaceTempView(pipeline.decode.view)
    for place, step in enumerate(pipeline.steps):
        key = f"steps[{place}]"
        text = step.sql if step.sql_file is None else loaded.read_text(f"{key}.sql_file", step.sql_file)
        with analysed(loaded, f"{key}.sql" if step.sql_file is None else f"{key}.sql_file"):
            frame = spark.sql(str(text).strip().removesuffix(";"))
            if not frame.columns:
                raise loaded.error(f"{key}.sql", f"'{key}.sql' is not a query: it gives no columns")
        if step.watermark is not None:
            frame = _late(frame, step.watermark, loaded, f"{key}.watermark")
        frames[step.view] = frame.persist() if step.cache else frame
        frames[step.view].createOrReplaceTempView(step.view)
    return PlannedPipeline(loaded, frames)


def _late(frame: DataFrame, watermark: Watermark, loaded: LoadedPipeline, key: str) -> DataFrame:
    with analysed(loaded, f"{key}.column"):
        return frame.withWatermark(watermark.column, f"{watermark.delay_ms} milliseconds")


@contextlib.contextmanager
def analysed(loaded: LoadedPipeline, key: str) -> Iterator[None]:
    """Turn a Spark analysis error that is raised in the ``with`` block into a ConfigError. The ConfigError has the line of the
    key ``key`` in the pipeline's file, and its text contains no secrets."""
    from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException

    try:
        with loaded.placed(key):
            yield
    except (AnalysisException, ParseException, IllegalArgumentException) as error:
        raise loaded.error(key, f"'{key}': {first_words(error)}") from error


def first_words(error: BaseException) -> str:
    """Return the reason in the text of a Spark error, without Spark's plan and the stack trace."""
    text = str(error)
    for begin in ("\n== SQL", ";\n", "\n\tat ", "\n\nJVM stacktrace"):
        text = text.partition(begin)[0]
    python = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception): (.+)$", text, re.MULTILINE)
    # If a stream reader cannot be created, PySpark 4.3 calls reader.stop(), which raises "cannot access local variable".
    # PySpark's error "cannot access local variable" is skipped, because only the error before it explains the failure.
    python = [said for said in python if not said.startswith("cannot access local variable")]
    if "Traceback (most recent call last)" in text and python:
        text = python[-1]
    return " ".join(text.split())[:1_000]


@contextlib.contextmanager
def pipeline_session(loaded: LoadedPipeline, master: str | None = None) -> Iterator[SparkSession]:
    """Yield a Spark session for a pipeline, and stop it afterwards.

    Args:
        loaded: the pipeline. The master in its ``spark`` section applies if ``master`` is None.
        master: see :class:`~flintmq.plugins.spark.pipeline.models.SparkSection`.

    Raises:
        ConfigError: PySpark is not installed, or a secret is missing.
        RuntimeMissingError: Java is not installed.
    """
    require("spark", "a pipeline")
    from pyspark.sql import SparkSession

    from flintmq.plugins.spark import register, session

    chosen = master or loaded.pipeline.spark.master
    conf = loaded.revealed("spark.conf", loaded.pipeline.spark.conf)
    conf = {"spark.app.name": loaded.pipeline.name, "spark.ui.showConsoleProgress": "false", **conf}
    if loaded.pipeline.is_streaming:
        # Adaptive execution is off for streams, because Spark would switch it off itself, and log a warning for each sink.
        conf = {"spark.sql.adaptive.enabled": "false", **conf}
    if master is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        # If spark-submit has started the pipeline, the session uses the master and the settings of spark-submit.
        spark = SparkSession.builder.config(map=conf).getOrCreate()
        register(spark)
    else:
        chosen = chosen or "local[*]"
        spark = session(master=chosen, conf={**_few_partitions(chosen), **conf})
    try:
        yield spark
    finally:
        spark.stop()


def _few_partitions(master: str) -> dict[str, str]:
    """Return the setting that gives a local session as many shuffle partitions as cores; empty for other sessions. Spark's
    default of 200 slows each batch down by seconds."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if found is None:
        return {}
    cores = (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
    return {"spark.sql.shuffle.partitions": str(max(1, cores))}

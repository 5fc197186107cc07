"""A pipeline's session, and its data frames: source, decode, steps. Spark analyses every query here, and nothing is read."""

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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@attrs.frozen
class PlannedPipeline:
    """A pipeline that Spark has understood. Belongs to its session's thread."""

    loaded: LoadedPipeline
    """What was asked for."""
    frames: Mapping[str, DataFrame]
    """Every view's rows, by name, in order."""

    def frame_of(self, place: int) -> DataFrame:
        """Return what the sink at a place takes."""
        return self.frames[self.loaded.pipeline.sinks[place].view or self.loaded.pipeline.views[-1]]

    @property
    def last(self) -> DataFrame:
        """The last view."""
        return self.frames[self.loaded.pipeline.views[-1]]

    def explain(self, place: int) -> str:
        """Return the plan of what a sink takes, as Spark writes it, without secrets."""
        written = io.StringIO()
        with contextlib.redirect_stdout(written):
            self.frame_of(place).explain(mode="formatted")
        return self.loaded.redactor.clean(written.getvalue().strip())


def check_source(loaded: LoadedPipeline) -> dict[str, str]:
    """Return the source's options, checked, secrets filled in. Needs no Spark.

    Raises:
        ConfigError: an option is unknown or has a value that cannot be used; names its line.
    """
    options = loaded.revealed("source", loaded.pipeline.source)
    with source_placed(loaded, options):
        ReadOptions.parse(options)
    return options


@contextlib.contextmanager
def source_placed(loaded: LoadedPipeline, options: Mapping[str, str]) -> Iterator[None]:
    """Turn what is wrong with the source in here into a ``ConfigError`` with the line of the option that it names."""
    try:
        yield
    except FlintError as error:
        if isinstance(error, ConfigError):
            raise
        named = named_option(options, str(error))
        key = f"source.{named}" if named else "source"
        raise loaded.error(key, f"'{key}': {error}") from error


def named_option(options: Mapping[str, str], error: str) -> str | None:
    """Return which of the options an error is about: one that it calls so, else one that it names, else one whose value it
    begins with."""
    for before in (r"\boption ", r"\b"):
        for name in options:
            if re.search(rf"{before}{re.escape(name)}\b", error, re.IGNORECASE):
                return name
    return next((name for name, value in options.items() if value and error.startswith(value)), None)


def plan(spark: SparkSession, loaded: LoadedPipeline) -> PlannedPipeline:
    """Has Spark analyse a pipeline.

    Args:
        spark: the session; its temporary views of the pipeline's names are replaced.
        loaded: the pipeline.

    Raises:
        ConfigError: a secret, a schema or a column is missing, or a query is wrong; names the line.
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
    """Turn what Spark finds wrong in here into a ``ConfigError`` with the line of a key, without secrets."""
    from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException

    try:
        with loaded.placed(key):
            yield
    except (AnalysisException, ParseException, IllegalArgumentException) as error:
        raise loaded.error(key, f"'{key}': {first_words(error)}") from error


def first_words(error: BaseException) -> str:
    """Return what went wrong, of all that Spark says: not the plan, not the stack."""
    text = str(error)
    for begin in ("\n== SQL", ";\n", "\n\tat ", "\n\nJVM stacktrace"):
        text = text.partition(begin)[0]
    python = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception): (.+)$", text, re.MULTILINE)
    # PySpark 4.3 trips over its own variable where a stream's source cannot be made; the reason stands before that.
    python = [said for said in python if not said.startswith("cannot access local variable")]
    if "Traceback (most recent call last)" in text and python:
        text = python[-1]
    return " ".join(text.split())[:1_000]


@contextlib.contextmanager
def pipeline_session(loaded: LoadedPipeline, master: str | None = None) -> Iterator[SparkSession]:
    """Give a Spark session for a pipeline, and end it afterwards.

    Args:
        loaded: the pipeline, whose ``spark`` section counts where the command line says nothing.
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
    if loaded.pipeline.is_streaming:  # Spark switches it off itself then, and warns of that for each sink
        conf = {"spark.sql.adaptive.enabled": "false", **conf}
    if master is None and "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit says master and settings
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
    """Return as many partitions behind a shuffle as a local session has cores: Spark's 200 cost a stream seconds a batch."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if found is None:
        return {}
    cores = (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
    return {"spark.sql.shuffle.partitions": str(max(1, cores))}

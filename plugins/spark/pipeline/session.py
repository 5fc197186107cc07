"""The session a pipeline runs in: its own, the one ``spark-submit`` made, or one of Spark Connect."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from flintmq.plugins.spark.pipeline.load import LoadedPipeline
from flintmq.plugins.spark.pipeline.planning import revealed
from flintmq.plugins.spark.pipeline.references import Redactor
from flintmq.plugins.spark.pipeline.requirements import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"


def is_submitted(environ: Mapping[str, str] | None = None) -> bool:
    """Whether ``spark-submit`` started this process: the session's master and settings are the command line's then."""
    return "PYSPARK_GATEWAY_PORT" in (os.environ if environ is None else environ)


@contextlib.contextmanager
def pipeline_session(loaded: LoadedPipeline, master: str | None = None) -> Iterator[SparkSession]:
    """A session for a pipeline, ended afterwards.

    Args:
        loaded: the pipeline, whose ``spark`` section counts where the command line says nothing.
        master: see :class:`~flintmq.plugins.spark.pipeline.models.SparkSection`.

    Raises:
        ConfigError: PySpark is not installed, or a secret is missing.
        RuntimeMissingError: Java is not installed.
    """
    require("spark", "a pipeline")
    from flintmq.plugins.spark import session

    chosen = master or loaded.pipeline.spark.master
    conf = revealed(loaded, "spark.conf", loaded.pipeline.spark.conf, Redactor())
    conf = {"spark.app.name": loaded.pipeline.name, "spark.ui.showConsoleProgress": "false", **conf}
    if chosen is not None and chosen.startswith("sc://"):
        spark = _connected(chosen, conf)
    elif is_submitted() and master is None:
        spark = _submitted(conf)
    else:
        spark = session(master=chosen or DEFAULT_MASTER, conf=conf)
    try:
        yield spark
    finally:
        spark.stop()


def _submitted(conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    from flintmq.plugins.spark import register

    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark


def _connected(address: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    from flintmq.plugins.spark import register

    builder = SparkSession.builder.remote(address)
    for name, value in conf.items():
        if name.startswith("spark.sql."):  # what else there is belongs to the server
            builder = builder.config(name, value)
    spark: SparkSession = builder.create()
    register(spark)
    return spark

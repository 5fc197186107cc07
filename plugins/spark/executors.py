"""Whether the Pythons of a cluster, or of a Spark Connect server, can run the data source: asked before a query fails."""

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
"""How many tasks look around: each executor gets some of them where there are not more executors."""
TIMEOUT_S: Final = 120.0
"""How long executors are waited for: a cluster may have none to give yet."""


@attrs.frozen
class WorkerPython:
    """The Python that a task runs in."""

    host: str
    folder: str
    """The working folder: on a standalone cluster it ends with the application's and the executor's id."""
    executable: str
    version: str
    missing: tuple[str, ...]
    """Modules that cannot be imported there."""

    def __str__(self) -> str:
        return f"{self.executable} (Python {self.version}) on {self.host}, in {self.folder}"


def check_executors(spark: Any, needed: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
    """Refuse a session whose executors run a Python in which the data source cannot be imported.

    It runs a small job. Where no executor comes in time the question stays open, with a warning.

    Args:
        spark: a SparkSession of a cluster, or of Spark Connect.
        needed: modules that must be there.
        timeout_s: how long the job may take.

    Raises:
        RuntimeMissingError: what is missing, in which Python of which executor, and what to do about it.
    """
    lacking = [one for one in worker_pythons(spark, needed, timeout_s) if one.missing]
    if lacking:
        first = lacking[0]
        more = f", and {len(lacking) - 1} more like it" if len(lacking) > 1 else ""
        raise RuntimeMissingError(
            f"Spark's executors run {first}{more}: {' and '.join(first.missing)} cannot be imported there "
            "(ModuleNotFoundError). Install flintmq[spark] in that Python on every worker, or name one that has it: with "
            "PYSPARK_PYTHON in the environment of the driver (through Spark Connect, of the server)"
        )


def worker_pythons(spark: Any, needed: Sequence[str], timeout_s: float = TIMEOUT_S) -> list[WorkerPython]:
    """Return the Pythons that tasks of a session run in; empty where none has answered in time.

    Raises:
        RuntimeMissingError: an executor cannot start its Python, or it is of another version than this one.
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
        told = sql.udf(_looker(tuple(needed)), "string", useArrow=False)  # a worker without pyarrow runs no other
        rows = spark.range(0, TASKS, 1, TASKS).select(told("id").alias("told")).collect()
    except PySparkException as error:
        if late.is_set():
            log.warning(
                "spark.executors_silent",
                "no executor has answered in %(seconds).0f s: not known whether flintmq is installed there",
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
    """Return what a task does. A function in a function is sent as it is: this module need not be there."""

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

    look.__annotations__ = {}  # as text, which they are here, PySpark warns of them
    return look


def _explained(error: Exception) -> Exception:
    """Return what to say where a task could not begin; the error itself where it is about something else."""
    for line in str(error).splitlines():
        if "Cannot run program" in line or "PYTHON_VERSION_MISMATCH" in line:
            said = line[max(line.find("Cannot run program"), line.find("[PYTHON_VERSION_MISMATCH]"), 0) :].strip()
            return RuntimeMissingError(
                f"Spark's executors cannot run this program's tasks: {said[:500]}. Name a Python that every worker has, of the "
                "driver's version and with flintmq[spark], with PYSPARK_PYTHON in the environment of the driver"
            )
    return error

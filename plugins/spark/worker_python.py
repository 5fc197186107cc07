"""Which Python Spark's workers run, and whether this package is there: known before a worker fails to unpickle the source."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from flintmq.plugins.spark.errors import RuntimeMissingError
from flintmq.plugins.spark.executors import check_executors

_NEEDED: Final = ("flintmq", "pyarrow", "numpy")
_LOOK: Final = "import importlib.util, sys; print(*(n for n in sys.argv[1:] if importlib.util.find_spec(n) is None))"
_LOOK_TIMEOUT_S: Final = 60.0


def check_worker_python(spark: Any) -> None:
    """Refuse a session whose workers run a Python in which the data source cannot be imported.

    Spark starts ``python3`` from PATH unless PYSPARK_PYTHON names another: not the Python of a virtual environment that is not
    on PATH. The Pythons of a cluster and of a Spark Connect server are asked by a small job
    (:mod:`~flintmq.plugins.spark.executors`). One that Spark unpacks on this machine (``spark.archives``) is not looked at.

    Args:
        spark: a SparkSession.

    Raises:
        RuntimeMissingError: what is missing, in which Python, and what to do about it.
    """
    context = getattr(spark, "_sc", None)  # Spark Connect has none
    if context is None or not context.master.startswith("local"):
        check_executors(spark, _NEEDED)
        return
    if context.getConf().get("spark.archives", ""):
        return
    python: str = context.pythonExec
    found = shutil.which(python)
    if found is not None and _is_this_python(Path(found)):
        return
    needed = [name for name in _NEEDED if name != "flintmq" or not context._python_includes]  # --py-files may bring it
    problem = _problem(found, needed, context.environment) if found is not None else "which is not there"
    if problem:
        where = python if found in (None, python) else f"{python} ({found})"
        raise RuntimeMissingError(
            f"Spark's Python workers run {where}, {problem}: start with PYSPARK_PYTHON={sys.executable} in the environment, or "
            "let flintmq.plugins.spark.session() make the Spark session, before anything else makes one"
        )


def _is_this_python(found: Path) -> bool:
    """Links lead out of a virtual environment: it is the folder that says which one it is."""
    mine = Path(sys.executable)
    return found.absolute().parent == mine.absolute().parent and found.resolve() == mine.resolve()


def _problem(python: str, needed: list[str], environment: dict[str, str]) -> str:
    """Return why a Python cannot run the source; empty when it can."""
    try:
        looked = subprocess.run(
            [python, "-c", _LOOK, *needed],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=_LOOK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"which does not run ({error})"
    if looked.returncode != 0:
        return f"which does not run ({' '.join(looked.stderr.split())[-200:]})"
    missing = looked.stdout.split()
    return f"in which {' and '.join(missing)} cannot be imported (ModuleNotFoundError)" if missing else ""


@functools.cache
def settle() -> None:
    """Take everything imported so far out of the garbage collector's sight.

    Spark collects garbage after every task; with pyarrow and numpy imported that walks 60,000 objects that never die, and
    makes small tasks five times as slow (docs/spark.md). What is garbage now must go before.
    """
    gc.collect()
    gc.freeze()

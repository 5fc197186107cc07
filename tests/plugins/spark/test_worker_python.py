"""A virtual environment that is not on PATH is how people try a package: what fails then must say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.plugins.spark import worker_python
from flintmq.plugins.spark.errors import RuntimeMissingError
from flintmq.plugins.spark.worker_python import check_worker_python


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python of this version with nothing installed."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    return tmp_path / "bare" / "bin" / "python3"


def session(python: str, master: str = "local[2]", **conf: str) -> Any:
    """As much of a Spark session as is looked at."""
    return SimpleNamespace(
        _sc=SimpleNamespace(master=master, pythonExec=python, environment={}, _python_includes=[], getConf=lambda: conf)
    )


def refusal(spark: Any) -> str:
    with pytest.raises(RuntimeMissingError) as raised:
        check_worker_python(spark)
    return str(raised.value)


def test_the_error_about_packages_missing_for_spark_workers_names_the_python_of_the_workers(
    bare_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain SparkSession uses that Python; the error names it, the missing packages and both remedies."""
    monkeypatch.setenv("PATH", str(bare_python.parent))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    said = refusal(session("python3"))
    assert said.startswith(
        f"Spark's Python workers run python3 ({bare_python}), in which flintmq and pyarrow and numpy cannot"
    )
    assert "ModuleNotFoundError" in said
    assert f"PYSPARK_PYTHON={sys.executable}" in said
    assert "flintmq.plugins.spark.session()" in said


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("no-such-python", "run no-such-python, which is not there:"),
        ("/bin/false", "run /bin/false, which does not run"),
    ],
)
def test_a_nonexistent_python_for_spark_workers_is_refused(python: str, said: str) -> None:
    """The value of ``PYSPARK_PYTHON`` can be misspelled."""
    assert said in refusal(session(python))


def test_a_spark_session_is_accepted_if_the_python_of_its_workers_has_the_required_packages(
    bare_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This very Python; another one with the packages on its path; and what cannot be looked at from here."""
    check_worker_python(session(sys.executable))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name in ("flintmq", "pyarrow", "numpy"):
        (tmp_path / f"{name}.py").touch()
    reached = session(str(bare_python))
    reached._sc.environment = {"PYTHONPATH": str(tmp_path)}
    check_worker_python(reached)
    check_worker_python(session("./env/bin/python", **{"spark.archives": "env.tar.gz#env"}))


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://host", None])
def test_the_python_of_spark_cluster_workers_is_checked_on_the_executors_and_not_on_the_driver(
    monkeypatch: pytest.MonkeyPatch, master: str | None
) -> None:
    """Nothing is known of them here: neither of executors, nor of a Spark Connect server (None)."""
    asked: list[tuple[Any, Any]] = []
    monkeypatch.setattr(worker_python, "check_executors", lambda spark, needed: asked.append((spark, needed)))
    spark = SimpleNamespace() if master is None else session("python3-of-the-cluster", master)
    check_worker_python(spark)
    assert asked == [(spark, ("flintmq", "pyarrow", "numpy"))]


def test_spark_workers_without_pyarrow_are_refused_even_if_they_receive_flintmq_as_a_zip_file(
    bare_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--py-files flintmq.zip`` is unpacked by Spark; pyarrow must be installed."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    spark = session(str(bare_python))
    spark._sc._python_includes = ["flintmq.zip"]
    assert "in which pyarrow and numpy cannot be imported" in refusal(spark)


PLAIN = """
import sys
from pyspark.sql import SparkSession
from flintmq.plugins.spark import {name}
conf = {{"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}}
builder = SparkSession.builder.master("local[1]")
for key, value in conf.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
try:
    {call}
except Exception as error:
    print(type(error).__name__, error)
finally:
    spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("name", "call"), [("register", "register(spark)"), ("session", "session('local[1]')")])
def test_flintmq_refuses_a_spark_session_whose_workers_run_a_python_without_flintmq(
    bare_python: Path, name: str, call: str
) -> None:
    """The session exists before its Python can be chosen, and a query would end in a traceback of the worker."""
    pytest.importorskip("pyspark", reason="needs PySpark")
    from flintmq.plugins.spark.session import find_java

    try:
        home = find_java()
    except RuntimeMissingError as error:
        pytest.skip(str(error))
    environment = {key: value for key, value in os.environ.items() if key not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    environment |= {"JAVA_HOME": str(home), "PATH": f"{bare_python.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN.format(name=name, call=call)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    said = done.stdout.strip().splitlines()[-1:]
    assert said, done.stderr[-2000:]
    assert said[0].startswith(
        f"RuntimeMissingError Spark's Python workers run python3 ({bare_python}), in which flintmq and"
    )
    assert f"PYSPARK_PYTHON={sys.executable}" in said[0]

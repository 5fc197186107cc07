"""What executors that cannot run the source make of a session: an error that names executor, Python and what is missing."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark")

from pyspark.errors import PySparkException
from pyspark.sql import functions

from flintmq.plugins.spark.errors import RuntimeMissingError
from flintmq.plugins.spark.executors import check_executors, worker_pythons

sent: list[Any] = []
"""The functions that tasks would run."""


class FakeSession:
    """A session whose tasks run here, or not at all."""

    def __init__(self, error: Exception | None = None, *, waits: bool = False) -> None:
        self._error = error
        self._waits = waits
        self._interrupted = threading.Event()
        self.tags: list[str] = []

    def addTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        self.tags.append(tag)

    def removeTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        self.tags.remove(tag)

    def interruptTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        assert tag in self.tags
        self._interrupted.set()

    def range(self, _start: int, end: int, _step: int, _tasks: int) -> Any:
        def collect() -> list[Any]:
            if self._waits:
                assert self._interrupted.wait(30)
                raise PySparkException("[JOB_CANCELLED] by tag")
            if self._error is not None:
                raise self._error
            return [SimpleNamespace(told=sent[-1](number)) for number in range(end)]

        return SimpleNamespace(select=lambda _column: SimpleNamespace(collect=collect))


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function that tasks would run is called here."""

    class Column:
        def alias(self, _name: str) -> Column:
            return self

    def udf(function: Any, _type: str, *, useArrow: bool) -> Any:  # noqa: N803 - Spark's name
        assert not useArrow, "a worker without pyarrow could not run it"
        sent.append(function)
        return lambda _column: Column()

    monkeypatch.setattr(functions, "udf", udf)


def test_executors_with_all_needed_packages_pass_the_executor_check() -> None:
    """Each is asked once, and the session's tags are as before."""
    spark = FakeSession()
    check_executors(spark, ("json", "pickle"))
    (found,) = worker_pythons(spark, ("json",))
    assert found.missing == ()
    assert not spark.tags


def test_the_error_about_missing_packages_names_the_host_and_the_python_of_the_spark_executor() -> None:
    """A bare `No module named 'flintmq'` says none of it."""
    with pytest.raises(RuntimeMissingError) as raised:
        check_executors(FakeSession(), ("json", "no_such_module", "nor_this_one"))
    said = str(raised.value)
    assert f"{sys.executable} (Python {sys.version_info[0]}.{sys.version_info[1]}) on {socket.gethostname()}" in said
    assert str(Path.cwd()) in said
    assert "no_such_module and nor_this_one cannot be imported there" in said
    assert "flintmq[spark]" in said
    assert "PYSPARK_PYTHON" in said


@pytest.mark.parametrize(
    "line",
    [
        'java.io.IOException: Cannot run program "/no/python": error=2, No such file or directory',
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.11 than that in driver: 3.13",
    ],
)
def test_the_error_about_an_unusable_python_on_spark_executors_mentions_the_setting_pyspark_python(line: str) -> None:
    """Spark prints pages, of which a single line names the cause."""
    with pytest.raises(
        RuntimeMissingError, match=r"executors cannot run this program's tasks: .*PYSPARK_PYTHON"
    ) as raised:
        check_executors(FakeSession(PySparkException(f"Job aborted.\n{line}\n\tat java.base")), ("json",))
    assert line[line.find("Cannot") if "Cannot" in line else 0 :] in str(raised.value)


def test_an_executor_failure_other_than_a_missing_package_is_raised_unchanged() -> None:
    """A job fails for many reasons, which must not be reported as a missing package."""
    with pytest.raises(PySparkException, match="disk full"):
        check_executors(FakeSession(PySparkException("disk full")), ("json",))


def test_the_executor_check_ends_with_a_warning_after_its_timeout(caplog: pytest.LogCaptureFixture) -> None:
    """A cluster without free cores must not hang a program in its first line."""
    with caplog.at_level(logging.WARNING, "flintmq.spark"):
        check_executors(FakeSession(waits=True), ("flintmq",), timeout_s=0.01)
    assert "no executor has answered" in caplog.text


def test_the_executor_check_runs_on_an_executor_that_lacks_flintmq() -> None:
    """Spark's pickle takes the function by value: its module is what may be missing."""
    from pyspark import cloudpickle

    from flintmq.plugins.spark.executors import _looker

    raw = cloudpickle.dumps(_looker(("json",)))
    program = f"import pickle, sys; sys.modules['flintmq'] = None; print(pickle.loads({raw!r})(1))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["missing"] == []

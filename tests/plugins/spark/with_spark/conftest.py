"""A Spark session for all tests of a run, and what lies elsewhere in the tests: golden stores, brokers to be killed."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[3]
WORKER_START_S = 120
"""How long Python workers of tasks wait for Spark: with 15 s, tests fail beside work that wants the processors."""
sys.path[:0] = [str(TESTS / "integration"), str(Path(__file__).parent)]


def _missing() -> str:
    """What Spark needs and is not there; empty when all is."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed"
    from flintmq.plugins.spark.errors import RuntimeMissingError
    from flintmq.plugins.spark.session import find_java

    try:
        find_java()
    except RuntimeMissingError as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def needs_spark() -> None:
    """Skips where Spark cannot run, and fails there when FLINTMQ_REQUIRE_SPARK is set."""
    missing = _missing()
    if missing and os.environ.get("FLINTMQ_REQUIRE_SPARK") == "1":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For processes: in which ``flintmq`` is this checkout, whatever its folder is called, and workers have time to start."""
    checkout = tmp_path_factory.mktemp("checkout")
    (checkout / "flintmq").symlink_to(TESTS.parent)
    (checkout / "spark-defaults.conf").write_text(f"spark.python.authenticate.socketTimeout {WORKER_START_S}s\n")
    here = {"PYTHONPATH": str(checkout), "SPARK_CONF_DIR": str(checkout), "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **here}


@pytest.fixture(scope="session")
def spark(needs_spark: None, environment: dict[str, str]) -> Iterator[Any]:
    """One session with two cores, for all tests of the run."""
    from flintmq.plugins.spark import register, session

    os.environ |= {name: environment[name] for name in ("PYTHONPATH", "SPARK_CONF_DIR", "PYSPARK_PYTHON")}
    conf = {"spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR", "spark.sql.session.timeZone": "UTC"}
    made = session("local[2]", "flintmq tests", conf)
    register(made)
    yield made
    made.stop()


def _module(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def load_golden() -> Callable[[str], Any]:
    """Loads a golden store by name; skips where the golden data are absent."""
    load: Callable[[str], Any] = _module(TESTS / "golden" / "conftest.py", "flintmq_golden_conftest")._load
    return load


@pytest.fixture(autouse=True)
def no_process_stays() -> Iterator[None]:
    """What a failed test left running ends with it."""
    yield
    from broker_process import end_what_is_left

    end_what_is_left()

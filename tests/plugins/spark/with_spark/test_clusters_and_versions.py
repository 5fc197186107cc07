"""What the pages about Spark promise, on every PySpark that is supported and wherever tasks run; each time in a new process.

The program is ``contract_program.py``; the places are those of ``clusters.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark")
pytest.importorskip("fastavro", reason="the program decodes Avro")
pytest.importorskip("google.protobuf", reason="the program decodes Protobuf")
from clusters import PLACES, Place, java_home, standalone
from contract_program import CHAPTERS

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800)]

CHECKOUT = Path(__file__).resolve().parents[4]
PROGRAM = Path(__file__).with_name("contract_program.py")
OTHERS = ("4.0.5", "4.1.4", "4.2.1")
"""A version of each minor one before the newest, which is installed beside FlintMQ."""
REQUIRED = "4.0.5"
"""The one that .ci/run demands; of the others one can be offline."""
RUN_S = 1500.0

EVERYWHERE = [pytest.param(name, marks=[pytest.mark.xdist_group(name), pytest.mark.longest]) for name in PLACES]
"""With ``--longest``: each place costs minutes on two processors."""


def check(place: Place, python: Path, spark_home: Path, folder: Path, environment: dict[str, str]) -> None:
    """Every chapter holds."""
    java = {"JAVA_HOME": str(java_home())}
    environment = {**environment, **java, "PYSPARK_PYTHON": str(python)}
    environment.pop("SPARK_HOME", None)
    with place(spark_home, folder, environment) as url:
        done = subprocess.run(
            [str(python), str(PROGRAM), url, str(folder / "work-of-it")],
            capture_output=True,
            text=True,
            env=environment,
            timeout=RUN_S,
            check=False,
        )
    held = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("OK ")]
    assert done.returncode == 0, f"held: {held}\n{done.stdout[-1000:]}\n{done.stderr[-6000:]}"
    assert held == list(CHAPTERS)


@pytest.mark.parametrize("place", EVERYWHERE)
def test_the_spark_data_source_runs_on_a_standalone_cluster_and_with_spark_connect(
    needs_spark: None, environment: dict[str, str], tmp_path: Path, place: str
) -> None:
    """Tasks run in this process, on executors of a standalone cluster, or behind a Spark Connect server."""
    import pyspark

    if place == "connect":
        pytest.importorskip("grpc", reason="a client of Spark Connect needs pip install 'pyspark[connect]'")
    check(PLACES[place], Path(sys.executable), Path(pyspark.__file__).parent, tmp_path, environment)


def another_pyspark(folder: Path, version: str) -> tuple[Path, Path]:
    """The Python, and the PySpark in it, of an environment with all that is installed here but another PySpark."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    install = [
        str(python),
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        f"pyspark[connect]=={version}",
        "pandas<3",
    ]
    done = subprocess.run(install, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        reason = f"PySpark {version} cannot be installed: {done.stderr.strip()[-300:]}"
        if os.environ.get("FLINTMQ_REQUIRE_SPARK") == "1" and version == REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    (packages,) = folder.glob("lib/python3*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    # Behind its own packages come those that are installed here.
    (packages / "zz_others.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in others))
    return python, packages / "pyspark"


@pytest.mark.parametrize(
    ("version", "place"),
    [
        (REQUIRED, "local"),
        *[pytest.param(version, "local", marks=pytest.mark.longest) for version in OTHERS if version != REQUIRED],
        *[pytest.param(version, "connect", marks=pytest.mark.longest) for version in OTHERS],
        *[pytest.param(version, "standalone", marks=pytest.mark.longest) for version in OTHERS],
    ],
)
def test_the_spark_data_source_behaves_as_documented_with_each_supported_pyspark_version(
    needs_spark: None, environment: dict[str, str], tmp_path: Path, version: str, place: str
) -> None:
    """Most clusters do not run the newest version."""
    python, spark_home = another_pyspark(tmp_path / "venv", version)
    check(PLACES[place], python, spark_home, tmp_path, environment)


LACKING = """
import sys
from flintmq.plugins.spark import session
from flintmq.plugins.spark.errors import RuntimeMissingError
conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
try:
    session(sys.argv[1], "lacking", conf)
except RuntimeMissingError as error:
    print("SAID", error)
"""


@pytest.mark.longest
def test_the_error_about_executors_without_flintmq_names_executor_and_remedy(
    needs_spark: None, environment: dict[str, str], tmp_path: Path
) -> None:
    """The error comes before any query, and names the executor, its Python, the missing package and the remedy."""
    import pyspark

    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    environment = {**environment, "JAVA_HOME": str(java_home())}
    environment.pop("SPARK_HOME", None)
    workers: dict[str, Any] = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    driver = {**environment, "PYSPARK_PYTHON": str(bare / "bin" / "python"), "PYSPARK_DRIVER_PYTHON": sys.executable}
    with standalone(Path(pyspark.__file__).parent, tmp_path, workers) as url:
        done = subprocess.run(
            [sys.executable, "-c", LACKING, url], capture_output=True, text=True, env=driver, timeout=600, check=False
        )
    said = [line for line in done.stdout.splitlines() if line.startswith("SAID")]
    assert said, done.stderr[-4000:]
    assert f"Spark's executors run {bare / 'bin' / 'python'} (Python " in said[0]
    assert "flintmq and pyarrow and numpy cannot be imported there" in said[0]

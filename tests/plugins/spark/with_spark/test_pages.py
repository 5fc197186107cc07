"""The examples and commands of the pages about Spark do what the pages say, wherever Spark runs.

They are taken from the pages by ``pages_program.py``; the places are those of ``clusters.py``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs PySpark")
pytest.importorskip("deltalake", reason="the pages write Delta tables")
from clusters import PLACES, java_home
from pages_program import PAGES, blocks
from snippets import ROOT, snippets

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).with_name("pages_program.py")
RUN_S = 1700.0
ELSEWHERE = {"local": {"spark://", "sc://"}, "standalone": {"sc://"}, "connect": {"spark://", "spark-submit"}}
"""Which commands of docs/pipelines.md are for other places."""
IS_SAID = "accepts the address of a cluster. For Spark Connect, which `spark-submit` does not support"


@pytest.mark.longest
@pytest.mark.parametrize("place", [pytest.param(place, marks=pytest.mark.xdist_group(place)) for place in PLACES])
def test_spark_documentation_code_runs_in_local_mode_and_on_a_cluster_and_through_spark_connect(
    needs_spark: None, environment: dict[str, str], tmp_path: Path, place: str
) -> None:
    """Each block of the pages runs, streams included; a command that cannot run there is one of which the page says so."""
    import pyspark

    if place == "connect":
        pytest.importorskip("grpc", reason="a client of Spark Connect needs pip install 'pyspark[connect]'")
    home = Path(pyspark.__file__).parent
    environment = {**environment, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), str(home / "bin"), environment["PATH"]])
    environment.pop("SPARK_HOME", None)
    with PLACES[place](home, tmp_path, environment) as url:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), url, str(tmp_path / "reader")],
            capture_output=True,
            text=True,
            env=environment,
            timeout=RUN_S,
            check=False,
        )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    lines = done.stdout.splitlines()
    assert [line.removeprefix("RAN ") for line in lines if line.startswith("RAN ")] == [str(one) for one in blocks()]
    skipped = [line for line in lines if line.startswith("SKIPPED docs/pipelines.md ")]
    assert {re.search(r"spark-submit|spark://|sc://", line)[0] for line in skipped} == ELSEWHERE[place]  # type: ignore[index]


def test_every_code_block_of_the_documentation_about_spark_is_run_by_a_test() -> None:
    """Blocks that install packages or measure are the only exceptions."""
    left_out = {str(one) for page in PAGES[1:] for one in snippets(ROOT, page)} - {str(one) for one in blocks()}
    first_lines = {one.first_line for page in PAGES for one in snippets(ROOT, page) if str(one) in left_out}
    assert all("pip install" in line or "flintmq bench" in line for line in first_lines), first_lines
    assert IS_SAID in (ROOT / "docs" / "pipelines.md").read_text("utf-8")

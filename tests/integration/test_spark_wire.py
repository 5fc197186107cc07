"""Spark over the wire, whole: a query that is killed, and a broker that goes away and comes back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from spark_load import killed_four_times
from spark_missing import need_spark

import flintmq

sys.path.insert(0, str(Path(str(flintmq.__file__)).parent / "tests" / "plugins" / "spark"))

from served import Served

pytestmark = [pytest.mark.slow, pytest.mark.longest, pytest.mark.spark, pytest.mark.timeout(1_200)]


def test_a_query_that_is_killed_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Exactly once, from a FlintMQ broker under load: the query is killed four times in the middle of a batch."""
    need_spark()
    with Served(tmp_path / "served", "store.commit_log_file_bytes=16MiB") as served:
        killed_four_times(served.namesrv, "Stream", tmp_path)

"""``bench feed`` measures brokers with and without the dispatcher in turn, and says what the difference is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from .conftest import RunCommand


@pytest.mark.slow
def test_bench_feed_alternately_measures_brokers_with_and_without_the_spark_feed_dispatcher(
    cli: RunCommand, tmp_path: Path
) -> None:
    """Every run has its line, the last one has the ratios; nothing is left where it worked."""
    has_arrow = importlib.util.find_spec("pyarrow") is not None
    outcome = cli(
        "bench", "feed", "--rounds", 2, "--seconds", 0.3, "--warmup", 0.1, "--folder", tmp_path,
        "--landing" if has_arrow else "--no-landing", "--set", "store.commit_log_file_bytes=16MiB",
        "--set", "index.max_hash_slot_num=1000", "--set", "index.max_index_num=4000",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    *runs, result = outcome.json_lines
    labels = ["without", "feed", *(["landing"] if has_arrow else [])]
    assert [run["contender"] for run in runs] == labels + labels[::-1]
    assert (result["bench"], result["rounds"]) == ("feed", 2)
    assert all(result[label]["errors"] == 0 for label in labels)
    for label in labels[1:]:
        for name in ("cpu_ratio", "p50_ratio", "p99_ratio"):
            assert result[label][name]["mean"] > 0
        assert isinstance(result[label]["more_cpu_us"], float)
    assert list(tmp_path.iterdir()) == []

"""A broker under load with a landing zone, killed again and again: what was acknowledged has landed, and once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_kill import kill_again_and_again

pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")

LANDING = (
    "dispatchers=consume_queue,index,spark_feed",
    "spark_feed.landing.roll_interval_ms=20",
    "spark_feed.landing.roll_bytes=64KiB",
    "spark_feed.landing.stop_timeout_ms=60s",
)


def check(tmp_path: Path, strategy: str, engine: str, kills: int) -> None:
    """The files of the zone against what clients were told."""
    zone = tmp_path / "zone"
    promises = kill_again_and_again(
        tmp_path / "store",
        kills,
        f"flush.strategy={strategy}",
        *LANDING,
        f"spark_feed.landing.path={zone}",
        f"spark_feed.landing.engine={engine}",
    )
    landed: dict[tuple[int, int], bytes] = {}
    rows = 0
    for path in sorted(zone.glob("topic=Promises/date=*/part-*.parquet")):
        table = pq.read_table(path, columns=["queueId", "queueOffset", "body"])
        rows += table.num_rows
        keys = zip(table["queueId"].to_pylist(), table["queueOffset"].to_pylist(), strict=True)
        landed.update(zip(keys, table["body"].to_pylist(), strict=True))
    assert rows == len(landed), "a message has landed twice"
    stored = {(queue, at): body for queue, found in promises.verified.items() for at, body in enumerate(found)}
    assert landed == stored
    commits = sorted((zone / "_flintmq").glob("commit-*.json"))
    end = None
    for path in commits:
        commit = json.loads(path.read_text())
        assert end in (None, commit["start_offset_bytes"])
        end = commit["end_offset_bytes"]
    assert not list(zone.rglob(".part-*"))


def test_each_message_is_exported_exactly_once_even_if_the_broker_is_killed_during_the_export(tmp_path: Path) -> None:
    """The broker dies, and a moment later its landing process: no gap, no overlap."""
    check(tmp_path, "flush_real_time", "process", 2)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ["process", pytest.param("thread", marks=pytest.mark.longest)])
def test_killing_a_broker_many_times_during_export_to_a_landing_zone_loses_and_repeats_no_message(
    tmp_path: Path, engine: str
) -> None:
    """At eight random moments, starts among them."""
    check(tmp_path, "group_commit", engine, 8)

"""The same work on a real Spark session, in a process of its own, gives the same bytes; and Spark reads what has landed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from stores import config_of, index_of, queues_of

from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.plugins.spark.errors import RuntimeMissingError
from flintmq.plugins.spark.landing.lander import Lander
from flintmq.plugins.spark.landing.task import LandingTask, LogSource
from flintmq.plugins.spark.maintenance.audit import audit
from flintmq.plugins.spark.maintenance.compact import compact
from flintmq.plugins.spark.maintenance.engines import InlineEngine
from flintmq.plugins.spark.maintenance.export import export
from flintmq.plugins.spark.maintenance.rebuild import rebuild
from flintmq.plugins.spark.session import find_java, require_pyspark
from flintmq.programs.doctor.files import StoreFiles

PROGRAM = """
import json, sys
from pathlib import Path
import attrs
from flintmq.config.sections.models import BrokerConfig, IndexSection
from flintmq.dispatchers.consume_queue.delay_times import DelayLevels
from flintmq.programs.doctor.files import StoreFiles
from flintmq.plugins.spark.maintenance.audit import audit
from flintmq.plugins.spark.maintenance.compact import compact
from flintmq.plugins.spark.maintenance.engines import SparkEngine
from flintmq.plugins.spark.errors import MaintenanceError
from flintmq.plugins.spark.maintenance.export import export
from flintmq.plugins.spark.maintenance.rebuild import rebuild

work = Path(sys.argv[1])
store = work / "store"
config = BrokerConfig(index=IndexSection(max_hash_slot_num=16, max_index_num=64))
config = attrs.evolve(config, store=attrs.evolve(config.store, path=str(store), consume_queue_file_bytes=400))
levels = DelayLevels()
engine = SparkEngine("local[2]")
told = []
made = rebuild(
    store, config, {level: levels.delay_ms(level) for level in levels}, engine, out=work / "new",
    report=lambda *where: told.append(where),
)
export(StoreFiles(store), work / "export", engine, begin_ms=1_700_000_070_000, end_ms=1_700_000_090_000)
compact(StoreFiles(store), work / "compact", engine)
found = audit(StoreFiles(store), engine)
spark = engine._spark
zone = spark.read.parquet(str(work / "zone"))
landed = sorted((row.topic, row.physicalOffset) for row in zone.select("topic", "physicalOffset").collect())
days = sorted(str(row.date) for row in zone.select("date").distinct().collect())
first = store / "commitlog" / ("0" * 20)
raw = bytearray(first.read_bytes())
raw[4] ^= 0xFF
first.write_bytes(raw)
try:
    audit(StoreFiles(store), engine)
    error = ""
except MaintenanceError as caught:
    error = str(caught)
print("RESULT " + json.dumps({
    "made": attrs.asdict(made), "audit": found, "landed": landed, "days": days, "columns": zone.columns, "error": error,
    "told": sorted({name for name, done, total in told if done == total}),
}))
engine.close()
"""


def _missing() -> str:
    """Why Spark cannot run here; empty when it can."""
    try:
        require_pyspark()
        find_java()
    except RuntimeMissingError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_maintenance_jobs_give_the_same_results_on_spark_as_in_the_local_process(
    tmp_path: Path, template: Path
) -> None:
    """Rebuild, export, compaction and audit beside the engine ``inline``; an error that names file and position, without
    Spark's pages; topic and date as columns of a landing zone."""
    missing = _missing()
    if missing and os.environ.get("FLINTMQ_REQUIRE_SPARK") == "1":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    shutil.copytree(template, tmp_path / "store")
    source = LogSource(store_id="0" * 32, broker_name="broker-a", epochs=((1, 0),))
    task = LandingTask(
        path=str(tmp_path / "zone"), format="parquet", compression="zstd", topics=(), include_system_topics=False,
        log_folders=(str(tmp_path / "store" / "commitlog"),), source=source,
    )  # fmt: skip
    end = rebuild(
        tmp_path / "store", config_of(tmp_path / "store"), DELAY_LEVEL_MS, InlineEngine(), out=tmp_path / "inline"
    ).log_ends_at
    lander = Lander(task, 0)
    while lander._at < end:
        lander.land(end, 1 << 20)
    lander.close()
    files = StoreFiles(tmp_path / "store")
    export(files, tmp_path / "export-inline", InlineEngine(), begin_ms=1_700_000_070_000, end_ms=1_700_000_090_000)
    compact(files, tmp_path / "compact-inline", InlineEngine())
    checked = audit(files, InlineEngine())
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))[7:])
    assert queues_of(tmp_path / "new") == queues_of(tmp_path / "inline") == queues_of(template)
    assert index_of(tmp_path / "new") == index_of(tmp_path / "inline") == index_of(template)
    assert result["made"]["sequential_queues"] == []
    assert {"queues", "index", "verifying", "syncing"} <= set(result["told"])
    for name in ("export", "compact"):
        tables = [ds.dataset(tmp_path / folder, format="parquet").to_table() for folder in (name, f"{name}-inline")]
        assert tables[0].num_rows > 0
        assert tables[0].sort_by("physicalOffset").equals(tables[1].sort_by("physicalOffset"))
    assert {**result["audit"], "seconds": 0} == json.loads(json.dumps({**checked, "seconds": 0}))
    zone = ds.dataset(tmp_path / "zone", format="parquet", partitioning="hive").to_table()
    assert [tuple(row) for row in result["landed"]] == sorted(
        zip(zone["topic"].to_pylist(), zone["physicalOffset"].to_pylist(), strict=True)
    )
    assert result["days"] == sorted(set(zone["date"].to_pylist()))
    assert result["columns"][-2:] == ["topic", "date"]
    assert f"{0:020d}: no record at position 0" in result["error"]
    assert "Traceback" not in result["error"]

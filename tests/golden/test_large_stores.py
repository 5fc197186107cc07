"""Work on large stores, tried on small ones of the real broker: what it wrote is what is made, and what lands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.programs.doctor.files import StoreFiles
from flintmq.testing.store import snapshot

from .test_doctor import config_of

pytest.importorskip("pyarrow", reason="needs pyarrow")

from flintmq.plugins.spark.errors import MaintenanceError
from flintmq.plugins.spark.landing.lander import Lander
from flintmq.plugins.spark.landing.task import LandingTask, LogSource
from flintmq.plugins.spark.maintenance.audit import audit
from flintmq.plugins.spark.maintenance.engines import InlineEngine
from flintmq.plugins.spark.maintenance.rebuild import rebuild


def test_queues_and_index_rebuilt_from_the_log_equal_those_of_the_java_broker(clean: Any, tmp_path: Path) -> None:
    """Byte for byte; the store with extension files is refused, for what those hold cannot be told from the log."""
    root = clean.unpack(tmp_path / "store")
    if (root / "consumequeue_ext").exists():
        with pytest.raises(MaintenanceError, match="extension"):
            rebuild(root, config_of(root), DELAY_LEVEL_MS, InlineEngine(), out=tmp_path / "new")
        return
    rebuild(root, config_of(root), DELAY_LEVEL_MS, InlineEngine(), out=tmp_path / "new")
    assert snapshot(tmp_path / "new", "consumequeue") == snapshot(root, "consumequeue")
    made = [data for _name, data in sorted(snapshot(tmp_path / "new", "index").items())]
    assert made == [data for _name, data in sorted(snapshot(root, "index").items())]


def test_an_audit_of_a_store_of_rocketmq_finds_no_error(clean: Any, tmp_path: Path) -> None:
    """The counts equal those of the dump, all bodies are whole, and no queue has a hole."""
    found = audit(StoreFiles(clean.unpack(tmp_path)), InlineEngine())
    assert found["sound"], found
    assert found["records"] == len(clean.records)


def test_every_message_of_a_rocketmq_commit_log_is_exported_to_parquet_with_its_real_topic(
    clean: Any, tmp_path: Path
) -> None:
    """Delayed, transactional and retried messages land once, under the topic that consumers know."""
    import pyarrow.dataset as ds

    root = clean.unpack(tmp_path / "store")
    task = LandingTask(
        path=str(tmp_path / "zone"), format="parquet", compression="zstd", topics=(), include_system_topics=True,
        log_folders=(str(root / "commitlog"),),
        source=LogSource(store_id="0" * 32, broker_name="broker-a", epochs=((1, 0),)),
    )  # fmt: skip
    lander = Lander(task, 0)
    while lander._at < clean.log_end:
        lander.land(clean.log_end, 1 << 20)
    lander.close()
    table = ds.dataset(tmp_path / "zone", format="parquet", partitioning="hive").to_table()
    wanted = {entry["commitLogOffset"]: entry["topic"] for entry in clean.records if not int(entry["sysFlag"]) & 4}
    assert dict(zip(table["physicalOffset"].to_pylist(), table["topic"].to_pylist(), strict=True)) == wanted

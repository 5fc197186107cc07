"""What lands: every visible message once, in the right place, whatever is cut where."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from landing_log import SOURCE, LittleLog
from zone_files import offsets, on_disk, visible

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.io.os_disk import OS_DISK
from flintmq.plugins.spark.errors import BadRecordError
from flintmq.plugins.spark.landing.lander import Lander, ZoneLock
from flintmq.plugins.spark.landing.manifest import Manifest, committed_position
from flintmq.plugins.spark.landing.task import LandingError, LandingLossError, LandingTroubleError, LogSource
from flintmq.plugins.spark.landing.zones import date_folder, topic_folder


def land_all(lander: Lander, end: int, max_bytes: int = 1 << 20) -> None:
    """Lands up to a boundary."""
    before = -1
    while lander._at < end:
        assert lander._at > before, "no step forward"
        before = lander._at
        lander.land(end, max_bytes)


@pytest.mark.parametrize("max_bytes", [1, 700, 3_000, 1 << 20])
def test_every_message_that_consumers_can_read_is_written_to_the_landing_zone_once(
    tmp_path: Path, little_log: LittleLog, max_bytes: int
) -> None:
    """Steps of any size leave no gap and no overlap, and half and delayed messages do not land."""
    lander = Lander(little_log.task(tmp_path / "zone"), 0)
    try:
        land_all(lander, little_log.end, max_bytes)
        assert lander.committed_bytes <= little_log.end
    finally:
        lander.close()
    assert offsets(on_disk(tmp_path / "zone")) == sorted(little_log.landing)


def test_the_landing_writer_reads_no_record_beyond_the_given_log_position(
    tmp_path: Path, little_log: LittleLog
) -> None:
    """Records behind the limit may still be written; each end of an append is tried as the limit."""
    lander = Lander(little_log.task(tmp_path / "zone"), 0)
    try:
        for end in little_log.ends[::4]:
            land_all(lander, end)
            landed = offsets(on_disk(tmp_path / "zone"))
            assert landed == sorted(offset for offset in little_log.landing if offset < end)
    finally:
        lander.close()


def test_pyarrow_reads_topic_and_date_columns_from_the_partition_folders_of_a_landing_zone(
    tmp_path: Path, little_log: LittleLog
) -> None:
    """pyarrow's dataset, which pandas uses too: partitions by name, the manifest passed over, names turned back."""
    zone = tmp_path / "zone"
    lander = Lander(little_log.task(zone, compression="zstd"), 0)
    try:
        land_all(lander, little_log.end)
    finally:
        lander.close()
    table = ds.dataset(zone, format="parquet", partitioning="hive").to_table()
    assert table.num_rows == len(little_log.landing)
    found = dict(zip(table["physicalOffset"].to_pylist(), table["topic"].to_pylist(), strict=True))
    assert found == little_log.landing
    stored = table["storeTimestamp"].to_pylist()
    assert [str(time.date()) for time in stored] == table["date"].to_pylist()
    assert len(set(table["date"].to_pylist())) == 2
    assert set(table["brokerName"].to_pylist()) == {"broker-a"}
    numbers = [dict(pairs)["number"] for pairs in table["properties"].to_pylist()]
    assert sorted(map(int, numbers)) == list(range(60))
    for path, positions in visible(on_disk(zone)).items():
        assert positions == sorted(positions), f"{path} keeps the log's order"


def test_a_landing_zone_contains_system_topics_only_if_its_settings_include_them(
    tmp_path: Path, little_log: LittleLog
) -> None:
    """Topics of the broker itself are of no use to most readers."""
    for name, changes, wanted in (
        ("one", {"topics": ("Payments",)}, {"Payments"}),
        ("all", {"include_system_topics": True}, {"Orders", "Payments", "a|b%c", SCHEDULE_TOPIC}),
    ):
        lander = Lander(little_log.task(tmp_path / name, **changes), 0)
        try:
            land_all(lander, little_log.end)
        finally:
            lander.close()
        assert {path.name for path in (tmp_path / name).glob("topic=*")} == {topic_folder(topic) for topic in wanted}


def test_no_commit_is_added_to_the_manifest_if_no_rows_were_written(tmp_path: Path, little_log: LittleLog) -> None:
    """A busy topic that does not land must not fill the manifest; the next row's commit covers the stretch."""
    lander = Lander(little_log.task(tmp_path / "zone", topics=("Payments",)), 0)
    try:
        landed = lander.land(little_log.ends[0], 1 << 20)
        assert (landed.rows, landed.committed_bytes, landed.read_to_bytes) == (0, 0, little_log.ends[0])
        assert lander.land(little_log.ends[1], 1 << 20).rows == 1
    finally:
        lander.close()
    (commit,) = Manifest(OS_DISK, tmp_path / "zone").commits()
    assert (commit.start_offset_bytes, commit.end_offset_bytes) == (0, little_log.ends[1])


def test_a_restarted_landing_writer_continues_at_the_log_position_in_the_manifest(
    tmp_path: Path, little_log: LittleLog
) -> None:
    """A new lander takes the position from the manifest, not from whoever makes it; the commits form one chain."""
    zone = tmp_path / "zone"
    for end in (little_log.ends[20], little_log.ends[40], little_log.end):
        lander = Lander(little_log.task(zone), 12_345)
        try:
            if end == little_log.ends[20]:
                lander._start = lander._at = 0
            land_all(lander, end, 2_000)
        finally:
            lander.close()
        assert committed_position(OS_DISK, zone) == end
    assert offsets(on_disk(zone)) == sorted(little_log.landing)
    commits = list(Manifest(OS_DISK, zone).commits())
    assert commits[0].start_offset_bytes == 0
    assert sum(commit.rows for commit in commits) == len(little_log.landing)
    assert sum(len(commit.files) for commit in commits) == len(visible(on_disk(zone)))


def test_merging_old_commit_files_of_the_manifest_keeps_all_manifest_entries(
    tmp_path: Path, little_log: LittleLog
) -> None:
    """A commit each ten seconds makes three million files a year; joined, the chain stays whole and readable."""
    zone = tmp_path / "zone"
    lander = Lander(little_log.task(zone), 0)
    try:
        for end in little_log.ends[:20]:
            land_all(lander, end)
    finally:
        lander.close()
    manifest = Manifest(OS_DISK, zone)
    before = list(manifest.commits())
    assert not manifest.join_old(at=1_000)
    assert manifest.join_old(at=10)
    assert list(manifest.commits()) == before
    assert len([path for path in (zone / "_flintmq").iterdir() if path.name != "lock"]) == 2
    # A crash after the joined file was made, before the old ones went: they are passed over and removed.
    (zone / "_flintmq" / before[3].name).write_text(before[3].to_json())
    again = Manifest(OS_DISK, zone)
    assert list(again.commits()) == before
    again.clean()
    assert not (zone / "_flintmq" / before[3].name).exists()
    lander = Lander(little_log.task(zone), 0)
    try:
        land_all(lander, little_log.end)
    finally:
        lander.close()
    assert offsets(on_disk(zone)) == sorted(little_log.landing)


def test_a_landing_zone_refuses_a_writer_for_a_different_store_or_for_a_truncated_log(
    tmp_path: Path, little_log: LittleLog
) -> None:
    """Positions of two logs must never be mixed in one folder: each is an error that says which key to change."""
    zone = tmp_path / "zone"
    lander = Lander(little_log.task(zone), 0)
    land_all(lander, little_log.end)
    lander.close()
    stranger = LogSource(store_id="f" * 32, broker_name="broker-b", epochs=((1, 0),))
    with pytest.raises(LandingError, match=r"another store.*spark_feed\.landing\.path"):
        Lander(little_log.task(zone, source=stranger), 0)
    cut = LogSource(store_id=SOURCE.store_id, broker_name="broker-a", epochs=((1, 0), (2, little_log.end - 1)))
    with pytest.raises(LandingError, match="a recovery has cut the log"):
        Lander(little_log.task(zone, source=cut), 0)
    behind = LogSource(store_id=SOURCE.store_id, broker_name="broker-a", epochs=((1, 0), (2, little_log.end)))
    Lander(little_log.task(zone, source=behind), 0).close()


def test_two_writers_cannot_use_one_landing_zone_at_the_same_time(tmp_path: Path, little_log: LittleLog) -> None:
    """Two brokers with one landing.path: the second one is told, nothing is mixed."""
    lander = Lander(little_log.task(tmp_path / "zone"), 0)
    try:
        with pytest.raises(LandingTroubleError, match="another broker"):
            ZoneLock(tmp_path / "zone", wait_s=0.1)
    finally:
        lander.close()
    ZoneLock(tmp_path / "zone", wait_s=0.1).release()


def test_export_to_a_landing_zone_fails_if_messages_were_deleted_before_their_export(
    tmp_path: Path, little_log: LittleLog
) -> None:
    """No silent gap: an error that names the keys, or with consent a gap in the manifest."""
    store = tmp_path / "store"
    shutil.copytree(little_log.root / "commitlog", store / "commitlog")
    files = sorted((store / "commitlog").iterdir())
    zone = tmp_path / "zone"
    lander = Lander(little_log.task(zone, log_folders=(str(store / "commitlog"),)), 0)
    try:
        lander.land(little_log.end, 500)
        stood = lander.committed_bytes
        for file in files[:2]:
            file.unlink()
        low = int(files[2].name)
        with pytest.raises(LandingLossError, match=r"file_reserved_hours.*fail_on_data_loss") as caught:
            lander.land(little_log.end, 1 << 20)
        assert (caught.value.lost_from_bytes, caught.value.lost_to_bytes) == (stood, low)
        landed = lander.land(little_log.end, 1 << 20, skip_lost=True)
        assert landed.lost_bytes == low - stood
        land_all(lander, little_log.end)
    finally:
        lander.close()
    kept = [offset for offset in little_log.landing if offset < stood or offset >= low]
    assert offsets(on_disk(zone)) == sorted(kept)
    assert [c.lost_to_bytes for c in Manifest(OS_DISK, zone).commits() if c.lost_to_bytes is not None] == [low]


def test_exporting_a_damaged_log_to_a_landing_zone_fails_with_the_position_of_the_damage(
    tmp_path: Path, little_log: LittleLog
) -> None:
    """A landing zone never passes over bytes it cannot read."""
    store = tmp_path / "store"
    shutil.copytree(little_log.root / "commitlog", store)
    first = min(store.iterdir())
    raw = bytearray(first.read_bytes())
    raw[little_log.ends[2] + 4] ^= 0xFF
    first.write_bytes(raw)
    lander = Lander(little_log.task(tmp_path / "zone", log_folders=(str(store),)), 0)
    try:
        with pytest.raises(BadRecordError, match=f"position {little_log.ends[2]}"):
            land_all(lander, little_log.end)
    finally:
        lander.close()
    assert offsets(on_disk(tmp_path / "zone")) == sorted(o for o in little_log.landing if o < little_log.ends[2])


def test_a_landing_zone_with_a_missing_or_damaged_commit_file_is_refused(tmp_path: Path, little_log: LittleLog) -> None:
    """Somebody who tidied up must hear of it before rows are doubled or left out."""
    zone = tmp_path / "zone"
    lander = Lander(little_log.task(zone), 0)
    try:
        for end in little_log.ends[:5]:
            land_all(lander, end)
    finally:
        lander.close()
    commits = sorted(path for path in (zone / "_flintmq").iterdir() if path.name.startswith("commit"))
    content = commits[-1].read_text()
    commits[-1].write_text(content[:-5])
    with pytest.raises(LandingError, match="damaged"):
        Lander(little_log.task(zone), 0)
    commits[-1].write_text(json.dumps(json.loads(content) | {"version": 2}))
    with pytest.raises(LandingError, match="later version of FlintMQ"):
        Lander(little_log.task(zone), 0)
    commits[-1].write_text(content)
    commits[2].unlink()
    with pytest.raises(LandingError, match="missing"):
        Lander(little_log.task(zone), 0)


def test_any_topic_name_becomes_a_folder_name_inside_the_landing_zone() -> None:
    """A topic is a client's text (or another maker's store's): it becomes one folder's name, never a path."""
    assert topic_folder("Orders-1_x") == "topic=Orders-1_x"
    assert topic_folder("%RETRY%g|1") == "topic=%25RETRY%25g%7C1"
    assert topic_folder("") == "topic=__HIVE_DEFAULT_PARTITION__"
    names = {topic_folder(topic) for topic in ("../x", "..", "a/b", "a\\b", "ä", "|" * 127, "|" * 126 + "%", "x" * 127)}
    assert len(names) == 8
    for name in names:
        assert "/" not in name
        assert "." not in name
        assert len(name.encode()) < 255
    assert date_folder(date(2024, 10, 4)) == "date=2024-10-04"
    assert date_folder(None) == "date=__HIVE_DEFAULT_PARTITION__"


def test_a_record_larger_than_the_byte_limit_of_one_write_is_still_written_to_the_landing_zone(
    tmp_path: Path, little_log: LittleLog
) -> None:
    """roll_bytes is a wish; a message of 4 MiB lands with one of 64 KiB."""
    lander = Lander(little_log.task(tmp_path / "zone"), 0)
    try:
        landed = lander.land(little_log.end, 1)
        assert landed.read_to_bytes > 1
        assert landed.rows == 1
    finally:
        lander.close()

"""Export, compaction and audit against what one record after the other says."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from stores import BEGIN_MS, config_of

from flintmq.core.record.log_walk import Kind
from flintmq.core.record.record import Record, decode_record
from flintmq.plugins.spark.errors import MaintenanceError
from flintmq.plugins.spark.maintenance import export as export_module
from flintmq.plugins.spark.maintenance.audit import audit
from flintmq.plugins.spark.maintenance.compact import compact
from flintmq.plugins.spark.maintenance.engines import Engine, InlineEngine, engine_of
from flintmq.plugins.spark.maintenance.export import export
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.walk import walk
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store


def records(root: Path) -> list[Record]:
    """Every visible message, read one by one."""
    files = StoreFiles(root)
    found = []
    for piece in walk(files):
        if piece.kind is Kind.RECORD:
            file = files.log_file(piece.start)
            assert file is not None
            record = decode_record(file.view, piece.start - file.start)
            if not record.sys_flag & 4:
                found.append(record)
    return found


def is_plain(record: Record) -> bool:
    return record.topic != "SCHEDULE_TOPIC_XXXX"


def positions(folder: Path) -> list[int]:
    return sorted(ds.dataset(folder, format="parquet").to_table(["physicalOffset"])["physicalOffset"].to_pylist())


def test_an_export_contains_every_message_of_the_store(tmp_path: Path, template: Path, engine: Engine) -> None:
    """The rows are all messages except those in topics of the broker, and no unfinished file stays behind."""
    out = tmp_path / "out"
    done = export(StoreFiles(template), out, engine, broker_name="broker-a")
    wanted = [record.commit_log_offset_bytes for record in records(template) if is_plain(record)]
    assert positions(out) == wanted
    assert (done.rows, done.pieces_left_out) == (len(wanted), 0)
    assert sorted(path.name[0] for path in out.iterdir()) == ["p"] * done.files
    assert done.file_bytes == sum(path.stat().st_size for path in out.iterdir())
    table = ds.dataset(out, format="parquet").to_table()
    assert set(table["brokerName"].to_pylist()) == {"broker-a"}
    with pytest.raises(MaintenanceError, match="not empty"):
        export(StoreFiles(template), out, engine)


def test_an_export_contains_only_messages_of_the_chosen_topics_and_the_chosen_time_range(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds are exact to the millisecond, and pieces outside the range are not read."""
    monkeypatch.setattr(export_module, "SLACK_MS", 1_000)
    begin, end = BEGIN_MS + 70_100, BEGIN_MS + 90_000
    done = export(
        StoreFiles(template),
        tmp_path / "out",
        InlineEngine(),
        begin_ms=begin,
        end_ms=end,
        topics=frozenset({"Orders", "SCHEDULE_TOPIC_XXXX"}),
    )
    wanted = [
        record.commit_log_offset_bytes
        for record in records(template)
        if begin <= record.store_timestamp_ms < end and record.topic in ("Orders", "SCHEDULE_TOPIC_XXXX")
    ]
    assert positions(tmp_path / "out") == wanted
    assert len(wanted) > 5
    assert done.pieces_left_out > 3


def test_an_export_by_time_contains_all_matching_messages_even_if_the_clock_was_set_back(tmp_path: Path) -> None:
    """Pieces are left out with ten minutes to spare: what was stored while the clock was wrong is still found."""
    clock = ManualClock(BEGIN_MS)
    store = open_store(tmp_path / "store", config=config_of(tmp_path / "store"), clock=clock)
    try:
        for number in range(60):
            store.put([message("Orders", 0, b"x" * 2_000)])
            clock.set_wall_clock(BEGIN_MS + (number % 7) * 60_000)
        store.dispatch()
    finally:
        store.close()
    begin, end = BEGIN_MS + 120_000, BEGIN_MS + 180_000
    export(StoreFiles(tmp_path / "store"), tmp_path / "out", InlineEngine(), begin_ms=begin, end_ms=end)
    wanted = [r.commit_log_offset_bytes for r in records(tmp_path / "store") if begin <= r.store_timestamp_ms < end]
    assert positions(tmp_path / "out") == wanted
    assert wanted


def test_compaction_keeps_the_newest_message_of_each_key(tmp_path: Path, template: Path, engine: Engine) -> None:
    """A key of another topic is another key, and messages without a key are counted."""
    newest = {
        (r.topic, r.properties["KEYS"]): r.commit_log_offset_bytes for r in records(template) if "KEYS" in r.properties
    }
    done = compact(StoreFiles(template), tmp_path / "out", engine)
    assert positions(tmp_path / "out") == sorted(newest.values())
    plain = [record for record in records(template) if is_plain(record)]
    assert done.rows_read == len(plain)
    assert done.rows_without_key == sum("KEYS" not in record.properties for record in plain)
    assert done.rows == len(newest)
    assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith("part-")] == []


def test_compaction_keeps_one_message_per_key_across_log_files(tmp_path: Path) -> None:
    """A key that is in every file of the log ends up with one message: the last."""
    store = open_store(tmp_path / "store", config=config_of(tmp_path / "store"), clock=ManualClock())
    try:
        for number in range(100):
            store.put([message("T", 0, b"x" * 1_000, keys=f"k{number % 3}")])
        store.dispatch()
    finally:
        store.close()
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 5
    compact(StoreFiles(tmp_path / "store"), tmp_path / "out", InlineEngine())
    table = ds.dataset(tmp_path / "out", format="parquet").to_table()
    assert sorted(table["queueOffset"].to_pylist()) == [97, 98, 99]


def test_an_audit_of_a_sound_store_counts_messages_and_finds_no_error(template: Path, engine: Engine) -> None:
    """The counts by topic equal those made from the records."""
    found = audit(StoreFiles(template), engine)
    counted = Counter(record.topic for record in records(template))
    assert {topic: count["messages"] for topic, count in found["topics"].items()} == counted
    assert found["sound"]
    assert found["records"] == 420
    assert found["duplicates"] == {"count": 0, "first": []}
    orders = [record for record in records(template) if record.topic == "Orders"]
    assert found["topics"]["Orders"] == {
        "messages": len(orders),
        "bytes": sum(record.size_bytes for record in orders),
        "first_timestamp_ms": orders[0].store_timestamp_ms,
        "last_timestamp_ms": orders[-1].store_timestamp_ms,
    }


def test_an_audit_finds_changed_bodies_and_gaps_in_queue_offsets_and_duplicate_messages(
    tmp_path: Path, template: Path
) -> None:
    """Each finding names its place, so that an operator can look at the message."""
    root = tmp_path / "store"
    shutil.copytree(template, root)
    store = open_store(root, config=config_of(root), clock=ManualClock(1_800_000_000_000))
    twice = "7F00000100000000000000000000FFFF"
    try:
        places = [
            store.put([message("Twice", number, b"same", uniq_key=twice)]).records[0].commit_log_offset_bytes
            for number in range(2)
        ]
        store.dispatch()
    finally:
        store.close()
    first = root / "commitlog" / f"{0:020d}"
    raw = bytearray(first.read_bytes())
    sound = [record for record in records(root) if record.body and record.commit_log_offset_bytes < len(raw)]
    changed, moved = sound[3], sound[10]
    raw[changed.commit_log_offset_bytes + 88] ^= 1
    at = moved.commit_log_offset_bytes + 20
    raw[at : at + 8] = (moved.queue_offset + 1_000).to_bytes(8, "big")
    first.write_bytes(raw)
    found = audit(StoreFiles(root), InlineEngine())
    assert not found["sound"]
    assert found["wrong_crcs"] == {"count": 1, "first": [changed.commit_log_offset_bytes]}
    assert found["holes"]["count"] == 2, "there and back"
    assert found["holes"]["first"][0] == {
        "topic": moved.topic,
        "queue": moved.queue_id,
        "wanted": moved.queue_offset,
        "found": moved.queue_offset + 1_000,
        "position": moved.commit_log_offset_bytes,
    }
    assert found["duplicates"] == {
        "count": 1,
        "first": [{"uniq_key": twice, "position": places[1], "same_as": places[0]}],
    }
    assert audit(StoreFiles(root), InlineEngine(), duplicates=False).get("duplicates") is None


def test_exporting_or_compacting_or_auditing_a_damaged_log_reports_the_position_of_the_damage(
    tmp_path: Path, template: Path
) -> None:
    """Each of the three must stop at unreadable bytes, because skipped messages would be missed by nobody."""
    root = tmp_path / "store"
    shutil.copytree(template, root)
    second = sorted((root / "commitlog").iterdir())[1]
    raw = bytearray(second.read_bytes())
    raw[4] ^= 0xFF
    second.write_bytes(raw)
    for number, work in enumerate((export, compact)):
        with pytest.raises(MaintenanceError, match=f"position {int(second.name)}"):
            work(StoreFiles(root), tmp_path / f"out{number}", InlineEngine())
    with pytest.raises(MaintenanceError, match=f"position {int(second.name)}"):
        audit(StoreFiles(root), InlineEngine())


def test_the_error_about_an_unknown_maintenance_engine_lists_the_known_engines() -> None:
    with pytest.raises(MaintenanceError, match="inline, process, spark"):
        engine_of("flink")


def test_exports_and_audits_of_a_running_broker_end_at_the_given_log_offset(tmp_path: Path, template: Path) -> None:
    """The tail that is being written looks torn; at any boundary the work ends there, as if the log did."""
    all_of_it = records(template)
    files = StoreFiles(template)
    for record in (all_of_it[0], all_of_it[len(all_of_it) // 2], all_of_it[-1]):
        end = record.commit_log_offset_bytes
        wanted = [one.commit_log_offset_bytes for one in all_of_it if one.commit_log_offset_bytes < end]
        found = audit(files, InlineEngine(), end_offset_bytes=end)
        assert sum(count["messages"] for count in found["topics"].values()) == len(wanted)
        out = tmp_path / str(end)
        export(files, out, InlineEngine(), system_topics=True, end_offset_bytes=end)
        assert (positions(out) if wanted else []) == wanted

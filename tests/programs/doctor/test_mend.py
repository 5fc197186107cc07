"""Repair makes the same bytes anew and keeps the old ones; salvage saves what is whole, and moves stored offsets along."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.errors import StoreError, StoreFormatError, StoreLockedError
from flintmq.core.io import fastjson
from flintmq.core.record.queue_unit import UNIT_BYTES
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.rebuild import fitting, has_damage, rebuild
from flintmq.programs.doctor.salvage import Renumbering, salvage
from flintmq.programs.doctor.verify import verify
from flintmq.testing.store import open_store, snapshot, store_spec

from .conftest import FILE_BYTES, Small

KEY = ("Orders", 0)


def config_of(root: Path) -> BrokerConfig:
    return fitting(store_spec(root, max_hash_slot_num=16, max_index_num=64).config, StoreFiles(root))


def repair(root: Path) -> tuple[int, Path | None]:
    config = config_of(root)
    return rebuild(root, config, DELAY_LEVEL_MS, damaged=has_damage(StoreFiles(root), config))


def derived(root: Path) -> tuple[dict[str, bytes], list[bytes]]:
    """Queues by name; index files in order: their names are times."""
    return snapshot(root, "consumequeue"), list(snapshot(root, "index").values())


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("what", ["nothing", "queue", "index", "foreign", "sizes", "all gone"])
def test_repair_rebuilds_consume_queues_and_index_files_byte_for_byte(small: Small, what: str, crashed: bool) -> None:
    """Whatever is wrong with queues and index, also what keeps a broker from starting, and also after a crash."""
    before = derived(small.root)
    checkpoint = (small.root / "checkpoint").read_bytes()
    if crashed:
        (small.root / "abort").touch()
    if what == "queue":
        small.edit("consumequeue/Orders/0/00000000000000000000", 40, bytes(20))
    elif what == "index":
        small.edit(small.index_name, 40, b"\xff" * 300)
    elif what == "foreign":
        (small.root / "consumequeue" / "Orders" / "0" / "x").touch()
        (small.root / "index" / "x").touch()
    elif what == "sizes":
        path = small.root / "consumequeue" / "Orders" / "0" / "00000000000000000000"
        path.write_bytes(path.read_bytes()[:33])
    elif what == "all gone":
        for name in ("consumequeue", "index"):
            (small.root / name).rename(small.root / f"was-{name}")
    end, kept = repair(small.root)
    assert derived(small.root) == before
    assert end == small.records[-1].end
    assert kept is not None
    assert kept.parent == small.root / "flint" / "replaced"
    assert (kept / "checkpoint").read_bytes() == checkpoint
    assert small.verify().findings == []


def test_repairs_within_the_same_second_move_the_replaced_files_to_different_backup_folders(small: Small) -> None:
    """What was set aside is never overwritten."""
    kept = {repair(small.root)[1] for _ in range(3)}
    assert len(kept) == 3


def test_repair_keeps_the_records_after_damage_in_the_log(small: Small) -> None:
    """Also in a file that a start after a clean stop does not look at; with compat strict it refuses beforehand."""
    bad = small.records[3]
    small.flip_log(bad.start + 6)
    config = config_of(small.root)
    strict = BrokerConfig(store=store_spec(small.root, compat="strict").config.store)
    before = snapshot(small.root)
    with pytest.raises(StoreFormatError, match="salvage"):
        has_damage(small.files, strict)
    assert snapshot(small.root) == before
    assert has_damage(small.files, config)
    repair(small.root)
    report = small.verify()
    assert report.is_sound
    assert report.units == 66
    assert any("records were lost here" in found.what for found in report.findings)


def test_repair_refuses_while_a_broker_runs(small: Small) -> None:
    """And nothing has changed."""
    store = open_store(small.root, config=config_of(small.root))
    try:
        before = sorted(snapshot(small.root))
        with pytest.raises(StoreLockedError):
            repair(small.root)
        assert sorted(snapshot(small.root)) == before
    finally:
        store.close()


# salvage


def test_salvage_of_a_sound_store_writes_the_same_log(small: Small, tmp_path: Path) -> None:
    """Nothing is lost, nothing moves."""
    saved = salvage(small.files, tmp_path / "saved")
    assert (saved.records, saved.lost_stretches, saved.moved, saved.moved_offsets) == (66, 0, 0, 0)
    old, new = Small(small.root), Small(tmp_path / "saved")
    assert [(p.kind, p.start, p.record) for p in new.records] == [(p.kind, p.start, p.record) for p in old.records]
    assert snapshot(new.root, "config") == snapshot(old.root, "config")


@pytest.mark.parametrize("positions", [[0], [3], [65], [2, 30, 31, 60]])
def test_salvage_keeps_all_records_except_the_damaged_records(
    small: Small, tmp_path: Path, positions: list[int]
) -> None:
    """Queues close up, groups go on at the same message, and a broker opens the result."""
    records = small.records
    lost = [records[number].record for number in positions]
    offsets = {f"{queue}": 11 for queue in range(2)}
    (small.root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"Orders@g": offsets}}))
    for number in positions:
        small.flip_log(records[number].start + 7)
    target = tmp_path / "saved"
    saved = salvage(small.files, target)
    assert saved.records == 66 - len(positions)
    assert saved.lost_stretches <= len(positions)
    rebuild(target, config_of(target), DELAY_LEVEL_MS)
    report = verify(StoreFiles(target), DELAY_LEVEL_MS)
    assert report.findings == []
    table = fastjson.loads((target / "config" / "consumerOffset.json").read_bytes())["offsetTable"]["Orders@g"]
    store = open_store(target, config=config_of(target))
    try:
        for queue in range(2):
            mine = [
                p.record
                for p in records
                if p.record is not None and (p.record.topic, p.record.queue_id) == ("Orders", queue)
            ]
            left = [record for record in mine if record not in lost]
            wanted = next(record for record in left if record.queue_offset >= 11)
            found = store.reader.get_message(
                "Orders", queue, int(table[str(queue)] if str(queue) in table else table[queue]), 1, None
            )
            assert bytes(found.slices[0])[88 : 88 + len(wanted.body)] == wanted.body
    finally:
        store.close()


def test_salvage_never_splits_a_record_across_two_log_files(small: Small, tmp_path: Path) -> None:
    """No record crosses a file's end, each file ends in a blank."""
    small.flip_log(4)
    salvage(small.files, tmp_path / "saved")
    new = Small(tmp_path / "saved")
    assert all(piece.start // FILE_BYTES == (piece.end - 1) // FILE_BYTES for piece in new.records)
    assert not any(piece.kind.value in ("damage", "tail") for piece in new.pieces)


def test_salvage_refuses_a_target_inside_the_source_store_and_a_source_without_a_commit_log(
    small: Small, tmp_path: Path
) -> None:
    """A folder in use, a file, a folder in the store itself, a store without a log."""
    (tmp_path / "file").write_text("x")
    for target in (small.root, tmp_path / "file", small.root / "saved"):
        with pytest.raises(StoreFormatError):
            salvage(small.files, target)
    (tmp_path / "empty" / "config").mkdir(parents=True)
    with pytest.raises(StoreFormatError, match="no commit log"):
        salvage(StoreFiles(tmp_path / "empty"), tmp_path / "saved")
    with pytest.raises(StoreError):
        salvage(small.files, tmp_path / "file" / "below")


def test_salvage_omits_the_placeholder_records_that_a_repair_wrote_over_damaged_bytes(
    small: Small, tmp_path: Path
) -> None:
    """They stand for what is lost; a new log needs none."""
    small.flip_log(small.records[3].start + 6)
    repair(small.root)
    assert sum(piece.record is not None and piece.record.topic == "RMQ_SYS_LOST" for piece in small.pieces) == 1
    assert salvage(small.files, tmp_path / "saved").records == 65
    rebuild(tmp_path / "saved", config_of(tmp_path / "saved"), DELAY_LEVEL_MS)
    assert verify(StoreFiles(tmp_path / "saved"), DELAY_LEVEL_MS).findings == []


def test_salvage_lowers_a_consumer_offset_by_the_number_of_messages_lost_before_that_offset() -> None:
    """Before, at, within and behind what was lost; and where a topic was made anew."""
    numbers = Renumbering()
    assert [numbers.take(KEY, old) for old in (10, 11, 15, 16, 20)] == [10, 11, 12, 13, 14]
    assert numbers.changed()
    moved = {old: numbers.translate(KEY, old) for old in (0, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21)}
    assert moved == {0: 0, 10: 10, 11: 11, 12: 12, 13: 12, 14: 12, 15: 12, 16: 13, 17: 14, 19: 14, 20: 14, 21: 15}
    assert numbers.translate(("Other", 0), 7) == 7
    assert [numbers.take(KEY, old) for old in (0, 1)] == [0, 1]
    assert [numbers.translate(KEY, old) for old in (0, 1, 2)] == [0, 1, 2]
    numbers.end_topic(KEY[0])
    assert [numbers.take(KEY, old) for old in (4, 6)] == [4, 5]
    assert [numbers.translate(KEY, old) for old in (4, 5, 6)] == [4, 5, 5]


def test_salvage_lowers_the_offset_of_a_delay_level_by_the_number_of_its_lost_messages(tmp_path: Path) -> None:
    """They are offsets of the schedule topic's queues."""
    from flintmq.programs.doctor.salvage import translate_offsets

    numbers = Renumbering()
    for old in (0, 5, 6):
        numbers.take(("SCHEDULE_TOPIC_XXXX", 2), old)
    (tmp_path / "delayOffset.json").write_text('{"offsetTable":{3:6,1:4}}')
    (tmp_path / "consumerOffset.json").write_text("garbage {")
    assert translate_offsets(tmp_path, numbers) == 1
    assert fastjson.loads((tmp_path / "delayOffset.json").read_bytes()) == {"offsetTable": {3: 2, 1: 4}}
    assert (tmp_path / "consumerOffset.json").read_text() == "garbage {"


def test_the_settings_for_file_sizes_are_inferred_from_the_existing_files_of_a_store(small: Small) -> None:
    """A file that is cut short does not decide."""
    path = small.root / "consumequeue" / "Bills" / "0" / "00000000000000000000"
    path.write_bytes(b"abc")
    config = fitting(BrokerConfig(), small.files)
    assert config.store.commit_log_file_bytes == FILE_BYTES
    assert config.store.consume_queue_file_bytes == 10 * UNIT_BYTES
    assert (config.index.max_hash_slot_num, config.index.max_index_num) == (16, 64)

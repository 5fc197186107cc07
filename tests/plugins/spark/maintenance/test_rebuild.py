"""What is rebuilt in parallel is, byte for byte, what the broker's own loop makes; where it cannot be, it is not tried."""

from __future__ import annotations

import shutil
from contextlib import closing
from functools import partial
from pathlib import Path

import attrs
import numpy as np
import pytest
from stores import FILE_BYTES, config_of, fill, index_of, loop_rebuilt, queues_of

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.errors import StoreError, StoreLockedError
from flintmq.core.log.store_lock import StoreLock
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS, tags_codes_with
from flintmq.plugins.spark.errors import MaintenanceError
from flintmq.plugins.spark.maintenance import pieces
from flintmq.plugins.spark.maintenance.engines import Engine, InlineEngine, ProcessEngine
from flintmq.plugins.spark.maintenance.rebuild import Rebuilt, rebuild
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.verify import verify
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store


def rebuilt(root: Path, engine: Engine | None = None, out: Path | None = None, **store: object) -> Rebuilt:
    return rebuild(root, config_of(root, **store), DELAY_LEVEL_MS, engine or InlineEngine(), out=out)


@pytest.fixture
def store(tmp_path: Path, template: Path) -> Path:
    shutil.copytree(template, tmp_path / "store")
    return tmp_path / "store"


def test_rebuilt_queues_and_index_equal_those_of_the_broker(tmp_path: Path, store: Path, engine: Engine) -> None:
    """The replaced files are kept, and the broker's own checks find no error."""
    before, index_before = queues_of(store), index_of(store)
    loop_rebuilt(store, tmp_path / "loop", config_of(store))
    progress: list[tuple[str, int, int]] = []
    made = rebuild(store, config_of(store), DELAY_LEVEL_MS, engine, report=lambda *where: progress.append(where))
    assert queues_of(store) == queues_of(tmp_path / "loop") == before
    assert index_of(store) == index_of(tmp_path / "loop") == index_before
    assert len(index_before) > 5
    assert made.sequential_queues == ()
    assert made.records == 300 + 30 * 4
    assert made.units == 300 + 30 * 2
    assert made.replaced_are_in is not None
    assert queues_of(Path(made.replaced_are_in)) == before
    assert not (store / "flint" / "rebuild").exists()
    report = verify(StoreFiles(store), DELAY_LEVEL_MS)
    assert report.is_sound, report.findings
    for what in ("queues", "index", "verifying", "syncing"):
        told = [(done, total) for name, done, total in progress if name == what]
        assert told
        assert told[-1][0] == told[-1][1]
        assert told == sorted(told)


def test_a_rebuild_into_another_folder_does_not_change_the_store(tmp_path: Path, store: Path) -> None:
    """An operator may inspect the result first, or the store may lie on slow disks."""
    before = queues_of(store)
    shutil.rmtree(store / "consumequeue")
    made = rebuilt(store, out=tmp_path / "new")
    assert queues_of(tmp_path / "new") == before
    assert not (store / "consumequeue").exists()
    assert made.replaced_are_in is None
    with pytest.raises(MaintenanceError, match="not empty"):
        rebuilt(store, out=tmp_path / "new")


def test_a_log_file_is_split_for_parallel_rebuild_tasks_only_at_record_boundaries(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One large file would be one task: the cuts are records, however many pieces are wanted, forged records or not."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2_000)
    files = StoreFiles(store)
    cut = pieces.plan(files, 16)
    assert len(cut) > 3 * len(files.log)
    assert sum(pieces.PieceTask(piece).size for piece in cut) == files.log_bytes
    engine = ProcessEngine(1)
    engine.parallelism = 16
    monkeypatch.setattr(engine, "run", InlineEngine().run)
    before = queues_of(store)
    rebuilt(store, engine)
    assert queues_of(store) == before


def test_forged_records_inside_message_bodies_do_not_change_the_rebuilt_queues_and_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer can put whole records, with their positions, into a body."""
    root = tmp_path / "store"
    fill(root, 5)
    raw = (root / "commitlog" / f"{0:020d}").read_bytes()
    size = int.from_bytes(raw[:4], "big")
    store = open_store(root, config=config_of(root), clock=ManualClock(1_800_000_000_000))
    try:
        for _ in range(40):
            at = store.watermarks.wrote
            forged = bytearray(raw[:size])
            forged[28:36] = (at + 88).to_bytes(8, "big")
            store.put([message("Forged", 0, bytes(forged) * 3)])
        store.dispatch()
    finally:
        store.close()
    monkeypatch.setattr(pieces, "PIECE_BYTES", 300)
    engine = ProcessEngine(1)
    engine.parallelism = 64
    monkeypatch.setattr(engine, "run", InlineEngine().run)
    before, index_before = queues_of(root), index_of(root)
    rebuilt(root, engine)
    assert (queues_of(root), index_of(root)) == (before, index_before)


def test_a_rebuilt_queue_begins_with_filler_units_if_its_first_messages_are_deleted(
    tmp_path: Path, store: Path
) -> None:
    """Condition 2: a queue that begins above 0 begins with fillers, and with the file that its first message lies in."""
    for file in sorted((store / "commitlog").iterdir())[:3]:
        file.unlink()
    shutil.rmtree(store / "consumequeue")
    loop_rebuilt(store, tmp_path / "loop", config_of(store))
    rebuilt(store)
    made = queues_of(store)
    assert made == queues_of(tmp_path / "loop")
    assert index_of(store) == index_of(tmp_path / "loop")
    filler = (0).to_bytes(8, "big") + (0x7FFFFFFF).to_bytes(4, "big") + bytes(8)
    assert any(data.startswith(filler) for data in made.values())


def test_a_rebuild_processes_the_records_of_a_recreated_topic_in_the_order_of_the_log(
    tmp_path: Path, store: Path
) -> None:
    """Condition 1: offsets begin anew at 0; that queue, and no other, is made by the broker's own code, in order."""
    opened = open_store(store, config=config_of(store), clock=ManualClock(1_800_000_000_000))
    try:
        opened.delete_topic("Orders")
        for number in range(20):
            opened.put([message("Orders", 0, b"again", keys=str(number))])
        opened.dispatch()
    finally:
        opened.close()
    loop_rebuilt(store, tmp_path / "loop", config_of(store))
    made = rebuilt(store)
    assert made.sequential_queues == ("Orders/0",)
    assert queues_of(store) == queues_of(tmp_path / "loop")
    assert index_of(store) == index_of(tmp_path / "loop")


def test_a_deleted_topic_has_no_rebuilt_queue(tmp_path: Path, store: Path) -> None:
    """Its messages are still in the log, but no queue names them any more."""
    with closing(open_store(store, config=config_of(store), clock=ManualClock(1_800_000_000_000))) as opened:
        opened.delete_topic("Orders")
        opened.dispatch()
    loop_rebuilt(store, tmp_path / "loop", config_of(store))
    made = rebuilt(store)
    assert made.sequential_queues == ()
    assert queues_of(store) == queues_of(tmp_path / "loop")
    assert not any("Orders" in str(name) for name in queues_of(store))


def test_a_rebuild_fills_a_hole_in_a_queue_as_the_broker_does(tmp_path: Path, store: Path) -> None:
    """Condition 1 again: messages lost with damage leave fillers, as the broker's own code decides."""
    first = store / "commitlog" / f"{0:020d}"
    raw = bytearray(first.read_bytes())
    at = 0
    while int.from_bytes(raw[at + 20 : at + 28], "big") != 1 or raw[at + 36 : at + 40] != bytes(4):
        at += int.from_bytes(raw[at : at + 4], "big")
    # The second message of a queue becomes a rolled back one: the queue has a hole where it was.
    raw[at + 36 : at + 40] = (12).to_bytes(4, "big")
    first.write_bytes(raw)
    loop_rebuilt(store, tmp_path / "loop", config_of(store))
    made = rebuilt(store)
    assert len(made.sequential_queues) == 1
    assert queues_of(store) == queues_of(tmp_path / "loop")


def test_a_rebuild_with_changed_delay_levels_changes_only_the_queues_of_the_schedule_topic(
    tmp_path: Path, store: Path
) -> None:
    """Condition 4: the tags code of a delayed message is the time of its delivery."""
    before = queues_of(store)
    other = {level: delay + 1_000 for level, delay in DELAY_LEVEL_MS.items()}
    rebuild(store, config_of(store), other, InlineEngine())
    changed = {name for name, data in queues_of(store).items() if data != before[name]}
    assert changed
    assert all("SCHEDULE_TOPIC_XXXX" in name for name in changed)


def test_a_rebuild_of_a_store_with_a_multi_dispatch_message_is_refused(tmp_path: Path, store: Path) -> None:
    """Condition 6: which queues those were only the broker knew. The name in a body means nothing."""
    root = store
    name = "INNER_MULTI_DISPATCH"
    for properties, body, refused in (({}, f"{name}\x01a,b".encode(), False), ({name: "a,b"}, b"", True)):
        opened = open_store(root, config=config_of(root), clock=ManualClock(1_800_000_000_000))
        try:
            opened.put([message("Orders", 0, body, **properties)])
            opened.dispatch()
        finally:
            opened.close()
        before = queues_of(root)
        if refused:
            with pytest.raises(MaintenanceError, match="INNER_MULTI_DISPATCH"):
                rebuilt(root)
        else:
            rebuilt(root)
        assert queues_of(root) == before


def test_a_rebuild_of_a_store_with_consume_queue_extension_files_is_refused(tmp_path: Path, store: Path) -> None:
    """Condition 7: their bit maps depend on who filtered when."""
    (store / "consumequeue_ext" / "Orders").mkdir(parents=True)
    with pytest.raises(MaintenanceError, match="store repair"):
        rebuilt(store)


def test_a_rebuild_of_a_running_or_crashed_store_is_refused(tmp_path: Path, store: Path) -> None:
    """Condition 9: nothing is made beside a broker; a torn tail is for the broker's own recovery to judge."""
    before = queues_of(store)
    lock = StoreLock(store)
    try:
        with pytest.raises(StoreLockedError):
            rebuilt(store)
    finally:
        lock.release()
    (store / "abort").touch()
    with pytest.raises(MaintenanceError, match="abort"):
        rebuilt(store)
    assert queues_of(store) == before


def test_a_rebuild_of_a_damaged_log_is_refused_with_the_position_of_the_damage(tmp_path: Path, store: Path) -> None:
    """Only the start of a broker may quarantine or cut damaged bytes, so the store stays unchanged."""
    before = queues_of(store)
    third = sorted((store / "commitlog").iterdir())[2]
    raw = bytearray(third.read_bytes())
    raw[4] ^= 0xFF
    third.write_bytes(raw)
    with pytest.raises(MaintenanceError, match=f"position {int(third.name)}.*store repair"):
        rebuilt(store)
    assert queues_of(store) == before
    third.unlink()
    with pytest.raises(MaintenanceError, match="missing"):
        rebuilt(store)


def test_a_rebuild_ends_at_a_preallocated_log_file_without_records(tmp_path: Path) -> None:
    """A broker makes the next file before it is needed: zeros behind the last record, in two files; records there are not
    passed over."""
    root = tmp_path / "store"
    fill(root, 40)
    files = sorted((root / "commitlog").iterdir())
    ahead = root / "commitlog" / f"{int(files[-1].name) + FILE_BYTES:020d}"
    ahead.write_bytes(bytes(FILE_BYTES))
    before = queues_of(root)
    assert rebuilt(root).log_ends_at <= int(ahead.name)
    assert queues_of(root) == before
    ahead.write_bytes(files[0].read_bytes())
    with pytest.raises(MaintenanceError, match="no record at position"):
        rebuilt(root)


def test_a_rebuild_on_a_full_disk_leaves_the_store_unchanged(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is made beside the old, and the old goes last."""
    from flintmq.plugins.spark.maintenance import rebuild_task

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    before = queues_of(store)
    monkeypatch.setattr(rebuild_task, "write_units", full)
    with pytest.raises((OSError, StoreError)):
        rebuilt(store)
    assert queues_of(store) == before
    monkeypatch.undo()
    rebuilt(store)
    assert queues_of(store) == before


def test_no_index_is_rebuilt_if_the_index_is_switched_off(tmp_path: Path, store: Path) -> None:
    """A store with ``index.enable: false`` must not get index files."""
    config = config_of(store)
    config = attrs.evolve(config, index=attrs.evolve(config.index, enable=False))
    made = rebuild(store, config, DELAY_LEVEL_MS, InlineEngine())
    assert (made.keys, made.index_files, index_of(store)) == (0, 0, [])


def test_rebuilt_queue_units_are_written_big_endian(tmp_path: Path, store: Path) -> None:
    """The test reads bytes, because numpy silently converts big-endian arrays to native order."""
    rebuilt(store)
    name, data = next((name, data) for name, data in queues_of(store).items() if "Payments/1/" in name)
    assert name.endswith(f"{0:020d}")
    physical = int.from_bytes(data[:8], "big")
    assert int.from_bytes(data[8:12], "big") > 0
    log = np.fromfile(store / "commitlog" / f"{0:020d}", np.uint8)
    assert int.from_bytes(log[physical + 28 : physical + 36].tobytes(), "big") == physical


def test_a_broker_start_repairs_a_store_whose_rebuild_was_killed_while_replacing_files(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old ones are set aside and the new ones not in place: the next start of a broker makes what is missing."""
    from flintmq.plugins.spark.maintenance import rebuild as module

    class Killed(BaseException):
        pass

    aside = module.set_aside

    def killed(root: Path) -> None:
        aside(root)
        raise Killed

    before, index_before = queues_of(store), index_of(store)
    monkeypatch.setattr(module, "set_aside", killed)
    with pytest.raises(Killed):
        rebuilt(store)
    assert not (store / "consumequeue").exists()
    open_store(store, config=config_of(store), clock=ManualClock(1_800_000_000_000)).close()
    assert (queues_of(store), index_of(store)) == (before, index_before)
    monkeypatch.undo()
    rebuilt(store)
    assert queues_of(store) == before


def test_a_rebuild_without_known_delay_levels_keeps_the_delivery_times_of_delayed_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A store of a RocketMQ with its own levels: its queues tell them, and are not made anew with others."""
    root = tmp_path / "own"
    levels = {level: delay_ms + 2_000 for level, delay_ms in DELAY_LEVEL_MS.items()}
    rules = {SCHEDULE_TOPIC: partial(tags_codes_with, levels)}
    opened = open_store(root, config=config_of(root), tags_codes=rules, clock=ManualClock(1_700_000_000_000))
    try:
        for level in (1, 3, 3, 18):
            opened.put([message("SCHEDULE_TOPIC_XXXX", level - 1, b"later", DELAY=str(level))])
        opened.dispatch()
    finally:
        opened.close()
    before = queues_of(root)
    rebuild(root, config_of(root), None, InlineEngine(), out=tmp_path / "new")
    assert not (root / "flint" / "delay_levels.json").exists(), "the store is not changed"
    rebuild(root, config_of(root), None, InlineEngine())
    assert queues_of(root) == before
    for name in ("consumequeue", "flint"):
        shutil.rmtree(root / name)
    caplog.clear()
    rebuild(root, config_of(root), None, InlineEngine())
    assert [line for line in caplog.messages if "delay levels 1, 3, 18" in line]

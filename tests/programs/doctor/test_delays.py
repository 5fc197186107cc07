"""Delivery times are checked as far as they are known, and made again as they were: nobody's message comes hours early or late
because a store was looked at, or mended, with other delay levels than its broker had."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.record.queue_unit import UNIT, UNIT_BYTES
from flintmq.core.store.opened_store import recover
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS, delay_times_path, tags_codes_with
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.rebuild import fitting, has_damage, rebuild
from flintmq.programs.doctor.report import Level, Report
from flintmq.programs.doctor.salvage import salvage
from flintmq.programs.doctor.verify import verify
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, snapshot, start_store, store_spec

LEVELS = {1: 3_000, 2: 60_000}
OTHERS = {1: 7_000, 2: 60_000, 3: 1_000}
QUEUE = f"consumequeue/{SCHEDULE_TOPIC}/0/{0:020d}"


def run(root: Path, levels: Mapping[int, int], clock: ManualClock, *, noted: bool) -> None:
    """One life of a broker with these levels; a RocketMQ notes them nowhere."""
    spec = store_spec(root, tags_codes={SCHEDULE_TOPIC: partial(tags_codes_with, levels)}, clock=clock)
    with contextlib.closing(recover(spec)) as opened:
        if noted:
            opened.begin_tags_codes()
    store = start_store(spec)
    try:
        for number in range(12):
            level = 1 + number % len(levels)
            store.put([message(body=b"now"), message(SCHEDULE_TOPIC, level - 1, b"later", DELAY=str(level))])
            store.dispatch()
            clock.advance_ms(77)
    finally:
        store.close()


@pytest.fixture(params=["noted", "not noted", "noted late"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store whose broker changed its levels; it noted both of them, none, or the newer ones only."""
    root, clock = tmp_path / "store", ManualClock(1_700_000_000_000)
    run(root, LEVELS, clock, noted=request.param == "noted")
    run(root, OTHERS, clock, noted=request.param != "not noted")
    return root


def is_noted(root: Path) -> bool:
    path = delay_times_path(root)
    return path.exists() and "3000" in path.read_text()


def repair(root: Path, levels: Mapping[int, int] | None = None) -> None:
    config = fitting(store_spec(root).config, StoreFiles(root))
    rebuild(root, config, levels, damaged=has_damage(StoreFiles(root), config))


def errors(report: Report) -> list[str]:
    return [found.what for found in report.findings if found.level is Level.ERROR]


def test_verify_accepts_a_store_with_custom_delay_levels(store: Path) -> None:
    """It was called not sound, and repair, which was recommended, changed the delivery times."""
    report = verify(StoreFiles(store))
    assert report.is_sound
    notes = [found for found in report.findings if "levels 1" in found.what]
    assert [found.level for found in notes] == ([] if is_noted(store) else [Level.NOTE])
    assert len(report.findings) == len(notes)


def test_delay_levels_saved_in_the_store_take_precedence_over_configured_delay_levels(store: Path) -> None:
    """An operator's default configuration is no knowledge; for a store without a note it is all there is."""
    found = errors(verify(StoreFiles(store), DELAY_LEVEL_MS))
    assert (found == []) == is_noted(store)


@pytest.mark.parametrize("bit", [0, 5, 12, 33])
def test_verify_finds_a_damaged_delivery_time_even_if_the_delay_levels_are_unknown(store: Path, bit: int) -> None:
    raw = bytearray((store / QUEUE).read_bytes())
    raw[2 * UNIT_BYTES + 19 - bit // 8] ^= 1 << bit % 8
    (store / QUEUE).write_bytes(raw)
    (what,) = errors(verify(StoreFiles(store)))
    assert what.startswith("unit 2 says")


@pytest.mark.parametrize("what", ["nothing", "a damaged unit", "lost units"])
def test_repair_keeps_the_delivery_times_of_delayed_messages(store: Path, what: str) -> None:
    """Also those of messages whose units are lost: what their neighbours tell is kept before the queues are replaced."""
    before = snapshot(store, "consumequeue")
    raw = bytearray((store / QUEUE).read_bytes())
    if what == "a damaged unit":
        raw[2 * UNIT_BYTES + 19] ^= 1
    elif what == "lost units":
        raw[-3 * UNIT_BYTES :] = bytes(3 * UNIT_BYTES)
    (store / QUEUE).write_bytes(raw)
    for _ in range(2):
        repair(store)
        assert snapshot(store, "consumequeue") == before
    assert verify(StoreFiles(store)).findings == []


def test_repair_rebuilds_queues_of_the_schedule_topic_using_the_delay_levels_saved_in_the_store(store: Path) -> None:
    before = snapshot(store, "consumequeue")
    noted = is_noted(store)
    shutil.rmtree(store / "consumequeue" / SCHEDULE_TOPIC)
    repair(store, None if noted else {1: 3_000, 2: 60_000, 3: 1_000})
    after = snapshot(store, "consumequeue")
    assert after.keys() == before.keys()
    if noted:
        assert after == before


def test_repair_logs_a_warning_if_it_assumes_the_default_delay_levels_of_rocketmq(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a note nor a queue nor an operator: RocketMQ's own levels are taken, and somebody hears of it."""
    run(tmp_path, LEVELS, ManualClock(1_700_000_000_000), noted=False)
    shutil.rmtree(tmp_path / "consumequeue")
    with caplog.at_level(logging.WARNING):
        repair(tmp_path)
    assert [line for line in caplog.messages if "delay levels 1, 2 are due by RocketMQ's own" in line]
    assert verify(StoreFiles(tmp_path)).is_sound


def test_salvage_keeps_the_delivery_times_of_delayed_messages(store: Path, tmp_path: Path) -> None:
    """Places in the log move, and with them what is known of them."""
    first = store / "commitlog" / f"{0:020d}"
    raw = bytearray(first.read_bytes())
    raw[4] ^= 1  # the magic of the first record, which is not delayed
    first.write_bytes(raw)
    wanted = [UNIT.unpack_from((store / QUEUE).read_bytes(), at)[2] for at in range(0, 10 * UNIT_BYTES, UNIT_BYTES)]
    target = tmp_path / "saved"
    assert salvage(StoreFiles(store), target).lost_stretches == 1
    repair(target)
    assert [
        UNIT.unpack_from((target / QUEUE).read_bytes(), at)[2] for at in range(0, 10 * UNIT_BYTES, UNIT_BYTES)
    ] == wanted
    assert verify(StoreFiles(target)).is_sound


def test_an_unreadable_delay_levels_file_in_the_store_is_reported_only_as_a_warning(store: Path) -> None:
    delay_times_path(store).parent.mkdir(exist_ok=True)
    for path in (delay_times_path(store), delay_times_path(store).with_suffix(".json.bak")):
        path.write_text("?")
    report = verify(StoreFiles(store))
    assert report.is_sound
    assert [found.level for found in report.findings if "delay_levels.json" in found.where] == [Level.WARNING]

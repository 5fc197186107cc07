"""The doctor on stores of the real broker: sound ones are sound, and of damaged ones everything whole is saved."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import attrs
import pytest

from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.store import StoreSection
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.programs.doctor.explain import explain_key, explain_queue_offset, explain_start
from flintmq.programs.doctor.export import Wanted, messages
from flintmq.programs.doctor.files import IndexGeometry, StoreFiles
from flintmq.programs.doctor.rebuild import fitting, has_damage, rebuild
from flintmq.programs.doctor.report import Level
from flintmq.programs.doctor.salvage import salvage
from flintmq.programs.doctor.verify import verify
from flintmq.testing.store import open_store, snapshot

from .test_crash_recovery import DAMAGED, VARIANTS, crashed


def config_of(root: Path) -> BrokerConfig:
    config = fitting(BrokerConfig(), StoreFiles(root))
    return attrs.evolve(config, store=attrs.evolve(config.store, preallocate=False))


def repair(root: Path) -> None:
    config = config_of(root)
    rebuild(root, config, DELAY_LEVEL_MS, damaged=has_damage(StoreFiles(root), config))


def test_verifying_a_clean_store_of_rocketmq_reports_no_findings(clean: Any, tmp_path: Path) -> None:
    """The counts of records, units and entries equal those of the dump."""
    report = verify(StoreFiles(clean.unpack(tmp_path)), DELAY_LEVEL_MS)
    assert report.findings == []
    assert report.records == len(clean.records)
    assert report.log_end_bytes == clean.log_end
    assert report.units == sum(len(units) for units in clean.dump["consumequeue"].values())


def test_verify_reports_a_changed_tags_code_or_size_in_a_consume_queue_extension_file(
    load_golden: Any, tmp_path: Path
) -> None:
    """Its tags code decides which messages a group gets."""
    root = load_golden("store-cqext").unpack(tmp_path)
    path = next((root / "consumequeue_ext").rglob("0" * 20))
    sound = path.read_bytes()
    for at, text in ((9, "has the tags code"), (1, "no unit lies at")):
        raw = bytearray(sound)
        raw[at] ^= 1
        path.write_bytes(raw)
        found = verify(StoreFiles(root), DELAY_LEVEL_MS).findings
        assert [one.level for one in found if text in one.what] == [Level.ERROR]
    path.unlink()
    assert not verify(StoreFiles(root), DELAY_LEVEL_MS).is_sound


def test_explaining_a_queue_offset_shows_the_fields_of_the_consume_queue_extension_unit(
    load_golden: Any, tmp_path: Path
) -> None:
    """An address in the place of a tags code says nothing by itself."""
    golden = load_golden("store-cqext")
    files = StoreFiles(golden.unpack(tmp_path))
    name, units = next(iter(golden.dump["consumequeue_ext"].items()))
    topic, _, queue_id = name.partition("/")
    found = explain_queue_offset(files, topic, int(queue_id), 3)
    assert found["fits"]
    assert found["extension"] == {
        "at": units[3]["at"],
        "size": 20 + len(units[3]["bitMap"]) // 2,
        "tags_code": units[3]["tagsCode"],
        "store_timestamp_ms": units[3]["storeTimestamp"],
        "bit_map": units[3]["bitMap"],
    }


def test_repair_of_a_clean_store_changes_no_byte(clean: Any, tmp_path: Path) -> None:
    """Queues and index are those that the real broker made; only extension files are not (their bit maps need the filters)."""
    before = snapshot(clean.unpack(tmp_path), "consumequeue", "index")
    repair(tmp_path)
    after = snapshot(tmp_path, "consumequeue", "index")
    queues = [name for name in before if name.startswith("consumequeue")]
    if not (tmp_path / "consumequeue_ext").exists() and "store-cqext" not in str(clean.archive):
        assert {name: after[name] for name in queues} == {name: before[name] for name in queues}
    index = [[raw for name, raw in sorted(files.items()) if name.startswith("index")] for files in (before, after)]
    assert index[0] == index[1]
    assert verify(StoreFiles(tmp_path), DELAY_LEVEL_MS).findings == []


def test_the_export_of_a_store_of_rocketmq_has_every_message_unchanged(clean: Any, tmp_path: Path) -> None:
    """Place, queue, body, properties and times, as the real decoder read them."""
    found = list(messages(StoreFiles(clean.unpack(tmp_path)), Wanted()))
    assert len(found) == len(clean.records)
    for record, wanted in zip(found, clean.records, strict=True):
        assert (record.topic, record.queue_id, record.queue_offset) == (
            wanted["topic"],
            wanted["queueId"],
            wanted["queueOffset"],
        )
        assert record.commit_log_offset_bytes == wanted["commitLogOffset"]
        assert record.store_timestamp_ms == wanted["storeTimestamp"]
        if "body_b64" in wanted:
            assert record.body == base64.b64decode(wanted["body_b64"])
        else:
            assert hashlib.sha256(record.body).hexdigest() == wanted["body_sha256"]
        assert record.properties == wanted["properties"]


def test_explaining_an_index_key_finds_every_message_that_rocketmq_returns_for_this_key(
    load_golden: Any, tmp_path: Path
) -> None:
    """Each key that the real broker was asked for leads to the messages it answered."""
    golden = load_golden("store-basic")
    files = StoreFiles(golden.unpack(tmp_path), IndexGeometry(100, 400))
    for query in golden.manifest["queries"]:
        chains = [
            entry for file in explain_key(files, query["topic"], query["key"])["files"] for entry in file["chain"]
        ]
        found = {entry["position"] for entry in chains if entry.get("message") == "has the key"}
        assert found >= set(query["commitLogOffsets"])


@pytest.mark.parametrize("name", VARIANTS)
def test_explaining_a_crashed_store_predicts_the_log_position_to_which_recovery_truncates_the_log(
    crash: Any, name: str, tmp_path: Path
) -> None:
    """With ``strict``, the prediction equals the recovery of the real broker."""
    root, recovered = crashed(crash, name, tmp_path)
    strict = explain_start(StoreFiles(root), BrokerConfig(store=StoreSection(compat="strict")))
    assert strict["log_ends_at"] == recovered["commitLogMaxOffset"]
    said = explain_start(StoreFiles(root))
    assert bool(said["damage"]) == (name in DAMAGED)
    assert said["refuses"] == []
    store = crash.open(root)
    try:
        assert store.watermarks.wrote == said["log_ends_at"]
    finally:
        store.close()


@pytest.mark.parametrize("name", VARIANTS)
def test_verify_distinguishes_the_effects_of_a_crash_from_damage(crash: Any, name: str, tmp_path: Path) -> None:
    """Torn tails and queues that are behind are for a start to mend; bad bytes with records behind them are not."""
    root, _recovered = crashed(crash, name, tmp_path)
    report = verify(StoreFiles(root), DELAY_LEVEL_MS)
    damage = [found for found in report.findings if "damage in the middle" in found.what]
    assert bool(damage) == (name in DAMAGED)
    if name in ("clean-flag-torn", "clean-flag-cq-behind"):
        assert not report.is_sound, "a start trusts the clean stop, and will not mend it"
    elif name not in DAMAGED:
        assert report.is_sound


@pytest.mark.parametrize("name", sorted(DAMAGED))
def test_salvage_keeps_every_record_except_the_damaged_record(crash: Any, name: str, tmp_path: Path) -> None:
    """All but the one that was hit, as the dump has them; the result is sound and a broker opens it."""
    root, _recovered = crashed(crash, name, tmp_path / "damaged")
    target = tmp_path / "saved"
    saved = salvage(StoreFiles(root), target)
    assert saved.records == len(crash.records) - 1
    assert saved.lost_stretches == 1
    rebuild(target, config_of(target), DELAY_LEVEL_MS)
    assert verify(StoreFiles(target), DELAY_LEVEL_MS).findings == []
    found = {record.properties["UNIQ_KEY"]: record.body for record in messages(StoreFiles(target), Wanted())}
    store = open_store(target, config=config_of(target))
    try:
        places = [(topic, queue_id) for topic in store.reader.topics() for queue_id in range(8)]
        queued = sum(store.reader.max_queue_offset(*place) - store.reader.min_queue_offset(*place) for place in places)
        assert queued == saved.records
    finally:
        store.close()
    wanted = {record["properties"]["UNIQ_KEY"]: record for record in crash.records}
    assert len(wanted.keys() - found.keys()) == 1
    for key, body in found.items():
        if "body_b64" in wanted[key]:
            assert body == base64.b64decode(wanted[key]["body_b64"])

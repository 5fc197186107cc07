"""What the real broker wrote with enableConsumeQueueExt and enableCalcFilterBitMap comes out here, byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.record.bloom import BloomFilter
from flintmq.core.record.record import decode_record
from flintmq.core.store.message_store import MessageStore, open_store
from flintmq.dispatchers.filter_bitmap import CalcBitMap
from flintmq.plugins.filters.consumer_filters import ConsumerFilterManager
from flintmq.plugins.filters.sql92 import sql92_filter
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import snapshot, store_spec

FOLDERS = ("consumequeue", "consumequeue_ext")


@pytest.fixture
def golden(load_golden: Any) -> Any:
    return load_golden("store-cqext")


def filters_of(golden: Any, root: Path, *, are_live: bool = True) -> ConsumerFilterManager:
    """The filters as the file has them, at the time of the last message; their groups have sent a heartbeat since the load."""
    clock = ManualClock(golden.records[-1]["storeTimestamp"] + 60_000)
    made = ConsumerFilterManager(
        clock, {"SQL92": sql92_filter}, BloomFilter(20, 32), JsonFile(root / "config" / "consumerFilter.json")
    )
    assert made.load()
    for group in golden.manifest["groups"] if are_live else ():
        known = made.find("GoldenFilter", group["group"])
        assert known is not None
        wanted = SubscriptionData(
            topic="GoldenFilter",
            sub_string=group["sql"],
            expression_type="SQL92",
            sub_version=known.client_version,
        )
        made.register(group["group"], [wanted])
    return made


def open_with_filters(golden: Any, root: Path, filters: ConsumerFilterManager) -> MessageStore:
    given = dict(line.split("=") for line in golden.manifest["brokerProperties"])
    spec = store_spec(
        root,
        commit_log_file_bytes=int(given["mappedFileSizeCommitLog"]),
        consume_queue_file_bytes=int(given["mappedFileSizeConsumeQueue"]),
        max_hash_slot_num=int(given["maxHashSlotNum"]),
        max_index_num=int(given["maxIndexNum"]),
        consume_queue_ext_enable=given["enableConsumeQueueExt"] == "true",
        consume_queue_ext_file_bytes=int(given["mappedFileSizeConsumeQueueExt"]),
    )
    return open_store(spec, lambda opened: [CalcBitMap(filters), opened.consume_queues, opened.index])


@pytest.mark.parametrize("crashed", [False, True])
def test_rebuilt_queues_and_extension_files_equal_those_of_rocketmq(golden: Any, tmp_path: Path, crashed: bool) -> None:
    """Addresses, tags codes, store times and bit maps, by dispatch from the log and by recovery.

    The four groups were known before the first message and are still in consumerFilter.json, so that file is all it takes.
    """
    before = snapshot(golden.unpack(tmp_path), *FOLDERS)
    assert any(name.startswith("consumequeue_ext") for name in before)
    for folder in FOLDERS:
        shutil.rmtree(tmp_path / folder)
    if crashed:
        (tmp_path / "abort").touch()
    open_with_filters(golden, tmp_path, filters_of(golden, tmp_path)).close()
    assert snapshot(tmp_path, *FOLDERS) == before


def test_flintmq_reads_a_consumer_filter_file_of_rocketmq_and_writes_the_same_bytes(
    golden: Any, tmp_path: Path
) -> None:
    """A Java broker that takes the store back finds its file unchanged."""
    path = golden.unpack(tmp_path) / "config" / "consumerFilter.json"
    before = path.read_bytes()
    made = filters_of(golden, tmp_path, are_live=False)
    assert len(made) == 4
    assert not made.persist(), "nothing changed"
    made.file.is_dirty = True
    assert made.persist()
    assert path.read_bytes() == before


def test_extension_units_are_read_as_rocketmqs_own_code_reads_them(golden: Any, tmp_path: Path) -> None:
    """The units are read through the addresses in the queues, as a pull reads them."""
    store = open_with_filters(golden, golden.unpack(tmp_path), filters_of(golden, tmp_path))
    try:
        found: dict[str, list[tuple[int, int, int, str]]] = {}
        for (topic, queue_id), queue in store.consume_queues.queues.items():
            assert queue.ext is not None
            units = found[f"{topic}/{queue_id}"] = []
            for queue_offset in range(queue.max_queue_offset):
                raw = queue.unit(queue_offset)
                assert raw is not None
                unit = queue.ext.get(raw[2])
                assert unit is not None
                assert unit.bit_map is not None
                units.append((raw[2] + 2**63, unit.tags_code, unit.store_timestamp_ms, unit.bit_map.hex()))
        assert found == {
            name: [(unit["at"], unit["tagsCode"], unit["storeTimestamp"], unit["bitMap"]) for unit in units]
            for name, units in golden.dump["consumequeue_ext"].items()
        }
    finally:
        store.close()


@pytest.mark.parametrize("by_bit_map_alone", [False, True])
def test_the_sql92_filter_of_each_group_selects_the_messages_that_the_java_broker_delivered(
    golden: Any, tmp_path: Path, by_bit_map_alone: bool
) -> None:
    """The consumers of the recording, by expression and bit map; the bit map alone says no more than the expression allows."""
    filters = filters_of(golden, golden.unpack(tmp_path))
    store = open_with_filters(golden, tmp_path, filters)
    try:
        for group in golden.manifest["groups"]:
            data = filters.find("GoldenFilter", group["group"])
            assert data is not None
            assert data.compiled is not None
            made = filters.backed("GoldenFilter", group["group"], "SQL92", data.compiled, group["sql"])
            if by_bit_map_alone:
                made.needs_properties = False  # type: ignore[misc]
            found = set()
            for queue_id in (0, 1):
                at = 0
                while at < store.reader.max_queue_offset("GoldenFilter", queue_id):
                    result = store.reader.get_message("GoldenFilter", queue_id, at, 32, made)
                    for piece in result.slices:
                        record = decode_record(piece)
                        found.add((queue_id, record.queue_offset))
                    at = result.next_begin_offset
            wanted = {(entry["queueId"], entry["queueOffset"]) for entry in group["received"]}
            assert found >= wanted if by_bit_map_alone else found == wanted
            if by_bit_map_alone:
                assert len(found) < 60, "the bit maps spared something"
    finally:
        store.close()

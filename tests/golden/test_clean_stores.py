"""A stopped Java broker's store opens in FlintMQ: every record, position and answer is what RocketMQ said it is."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import struct
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.record.host import decode_message_id, unpack_host
from flintmq.core.record.properties import string_to_properties
from flintmq.core.record.record import (
    MAGIC_V1,
    MessageExtBrokerInner,
    Record,
    decode_record,
    encode_blank,
    encode_record,
    record_size,
)
from flintmq.core.store.message_store import MessageStore
from flintmq.dispatchers.index.index_service import IndexService
from flintmq.testing.store import snapshot

FOREVER_MS = 2**63 - 1


def address(text: str) -> tuple[str, int]:
    """``host:port`` as the dump has it, an IPv6 address with or without brackets."""
    ip, _, port = text.rpartition(":")
    return str(ipaddress.ip_address(ip.strip("[]/").partition("%")[0])), int(port)


def described(record: Record) -> dict[str, Any]:
    """A record in the dump's words."""
    text: dict[str, Any] = {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.commit_log_offset_bytes,
        "storeSize": record.size_bytes,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bodyCRC": record.body_crc,
        "bornTimestamp": record.born_timestamp_ms,
        "bornHost": unpack_host(record.born_host),
        "storeTimestamp": record.store_timestamp_ms,
        "storeHost": unpack_host(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset_bytes,
        "properties": record.properties,
        "body_len": len(record.body),
    }
    if len(record.body) <= 512:
        text["body_b64"] = base64.b64encode(record.body).decode()
    else:
        text["body_sha256"] = hashlib.sha256(record.body).hexdigest()
    return text


def expected(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "bornHost": address(entry["bornHost"]), "storeHost": address(entry["storeHost"])}


def all_records(store: MessageStore) -> list[Record]:
    walked = store.commit_log.requests(store.commit_log.min_offset_bytes, store.commit_log.max_offset_bytes)
    records = [store.reader.message_at(request.commit_log_offset_bytes) for request in walked]
    return [record for record in records if record is not None]


def test_every_field_of_each_record_in_a_java_store_is_read_with_its_recorded_value(clean: Any, tmp_path: Path) -> None:
    """The log is the truth: each field of each record, addresses, properties and bodies."""
    store = clean.open(clean.unpack(tmp_path))
    try:
        assert store.started_clean
        assert store.commit_log.max_offset_bytes == clean.log_end
        assert [described(record) for record in all_records(store)] == [expected(entry) for entry in clean.records]
    finally:
        store.close()


def test_decoded_records_of_a_java_store_are_encoded_to_their_original_bytes(clean: Any, tmp_path: Path) -> None:
    """FlintMQ must write the same bytes as RocketMQ for the same messages."""
    log = b"".join(snapshot(clean.unpack(tmp_path), "commitlog").values())
    for entry in clean.dump["commitlog"]:
        at = entry["commitLogOffset"]
        if "topic" not in entry:
            assert log[at : at + 8] == encode_blank(entry["size"])
            continue
        raw = log[at : at + entry["storeSize"]]
        assert struct.unpack_from(">I", raw, 4) == (MAGIC_V1,)
        record = decode_record(raw)
        message = MessageExtBrokerInner(
            record.topic,
            record.queue_id,
            record.body,
            record.properties,
            record.properties_bytes,
            record.born_timestamp_ms,
            record.born_host,
            record.store_host,
            record.flag,
            record.sys_flag,
            record.reconsume_times,
            record.prepared_transaction_offset_bytes,
        )
        size = record_size(message)
        assert b"".join(encode_record(message, size, record.queue_offset, at, record.store_timestamp_ms)) == raw


def test_opening_and_closing_a_store_changes_no_byte(clean: Any, tmp_path: Path) -> None:
    """The store must go back to the Java broker as it came."""
    folders = ("commitlog", "consumequeue", "consumequeue_ext", "index")
    before = snapshot(clean.unpack(tmp_path), *folders)
    clean.open(tmp_path).close()
    assert snapshot(tmp_path, *folders) == before
    assert not (tmp_path / "abort").exists()


def test_rebuilt_consume_queues_equal_the_consume_queues_of_rocketmq(clean: Any, tmp_path: Path) -> None:
    """Queues are derived: deleted, they come back byte for byte.

    The units of store-cqext carry addresses of ConsumeQueueExt units in place of tags codes. The rebuild does not make
    those, so there the tags codes of the ext units are compared instead, and offsets and sizes of the queue's.
    """
    before = snapshot(clean.unpack(tmp_path / "a"), "consumequeue")
    after = snapshot(clean.rebuild(tmp_path / "b"), "consumequeue")
    assert after.keys() == before.keys()
    if "consumequeue_ext" not in clean.dump:
        assert after == before
        return
    for name, raw in before.items():
        units = list(struct.iter_unpack(">qiq", raw))
        rebuilt = list(struct.iter_unpack(">qiq", after[name]))
        assert [unit[:2] for unit in rebuilt] == [unit[:2] for unit in units]
        by_address = {
            unit["at"] - 2**63: unit["tagsCode"] for unit in clean.dump["consumequeue_ext"][str(Path(name).parent)[13:]]
        }
        assert [unit[2] for unit in rebuilt] == [by_address.get(unit[2], unit[2]) for unit in units]


def test_a_rebuilt_index_equals_that_of_rocketmq(clean: Any, tmp_path: Path) -> None:
    """All bytes are compared; only the names of the files differ, because they are times of creation."""
    before = snapshot(clean.unpack(tmp_path / "a"), "index")
    after = snapshot(clean.rebuild(tmp_path / "b"), "index")
    assert [after[name] for name in sorted(after)] == [before[name] for name in sorted(before)]


def test_flintmq_and_rocketmq_read_equal_values_from_consume_queues_and_indexes_and_checkpoints(
    clean: Any, tmp_path: Path
) -> None:
    """Units, index headers and the checkpoint's three times, through the objects that read them."""
    store = clean.open(clean.unpack(tmp_path))
    try:
        units = {
            f"{topic}/{queue_id}": [
                [at, *unit] for at in range(queue.max_queue_offset) if (unit := queue.unit(at)) is not None
            ]
            for (topic, queue_id), queue in store.consume_queues.queues.items()
        }
        assert units == clean.dump["consumequeue"]
        assert isinstance(store.index, IndexService)
        assert [header(file) for file in store.index.files] == [
            {name: value for name, value in entry.items() if name not in ("file", "size")}
            for entry in clean.dump["index"]
        ]
        assert [file.path.name for file in store.index.files] == [entry["file"] for entry in clean.dump["index"]]
        checkpoint = clean.dump["checkpoint"]
        assert store.checkpoint.physic_msg_timestamp_ms == checkpoint["physicMsgTimestamp"]
        assert store.checkpoint.logics_msg_timestamp_ms == checkpoint["logicsMsgTimestamp"]
        assert store.checkpoint.index_msg_timestamp_ms == checkpoint["indexMsgTimestamp"]
    finally:
        store.close()
    names = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
    kept = struct.unpack_from(">qqq", (tmp_path / "checkpoint").read_bytes())
    assert kept == tuple(clean.dump["checkpoint"][name] for name in names)


def header(file: Any) -> dict[str, int]:
    return {
        "beginTimestamp": file.begin_timestamp_ms,
        "endTimestamp": file.end_timestamp_ms,
        "beginPhyOffset": file.begin_physical_offset_bytes,
        "endPhyOffset": file.end_physical_offset_bytes,
        "hashSlotCount": file.hash_slot_count,
        "indexCount": file.index_count,
    }


@pytest.mark.parametrize("rebuilt", [False, True])
def test_queue_offsets_equal_those_that_the_java_broker_answered(clean: Any, tmp_path: Path, rebuilt: bool) -> None:
    """Min and max per queue, the oldest message's time, and where each message lies."""
    store = clean.open(clean.rebuild(tmp_path) if rebuilt else clean.unpack(tmp_path))
    try:
        for topic, queues in clean.part["state"]["topics"].items():
            for queue in queues:
                key = (topic, queue["queueId"])
                assert store.reader.min_queue_offset(*key) == queue["minOffset"]
                assert store.reader.max_queue_offset(*key) == queue["maxOffset"]
                if not queue["maxOffset"]:
                    continue
                assert store.reader.earliest_message_store_time(*key) == queue["earliestMsgStoreTime"]
                found: list[int] = []
                while len(found) < queue["maxOffset"]:
                    result = store.reader.get_message(*key, queue["minOffset"] + len(found), 32, None)
                    batch = b"".join(result.slices)
                    at = 0
                    while at < len(batch):
                        record = decode_record(batch, at)
                        found.append(record.commit_log_offset_bytes)
                        at += record.size_bytes
                assert found == queue["messages"]
    finally:
        store.close()


@pytest.mark.parametrize("name", ["store-basic", "store-delay-tran:after"])
@pytest.mark.parametrize("rebuilt", [False, True])
def test_queries_by_key_and_time_return_what_the_java_broker_answered(
    load_golden: Any, name: str, tmp_path: Path, rebuilt: bool
) -> None:
    """Request codes 12 and 29, from the files as they came and from rebuilt ones."""
    golden = load_golden(name)
    store = golden.open(golden.rebuild(tmp_path) if rebuilt else golden.unpack(tmp_path))
    try:
        for query in golden.manifest.get("queries", []):
            end_ms = min(query["end"], FOREVER_MS)
            slices, _time, _end = store.reader.query_message(
                query["topic"], query["key"], query["maxNum"], query["begin"], end_ms
            )
            records = [decode_record(piece) for piece in slices]
            if query["uniqKeyQuery"]:
                records = [
                    r for r in records if string_to_properties(r.properties_bytes.decode())["UNIQ_KEY"] == query["key"]
                ]
            assert [r.commit_log_offset_bytes for r in records] == query["commitLogOffsets"], query
        for search in golden.manifest.get("searchOffset", []):
            asked = (search["topic"], search["queueId"], search["timestamp"])
            assert store.reader.queue_offset_by_time(*asked) == search["offset"], search
    finally:
        store.close()


def test_each_message_in_a_java_store_is_found_by_the_message_id_that_the_java_broker_returned(
    load_golden: Any, tmp_path: Path
) -> None:
    """Clients keep the topic, queue and offset of the answer to find the message again."""
    golden = load_golden("store-basic")
    store = golden.open(golden.unpack(tmp_path))
    try:
        checked = 0
        for sent in golden.manifest["sent"]:
            answer = sent["answer"]
            if answer.get("offsetMsgId") is None:
                continue
            for member, message_id in enumerate(answer["offsetMsgId"].split(",")):  # several: a batch
                record = store.reader.message_at(decode_message_id(message_id).commit_log_offset_bytes)
                assert record is not None
                assert record.topic == sent.get("topic", record.topic)
                assert (record.queue_id, record.queue_offset) == (answer["queueId"], answer["queueOffset"] + member)
                checked += 1
        assert checked > 200
    finally:
        store.close()

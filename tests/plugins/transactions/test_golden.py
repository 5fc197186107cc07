"""A store that RocketMQ left with open transactions is taken over, and goes on exactly as RocketMQ's own did."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.service import TransactionsSection
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.broker.producers import ProducerTable
from flintmq.core.broker.topics import TopicConfigManager
from flintmq.core.errors import RefusedError
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.record.properties import properties_to_string
from flintmq.core.record.record import Record, decode_record
from flintmq.plugins.transactions import half_message as half
from flintmq.plugins.transactions.store import TransactionStore
from flintmq.plugins.transactions.transactional_messages import TransactionalMessageService
from flintmq.remoting.wire.headers_message import EndTransactionRequestHeader
from flintmq.testing.clock import ManualClock
from flintmq.testing.processor_kit import RecordingChannel
from flintmq.testing.store import open_store
from flintmq.tests.support.state import state_of

SHARED = Path(os.environ.get("FLINTMQ_SHARED") or Path(str(flintmq.__file__)).resolve().parent.parent / "shared")
SET = SHARED / "golden" / "store-delay-tran"
FRAMES = SHARED / "golden" / "frames" / "frames.jsonl.gz"
FIRST_CHECK = 7464
"""End of the log before RocketMQ's first check, in bytes."""
GIVEN_UP_END = 9936 + 371
COMMIT, ROLLBACK = 8, 12


def records() -> list[dict[str, Any]]:
    if not SET.exists():
        pytest.skip(f"the golden store {SET} is not here")
    with gzip.open(SET / "dump-after.json.gz", "rt") as dump:
        return [entry for entry in json.load(dump)["commitlog"] if "topic" in entry]


class TakenOver:
    """RocketMQ's store under this broker's transactions."""

    def __init__(self, folder: Path, now_ms: int) -> None:
        self.clock = ManualClock(now_ms)
        self.store = open_store(
            folder,
            clock=self.clock,
            commit_log_file_bytes=65536,
            consume_queue_file_bytes=1000,
            max_hash_slot_num=100,
            max_index_num=400,
        )
        self.offsets = ConsumerOffsetManager(JsonFile(folder / "config" / "consumerOffset.json"))
        self.offsets.load()
        producers = ProducerTable(self.clock)
        self.channel = RecordingChannel()
        producers.register("golden_pg_tx", self.channel, "client")
        topics = TopicConfigManager(None, self.clock, {})
        state = state_of(clock=self.clock, store=self.store, offsets=self.offsets, topics=topics)
        config = BrokerConfig(transactions=TransactionsSection(timeout_ms=1000, check_interval_ms=2000, check_max=3))
        self.service = TransactionalMessageService(
            TransactionStore(state.api), producers, lambda _message: False, lambda: config, self.clock
        )
        self.service.load()

    def round(self, now_ms: int) -> list[dict[str, str]]:
        self.clock.advance_ms(now_ms - self.clock.now_ms())
        before = len(self.channel.sent)
        self.service.run()
        self.store.dispatch()
        return [header for _, header, _ in self.channel.sent[before:]]

    def end(self, place: int, half_queue_offset: int, decision: int) -> None:
        self.service.end(
            EndTransactionRequestHeader(
                producer_group="golden_pg_tx",
                tran_state_table_offset=half_queue_offset,
                commit_log_offset_bytes=place,
                commit_or_rollback=decision,
                msg_id="",
            )
        )
        self.store.dispatch()

    def close(self) -> None:
        self.service.save()
        self.offsets.persist()
        self.store.close()


def unpack(folder: Path) -> Path:
    folder.mkdir()
    with tarfile.open(SET / "store-after.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_open_transactions_of_a_java_store_are_checked_and_ended_as_in_rocketmq(tmp_path: Path) -> None:
    real = [entry for entry in records() if FIRST_CHECK <= entry["commitLogOffset"] < GIVEN_UP_END]
    folder = unpack(tmp_path / "store")
    with open(folder / "commitlog" / "00000000000000000000", "r+b") as log:
        log.seek(FIRST_CHECK)
        log.write(bytes(65536 - FIRST_CHECK))
    shutil.rmtree(folder / "consumequeue")
    shutil.rmtree(folder / "index")
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (folder / "config" / name).unlink()

    stored = iter(real)
    broker = TakenOver(folder, real[0]["storeTimestamp"] - 2000)
    asked = broker.round(real[0]["storeTimestamp"])
    assert [header["tranStateTableOffset"] for header in asked] == ["7", "8", "9"]
    broker.end(7464, 7, COMMIT)
    broker.end(7832, 8, ROLLBACK)
    assert len(broker.round(broker.clock.now_ms() + 2000)) == 1
    broker.close()
    broker = TakenOver(folder, broker.clock.now_ms())
    assert len(broker.round(broker.clock.now_ms() + 2000)) == 1
    assert len(broker.round(broker.clock.now_ms() + 2000)) == 0
    compared = 0
    for request in broker.store.commit_log.requests(FIRST_CHECK, broker.store.watermarks.wrote):
        wanted = next(stored)
        record = broker.store.reader.message_at(request.commit_log_offset_bytes)
        assert record is not None
        assert {
            "topic": record.topic,
            "queueId": record.queue_id,
            "queueOffset": record.queue_offset,
            "commitLogOffset": record.commit_log_offset_bytes,
            "storeSize": record.size_bytes,
            "flag": record.flag,
            "sysFlag": record.sys_flag,
            "bodyCRC": record.body_crc,
            "preparedTransactionOffset": record.prepared_transaction_offset_bytes,
            "properties": record.properties,
        }.items() <= wanted.items()
        compared += 1
    assert compared == len(real) == 9
    broker.close()
    assert '"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:12' in (folder / "config/consumerOffset.json").read_text()
    assert '"RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:6' in (folder / "config/consumerOffset.json").read_text()


def test_transactions_ended_by_rocketmq_cannot_be_ended_again(tmp_path: Path) -> None:
    entries = [entry for entry in records() if entry["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"]
    broker = TakenOver(unpack(tmp_path / "store"), entries[-1]["storeTimestamp"])
    assert not broker.round(broker.clock.now_ms() + 10_000)
    accepted = []
    for entry in entries:
        try:
            broker.end(entry["commitLogOffset"], entry["queueOffset"], COMMIT)
        except RefusedError as error:
            assert "has ended" in str(error)  # noqa: PT017 - most are refused, the one that is not is told below
        else:
            accepted.append(entry["properties"]["plan"])
    assert accepted == ["unknown"], "only the one that was given up is open, and can be ended once"
    assert broker.store.reader.max_queue_offset("GoldenTran", 0) == 3
    broker.close()


@pytest.mark.parametrize("variant", ["json", "rocketmq"])
def test_the_transaction_check_request_equals_that_of_rocketmq(variant: str) -> None:
    if not FRAMES.exists():
        pytest.skip(f"the golden frames {FRAMES} are not here")
    with gzip.open(FRAMES, "rt") as lines:
        frames = [json.loads(line) for line in lines]
    (frame,) = [f for f in frames if f["code"] == 39 and f["variant"] == variant]
    raw = bytes.fromhex(frame["request_hex"])
    body = raw[len(raw) - frame["request"]["bodyLength"] :]
    shown = decode_record(body)
    properties = shown.properties
    del properties["TRANSACTION_CHECK_TIMES"]
    properties["WAIT"] = "true"
    original = half_record(shown, properties)
    message = half.copy_of(original, {"TRANSACTION_CHECK_TIMES": "1"})
    copy = DispatchRequest(
        message.topic,
        0,
        shown.commit_log_offset_bytes,
        1,
        0,
        0,
        shown.queue_offset,
        "",
        properties["UNIQ_KEY"],
        0,
        0,
        message.properties,
    )
    assert half.check_header(original, copy) == frame["request"]["extFields"]
    made = decode_record(half.check_body(original, message, copy))
    assert made.properties == shown.properties
    made.properties_bytes = shown.properties_bytes  # their order is a Java map's
    assert made == shown


def half_record(shown: Record, properties: dict[str, str]) -> Record:
    return Record(
        "RMQ_SYS_TRANS_HALF_TOPIC",
        0,
        2,
        0,
        0,
        shown.flag,
        shown.sys_flag,
        shown.body_crc,
        shown.born_timestamp_ms,
        shown.born_host,
        shown.store_timestamp_ms,
        shown.store_host,
        shown.reconsume_times,
        0,
        shown.body,
        properties_to_string(properties).encode(),
    )

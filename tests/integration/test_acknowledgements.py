"""Under a synchronous strategy nothing that stores is answered before the sync: not one way in, but every one there is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bare_wire import Wire, send_fields, sent

import flintmq
from flintmq.core.io import fastjson
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.core.record.properties import properties_to_string
from flintmq.remoting.wire.codes import RequestCode
from flintmq.tests.support.faulty_disk import FaultyDisk

HALF = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "A"}
Post = Callable[[Wire, dict[str, Any]], int]


class HeldSyncs(FaultyDisk):
    """A disk whose syncs of the commit log wait while the gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def check(self, operation: Any, path: Path) -> None:
        if operation == "sync" and "commitlog" in path.parts:
            assert self.gate.wait(60)
        super().check(operation, path)


def post_send(wire: Wire, **properties: str) -> int:
    return wire.post_send("T", b"x", properties=properties)


def post_batch(wire: Wire, _known: dict[str, Any]) -> int:
    items = encode_batch([BatchItem(0, b"1", b""), BatchItem(0, b"2", b"")])
    return wire.post(RequestCode.SEND_BATCH_MESSAGE, send_fields("T", batch=True), items)


def post_send_back(wire: Wire, known: dict[str, Any]) -> int:
    fields = {"offset": known["place"], "group": "G", "delayLevel": 1, "originMsgId": "", "originTopic": "T"}
    return wire.post(RequestCode.CONSUMER_SEND_MSG_BACK, fields)


def post_end(wire: Wire, known: dict[str, Any], decision: int) -> int:
    fields = {
        "producerGroup": "P",
        "tranStateTableOffset": known["half"].queue_offset,
        "commitLogOffset": int(known["half"].message_id[16:], 16),
        "commitOrRollback": decision,
        "fromTransactionCheck": "false",
        "msgId": "A",
    }
    return wire.post(RequestCode.END_TRANSACTION, fields)


def post_resume(wire: Wire, known: dict[str, Any]) -> int:
    return wire.post(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": known["half"].message_id})


WAYS_IN: dict[str, Post] = {
    "a send": lambda wire, _known: post_send(wire),
    "a delayed message": lambda wire, _known: post_send(wire, DELAY="3"),
    "a timed message": lambda wire, _known: post_send(wire, TIMER_DELAY_MS="60000"),
    "a half message": lambda wire, _known: post_send(wire, **HALF | {"UNIQ_KEY": "B"}),
    "a batch": post_batch,
    "a message sent back": post_send_back,
    "a commit": lambda wire, known: post_end(wire, known, 8),
    "a rollback": lambda wire, known: post_end(wire, known, 12),
    "a check that is to begin again": post_resume,
}


@pytest.mark.parametrize("way_in", WAYS_IN)
def test_every_request_that_stores_a_message_is_answered_after_the_log_is_synced(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], way_in: str, unexpected: list[str]
) -> None:
    """A later request of the same connection is answered while the sync is held; this one is not, until it has ended."""
    disk = HeldSyncs()
    with flintmq.Broker(configure("flush.strategy=group_commit"), disk=disk) as broker:
        wire = connect(broker)
        group = fastjson.dumps({"groupName": "G", "retryQueueNums": 1, "retryMaxTimes": 16}).encode()
        assert wire.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group).code == 0
        known = {
            "place": int(wire.send("T", b"first").message_id[16:], 16),
            "half": wire.send("T", b"half", properties=HALF),
        }
        disk.gate.clear()
        opaque = WAYS_IN[way_in](wire, known)
        assert wire.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}).code == 0
        assert opaque not in wire._answers, "acknowledged, and a power cut can still take it"
        disk.gate.set()
        assert wire.answer(opaque).code == 0


def test_an_in_process_put_returns_after_the_log_is_synced(configure: Callable[..., Any]) -> None:
    """A message with ``WAIT=false`` is answered at once, also over the wire."""
    disk = HeldSyncs()
    with flintmq.Broker(configure("flush.strategy=group_commit"), disk=disk) as broker:
        broker.put([flintmq.Message("T", b"first")])
        disk.gate.clear()
        done = threading.Event()

        def put() -> None:
            broker.put([flintmq.Message("T", b"second")])
            done.set()

        writer = threading.Thread(target=put)
        writer.start()
        wire = Wire(broker.address)
        fields = send_fields("T", properties=properties_to_string({"WAIT": "false"}))
        assert sent(wire.ask(RequestCode.SEND_MESSAGE_V2, fields, b"no wait")).code == 0
        assert not done.is_set()
        disk.gate.set()
        assert done.wait(30)
        writer.join()
        wire.close()

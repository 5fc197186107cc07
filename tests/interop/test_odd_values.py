"""What was saved after odd values were asked for, the real broker loads: numbers beyond Java's types, texts, lists, at each
place of the bodies that become configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bare_wire import Wire

import flintmq
from flintmq.config import load_config
from flintmq.core.io import fastjson
from flintmq.remoting.wire.codes import RequestCode

from .conftest import Peer

pytestmark = [pytest.mark.slow, pytest.mark.java]

ODD = (2**31, 2**63, 2**70, -1, 1.5, "7", "x", True, None, [], {})
GROUP = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "groupName": "Kept",
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 5,
    "retryQueueNums": 2,
    "whichBrokerWhenConsumeSlowly": 1,
}
TOPIC = {
    "topic": "Kept",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}
SIZES = ("mappedFileSizeCommitLog=65536", "mappedFileSizeConsumeQueue=1000", "maxHashSlotNum=100", "maxIndexNum=400")


def group(wire: Wire, name: str, value: object) -> int:
    body = json.dumps({**GROUP, "groupName": f"Odd{name}", name: value}).encode()
    return wire.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code


@pytest.mark.timeout(300)
def test_a_java_broker_loads_a_store_of_flintmq_even_if_flintmq_received_invalid_values(
    peer: Peer, tmp_path: Path
) -> None:
    """It starts on the folder, and tells the same groups and topics as FlintMQ did."""
    store = tmp_path / "store"
    config = load_config(None, [f"store.path={store}", f"listen.port={peer.port}", *SIZES], {})
    with flintmq.Broker(config) as broker:
        wire = Wire(broker.address)
        codes = [group(wire, name, value) for name in GROUP for value in ODD]
        assert 0 in codes
        assert 1 in codes
        for name in TOPIC:
            for value in ODD:
                wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "topic": f"Odd{name}", name: str(value)})
        for name in ("queueId", "commitOffset"):
            for value in ODD:
                fields = {"consumerGroup": "Kept", "topic": "Kept", "queueId": "0", "commitOffset": "7"}
                wire.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, name: str(value)})
        assert wire.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(GROUP).encode()).code == 0
        assert wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC).code == 0
        ours = [fastjson.loads(wire.ask(code).body) for code in (201, 21)]
        wire.close()
    with peer.name_server(), peer.broker(store, *SIZES):
        wire = Wire(f"127.0.0.1:{peer.port}")
        theirs = [fastjson.loads(wire.ask(code, timeout_s=30.0).body) for code in (201, 21)]
        wire.close()
    for table, mine, real in zip(("subscriptionGroupTable", "topicConfigTable"), ours, theirs, strict=True):
        assert "Kept" in real[table]
        for name, value in mine[table].items():
            if name.startswith(("Odd", "Kept")):
                assert {key: real[table][name][key] for key in value} == value, name

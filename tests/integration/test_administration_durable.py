"""What administration is told is done must be there after a kill, and what the disk refuses must be told as refused."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from bare_wire import Wire

import flintmq
from flintmq.remoting.wire.codes import RequestCode
from flintmq.tests.support.faulty_disk import FaultyDisk


def _create(wire: Wire, topic: str, queues: int = 3) -> Any:
    header = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    return wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def _create_group(wire: Wire, group: str) -> Any:
    body = json.dumps({"groupName": group, "retryMaxTimes": 5}).encode()
    return wire.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)


def test_topic_and_group_changes_survive_a_kill_of_the_broker(configure: Any, connect: Any, tmp_path: Path) -> None:
    """The tables' files are written later; a copy of the store at this moment is what a kill leaves."""
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        for number in range(4):
            assert _create(wire, f"T{number}").code == 0
            assert _create_group(wire, f"G{number}").code == 0
        assert _create(wire, "T1", queues=7).code == 0
        assert wire.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T2"}).code == 0
        assert wire.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G2"}).code == 0
        shutil.copytree(tmp_path / "store", tmp_path / "killed")
    for store in ("killed", "store"):
        with flintmq.Broker(configure(store=store)) as broker:
            made = {config.topic_name: config.write_queue_nums for config in broker.state.topics}
            assert [made.get(f"T{number}") for number in range(4)] == [3, 7, None, 3], store
            assert [broker.state.groups.find(f"G{number}") is None for number in range(4)] == [
                False,
                False,
                True,
                False,
            ]
            assert broker.state.groups.find("G1").retry_max_times == 5
        topics = json.loads((tmp_path / store / "config" / "topics.json").read_bytes())["topicConfigTable"]
        assert topics["T1"]["writeQueueNums"] == 7, "what a Java broker reads after a clean stop"
        assert "T2" not in topics
        assert not list((tmp_path / store / "flint").glob("new-*"))


def test_an_administrative_change_that_cannot_be_written_is_refused(configure: Any, connect: Any) -> None:
    """An operator who is told that a topic is deleted does not look again."""
    disk = FaultyDisk()
    with flintmq.Broker(configure(), disk=disk) as broker:
        wire = connect(broker)
        assert _create(wire, "There").code == 0
        disk.fail("write_at", within="flint")
        for answer in (
            _create(wire, "New"),
            _create(wire, "There", queues=7),
            wire.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "There"}),
            _create_group(wire, "G"),
        ):
            assert answer.code == 1
            assert "cannot be written" in answer.remark
        assert broker.state.topics.select("New") is None
        assert broker.state.topics.select("There").write_queue_nums == 3
        assert broker.state.groups.find("G") is None
        disk.heal()
        assert _create(wire, "New").code == 0


def test_a_topic_creation_after_a_failed_sync_writes_the_whole_topic_table_to_disk(
    configure: Any, connect: Any
) -> None:
    """The kernel may have dropped what it could not write, so the whole table is written before the next answer."""
    disk = FaultyDisk()
    with flintmq.Broker(configure(), disk=disk) as broker:
        wire = connect(broker)
        disk.fail("sync", within="new-topics", times=1)
        refused = _create(wire, "A")
        assert refused.code == 1
        assert "The change is in effect, but a power cut may undo it" in refused.remark
        assert _create(wire, "B").code == 0
        written = json.loads((broker.store_path / "config" / "topics.json").read_bytes())["topicConfigTable"]
        assert {"A", "B"} <= written.keys()


def test_concurrent_administrative_requests_share_disk_syncs(configure: Any) -> None:
    """A tool that makes a thousand topics would wait for a thousand syncs of the disk."""
    disk = FaultyDisk()

    async def make_many(broker: flintmq.Broker) -> None:
        topics = broker.state.topics
        before = disk.calls["sync"]

        async def make(number: int) -> None:
            topics.create_in_send_back(f"%RETRY%G{number}", 1)
            await topics.durable()

        await asyncio.gather(*(make(number) for number in range(200)))
        assert disk.calls["sync"] - before <= 4

    with flintmq.Broker(configure(), disk=disk) as broker:
        broker.call(lambda: make_many(broker))

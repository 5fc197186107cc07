"""What is deleted is gone: from the master, from its slave, from name servers, over restarts, and after a promotion.

A broker keeps a map, a file and a folder for each queue, and entries in tables by topic and by group. Whatever of them stays
adds up until the kernel gives no more maps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from bare_wire import Wire
from replicas import caught_up, eventually, master_settings, slave_settings

import flintmq
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.config_manager import JsonFile
from flintmq.plugins.registration.registration import Registration
from flintmq.plugins.replication.service import ReplicationService
from flintmq.remoting.wire.codes import RequestCode

COUNT = 12
FEW = ("topics.default_queue_nums=2",)


@contextmanager
def connected(broker: flintmq.Broker | flintmq.NameServer) -> Iterator[Wire]:
    wire = Wire(broker.address)
    try:
        yield wire
    finally:
        wire.close()


def ask(wire: Wire, code: int, body: bytes = b"", **fields: object) -> Any:
    """Ask, and insist on success."""
    answer = wire.ask(code, fields, body)
    assert answer.code == 0, answer.remark
    return answer


def make_topic(wire: Wire, topic: str) -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    ask(wire, RequestCode.UPDATE_AND_CREATE_TOPIC, **fields)


def use(wire: Wire, topic: str, group: str) -> None:
    """Send to a topic, half messages among them, read it for a group, refuse a message of it, and say how far it was read."""
    ask(wire, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, json.dumps({"groupName": group}).encode())
    for queue_id in (0, 1):
        assert wire.send(topic, b"x", queue_id=queue_id, properties={"TAGS": "A", "KEYS": topic}).code == 0
        found = wire.pull(topic, 0, queue_id=queue_id, group=group)
        ask(
            wire, RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=1
        )
    place = found.records[0].commit_log_offset_bytes
    ask(wire, RequestCode.CONSUMER_SEND_MSG_BACK, group=group, offset=place, delayLevel=-1, originTopic=topic)
    half = wire.send(topic, b"h", properties={"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": f"{topic}{group}"})
    end = {
        "producerGroup": "P", "tranStateTableOffset": half.queue_offset, "commitLogOffset": int(half.message_id[-16:], 16),
        "commitOrRollback": 8, "msgId": f"{topic}{group}", "fromTransactionCheck": "false",
    }  # fmt: skip
    ask(wire, RequestCode.END_TRANSACTION, **end)


def delete(wire: Wire, topic: str, group: str) -> None:
    """As mqadmin does: the group with its offsets, its retries and its dead letters; the topic."""
    ask(wire, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=group, removeOffset="true")
    for name in (f"%RETRY%{group}", f"%DLQ%{group}", topic):
        ask(wire, RequestCode.DELETE_TOPIC_IN_BROKER, topic=name)


def held_by(broker: flintmq.Broker) -> dict[str, Any]:
    """All that a broker keeps by name, but for topics and groups of the system's and for what is called Kept."""
    state = broker.state
    store = Path(state.config.store.path)

    def ours(names: Any) -> list[str]:
        return sorted(name for name in map(str, names) if "Gone" in name)

    async def look() -> dict[str, Any]:
        rows = list(state.stats.table.rows())
        figures = state.stats.figures
        with open("/proc/self/maps") as maps:
            mapped = [line.split()[-1] for line in maps if f"{store}/consumequeue" in line]
        ended = [
            key for service in state.services() for key in getattr(getattr(service, "transactions", None), "ended", ())
        ]
        return {
            "topics": ours(config.topic_name for config in state.topics),
            "groups": ours(config.group_name for config in state.groups),
            "queues": ours(state.store.consume_queues.queues),
            "next offsets": ours(state.store.commit_log.appender.next_queue_offset),
            "consumer offsets": ours((topic, group) for topic, group, _ in state.offsets.all()),
            "counters": ours(key for _, key, _, _ in rows),
            "sizes": ours((*figures.sizes, *figures.pulled)) if figures is not None else [],
            "transactions": ours(ended),
            "learned": ours(state.topics.learned),
            "maps": ours(mapped),
            "files": ours(
                path for folder in ("consumequeue", "consumequeue_ext") for path in (store / folder).rglob("*")
            ),
        }

    return broker.call(look)


def gone(broker: flintmq.Broker) -> bool:
    return not any(held_by(broker).values())


@attrs.frozen
class Pair:
    """The places of a master and its slave."""

    master: Path
    slave: Path
    settings: tuple[str, ...] = ()

    def start_master(self) -> flintmq.Broker:
        return flintmq.Broker(master_settings(self.master, *FEW, *self.settings))

    def start_slave(self, master: flintmq.Broker) -> flintmq.Broker:
        return flintmq.Broker(slave_settings(self.slave, master, *FEW))

    def promote(self) -> flintmq.Broker:
        return flintmq.Broker(master_settings(self.slave, *FEW))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path / "m", tmp_path / "s")


def synchronized(slave: flintmq.Broker, *, rounds: int = 2) -> None:
    """Wait until the slave has compared its tables with its master's again."""
    service = slave.state.service(ReplicationService).end.synchronize
    wanted = service.rounds + rounds
    eventually(lambda: service.rounds >= wanted, "the slave has asked its master")


def kept_is_there(broker: flintmq.Broker) -> None:
    """What was not deleted has its queue, its messages and its offsets."""
    with connected(broker) as wire:
        assert wire.ask(RequestCode.GET_MAX_OFFSET, {"topic": "Kept", "queueId": 0}).ext_fields["offset"] != "0"
        fields = {"consumerGroup": "KeptGroup", "topic": "Kept", "queueId": 0}
        assert wire.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields).ext_fields["offset"] == "1"


@pytest.mark.slow
def test_deleted_topics_and_groups_release_all_resources_on_master_and_slave(pair: Pair, unexpected: list[str]) -> None:
    """While the slave follows: as many names come and go as you like, and both are as before."""
    with pair.start_master() as master, pair.start_slave(master) as slave, connected(master) as wire:
        make_topic(wire, "Kept")
        use(wire, "Kept", "KeptGroup")
        for number in range(COUNT):
            make_topic(wire, f"Gone{number}")
            use(wire, f"Gone{number}", f"GoneGroup{number % 3}")
        caught_up(master, slave)
        eventually(lambda: len(held_by(slave)["consumer offsets"]) >= COUNT, "the slave has the offsets")
        assert all(
            held_by(master)[kind] for kind in ("queues", "consumer offsets", "counters", "transactions", "files")
        )
        assert all(held_by(slave)[kind] for kind in ("queues", "consumer offsets", "groups", "maps", "files"))
        for number in range(COUNT):
            delete(wire, f"Gone{number}", f"GoneGroup{number % 3}")
        assert {kind: found for kind, found in held_by(master).items() if found} == {}
        killed = ConsumerOffsetManager(
            JsonFile(pair.master / "config" / "consumerOffset.json"),
            journal=ConfigJournal(pair.master / "flint" / "gone-offsets"),
        )
        killed.load()
        assert "Gone" not in str(killed.all()), "a killed master must not have the offsets again"
        eventually(lambda: gone(slave), "the slave has released all")
        synchronized(slave)
        assert gone(slave)
        for broker in (master, slave):
            kept_is_there(broker)


@pytest.mark.slow
def test_a_returning_slave_removes_topics_and_groups_deleted_in_its_absence(pair: Pair, unexpected: list[str]) -> None:
    """Some of it the slave has in its tables, and some it only meets in the log."""
    with pair.start_master() as master, connected(master) as wire:
        make_topic(wire, "Kept")
        use(wire, "Kept", "KeptGroup")
        make_topic(wire, "GoneKnown")
        use(wire, "GoneKnown", "GoneGroup")
        with pair.start_slave(master) as slave:
            caught_up(master, slave)
            eventually(lambda: held_by(slave)["consumer offsets"], "the slave has the offsets")
        make_topic(wire, "GoneMeanwhile")
        use(wire, "GoneMeanwhile", "GoneGroup")
        for topic in ("GoneKnown", "GoneMeanwhile"):
            delete(wire, topic, "GoneGroup")
        with pair.start_slave(master) as slave:
            caught_up(master, slave)
            eventually(lambda: gone(slave), "the slave has released all")
            synchronized(slave)
            kept_is_there(slave)
        with pair.start_slave(master) as slave:
            assert {kind: found for kind, found in held_by(slave).items() if found} == {}, (
                "nothing of it is on its disk"
            )
    with pair.promote() as promoted:
        assert gone(promoted)
        kept_is_there(promoted)


@pytest.mark.slow
def test_a_deleted_topic_is_empty_after_it_is_created_again_on_a_promoted_slave(
    pair: Pair, unexpected: list[str]
) -> None:
    """A group that went on at the offset of the one that was deleted would pass over messages."""
    with pair.start_master() as master, pair.start_slave(master) as slave, connected(master) as wire:
        for topic in ("Kept", "GoneTopic"):
            make_topic(wire, topic)
            use(wire, topic, "GoneGroup")
        use(wire, "Kept", "KeptGroup")
        caught_up(master, slave)
        eventually(lambda: len(held_by(slave)["consumer offsets"]) >= 2, "the slave has the offsets")
        delete(wire, "GoneTopic", "GoneGroup")
        eventually(lambda: gone(slave), "the slave has released all")
    with pair.promote() as promoted, connected(promoted) as wire:
        make_topic(wire, "GoneTopic")
        assert wire.send("GoneTopic", b"afresh").queue_offset == 0
        assert wire.pull("GoneTopic").bodies == [b"afresh"]
        assert [promoted.state.offsets.query(topic, "GoneGroup", 0) for topic in ("Kept", "GoneTopic")] == [-1, -1]
        kept_is_there(promoted)


@pytest.mark.slow
def test_a_slave_keeps_messages_of_new_topics_that_are_not_yet_in_its_masters_topic_table(
    pair: Pair, unexpected: list[str]
) -> None:
    """Messages of a topic that is new may be on the slave before its master's table says so: none is lost, ever."""
    with pair.start_master() as master, pair.start_slave(master) as slave, connected(master) as wire:
        synchronize = slave.state.service(ReplicationService).end.synchronize
        sent = 0
        rounds = synchronize.rounds
        while synchronize.rounds < rounds + 6 and sent < 200:
            synchronize.unknown_arrived()
            assert wire.send(f"New{sent}", b"x").code == 0
            sent += 1
        caught_up(master, slave)
        synchronized(slave)
        ends = {
            topic: slave.state.store.reader.max_queue_offset(topic, 0) for topic in map("New{}".format, range(sent))
        }
        assert set(ends.values()) == {1}
        assert all(topic in slave.state.topics for topic in ends)


def test_cleaning_unused_topics_removes_queues_and_offsets_of_topics_missing_from_the_topic_table(
    tmp_path: Path, unexpected: list[str]
) -> None:
    """Topics in no table have them after a deletion that a crash cut short."""
    with flintmq.Broker(master_settings(tmp_path / "m", *FEW)) as broker, connected(broker) as wire:
        for topic in ("Kept", "Gone"):
            make_topic(wire, topic)
            use(wire, topic, "KeptGroup")

        async def lose() -> None:
            broker.state.topics._table.pop("Gone")
            broker.state.offsets.put("GoneWithoutQueues", "KeptGroup", 0, 7)

        broker.call(lose)
        ask(wire, RequestCode.CLEAN_UNUSED_TOPIC)
        found = held_by(broker)
        assert [kind for kind in ("queues", "consumer offsets", "counters", "maps", "files") if found[kind]] == []
        kept_is_there(broker)
        assert broker.state.offsets.which_group_by_topic("%RETRY%KeptGroup") == set()


def test_the_request_to_clean_unused_topics_changes_nothing_on_a_slave(pair: Pair, unexpected: list[str]) -> None:
    """mqadmin cleanUnusedTopic asks slaves as well, and one of them may not have a new topic in its table yet."""
    with pair.start_master() as master, pair.start_slave(master) as slave, connected(master) as wire:
        assert wire.send("New", b"x").code == 0
        caught_up(master, slave)

        async def forget() -> None:
            slave.state.topics._table.pop("New", None)

        slave.call(forget)
        with connected(slave) as to_slave:
            ask(to_slave, RequestCode.CLEAN_UNUSED_TOPIC)
        assert slave.state.store.reader.max_queue_offset("New", 0) == 1


@pytest.mark.slow
def test_a_name_server_keeps_no_route_of_deleted_topics(configure: Callable[..., Any], unexpected: list[str]) -> None:
    """Topics come and go while the broker registers: the tables end as they began."""
    with flintmq.NameServer(configure(store="names")) as names:
        with flintmq.Broker(configure(f"namesrv.addresses={names.address}", *FEW)) as broker, connected(broker) as wire:
            registration = broker.state.service(Registration)
            before = sorted(names.routes.topics.topics())
            for number in range(15):
                make_topic(wire, f"Gone{number}")
                assert wire.send(f"GoneBySending{number}", b"x").code == 0
                if number >= 3:
                    for topic in (f"Gone{number - 3}", f"GoneBySending{number - 3}"):
                        ask(wire, RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
            for number in range(12, 15):
                for topic in (f"Gone{number}", f"GoneBySending{number}"):
                    ask(wire, RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
            eventually(lambda: sorted(names.routes.topics.topics()) == before, "the routes are gone")
            broker.call(registration.register_all)
            assert sorted(names.routes.topics.topics()) == before
        routes = names.routes
        tables = (routes.topics.topics(), routes._brokers, routes._clusters, routes._live, routes._filter_servers)
        assert not any(tables), "a broker that leaves leaves nothing"

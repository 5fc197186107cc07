"""What a slave makes of its master's tables, good and bad."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.stats import GROUP_GET_NUMS
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.broker.topics import TopicConfigManager, boot_topics
from flintmq.core.errors import FlintError, RemotingConnectError
from flintmq.core.io import fastjson
from flintmq.plugins.replication.slave_synchronize import SlaveSynchronize
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import RemotingCommand
from flintmq.testing.clock import ManualClock
from flintmq.tests.support.state import state_of

TOPIC = {"topicName": "T", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
TABLES: dict[int, Any] = {
    RequestCode.GET_ALL_TOPIC_CONFIG: {
        "dataVersion": {"timestamp": 5, "counter": 9},
        "topicConfigTable": {"T": TOPIC},
    },
    RequestCode.GET_ALL_CONSUMER_OFFSET: {"offsetTable": {"T@G": {0: 4, 1: 7}}},
    RequestCode.GET_ALL_DELAY_OFFSET: {"offsetTable": {3: 12}},
    RequestCode.GET_BROKER_RUNTIME_INFO: {"table": {"commitLogMaxOffset": "100"}},
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {
        "dataVersion": {"timestamp": 6, "counter": 2},
        "subscriptionGroupTable": {"G": {"groupName": "G", "retryMaxTimes": 3}},
    },
}


class Master:
    """Answers with tables; stands in for the client that would ask a broker."""

    def __init__(self) -> None:
        self.tables = dict(TABLES)
        self.asked: list[int] = []
        self.failure: FlintError | None = None
        self.before_answer: Callable[[], object] = lambda: None

    async def invoke(self, _address: str, command: RemotingCommand, _timeout_ms: int) -> RemotingCommand:
        self.asked.append(command.code)
        if self.failure is not None:
            raise self.failure
        if command.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            self.before_answer()
        table = self.tables[command.code]
        if isinstance(table, int):
            return RemotingCommand(code=table, remark="no", flag=1)
        body = table if isinstance(table, bytes) else fastjson.dumps(table).encode()
        return RemotingCommand(code=0, flag=1, body=body)


class Follower:
    """A service whose positions a slave takes over."""

    def __init__(self) -> None:
        self.table: Any = None

    def positions_for_slaves(self) -> dict[str, object]:
        return {}

    def follow(self, positions: Any) -> None:
        self.table = positions


class Store:
    """A log of 100 bytes, and queues by where their newest message ends."""

    def __init__(self) -> None:
        self.watermarks = SimpleNamespace(wrote=100)
        self.epochs = None
        self.ends: dict[tuple[str, int], int] = {}
        self.reader = SimpleNamespace(max_queue_offset=lambda _topic, _queue_id: 0)

    @property
    def consume_queues(self) -> Any:
        queues = {key: SimpleNamespace(max_physical_offset_bytes=end) for key, end in self.ends.items()}
        return SimpleNamespace(queues=queues)

    def delete_queue(self, topic: str, queue_id: int) -> None:
        del self.ends[topic, queue_id]


@pytest.fixture
def state() -> Any:
    clock = ManualClock()
    boot = boot_topics(cluster="C", broker_name="b")
    found: Any = state_of(clock=clock, store=Store(), topics=TopicConfigManager(None, clock, boot))
    found.follower = Follower()
    found.services_with = lambda _protocol: iter((found.follower,))
    return found


def synchronized(state: Any, master: Master, is_following: Callable[[], bool] = lambda: True) -> SlaveSynchronize:
    return SlaveSynchronize(state.api, master, lambda: "master:1", 0.01, is_following)  # type: ignore[arg-type]


def test_a_slave_replaces_its_configuration_tables_by_those_of_its_master(state: Any) -> None:
    """A topic that the master does not have is gone, too: the slave's tables are its master's."""
    master = Master()
    asyncio.run(synchronized(state, master).synchronize("master:1"))
    assert [config.topic_name for config in state.topics] == ["T"]
    assert state.topics.data_version.counter == 9
    assert state.offsets.query_all("T", "G") == {0: 4, 1: 7}
    assert state.follower.table == {"offsetTable": {3: 12}}
    assert state.groups.find("G").retry_max_times == 3


def test_a_slave_applies_consumer_offsets_only_after_it_has_copied_the_consumed_messages(state: Any) -> None:
    """A slave that is promoted with positions ahead of its log takes messages for delivered whose copies it never got."""
    state.store.watermarks.wrote = 99
    master = Master()
    positions = {"readQueueOffset": 3}
    master.tables[RequestCode.GET_ALL_DELAY_OFFSET] = {"offsetTable": {3: 12}, "timerPositions": positions}
    slave = synchronized(state, master)

    async def until_reached() -> None:
        await slave.synchronize("master:1")
        assert (len(state.offsets), state.follower.table) == (0, None)
        assert state.groups.find("G") is not None, "groups stand for nothing in the log"
        master.tables[RequestCode.GET_ALL_DELAY_OFFSET] = {"offsetTable": {3: 13}}
        await slave.synchronize("master:1")
        state.store.watermarks.wrote = 100
        slave.start()
        while state.follower.table is None:  # noqa: ASYNC110 - a log that grows has no event
            await asyncio.sleep(0.001)
        await slave.stop()

    asyncio.run(asyncio.wait_for(until_reached(), 30))
    assert state.offsets.query_all("T", "G") == {0: 4, 1: 7}
    assert state.follower.table["offsetTable"] == {3: 12}, "later ones would stand for more"
    assert state.follower.table["timerPositions"] == positions


def test_a_slave_deletes_a_topic_whose_deletion_is_in_the_log(state: Any) -> None:
    """Also by what the master had told before; a topic that is made again has none of its offsets."""
    state.topics.put(TopicConfig(topic_name="T"))
    state.store.watermarks.wrote = 99
    slave = synchronized(state, Master())

    async def deleted_while_offsets_wait() -> None:
        await slave.synchronize("master:1")
        slave.forget_topic("T")
        assert state.topics.select("T") is None
        state.store.watermarks.wrote = 100
        await slave.synchronize("master:1")
        assert state.offsets.query_all("T", "G") == {}
        assert state.topics.select("T") is not None, "the master has made it again"
        await slave.synchronize("master:1")
        assert state.offsets.query_all("T", "G") == {0: 4, 1: 7}, "and these are of the topic that it has now"

    asyncio.run(deleted_while_offsets_wait())


def test_a_slave_applies_consumer_offsets_at_once_if_its_master_does_not_report_its_log_end(state: Any) -> None:
    """Its offsets are taken over at once, as RocketMQ's slaves do."""
    state.store.watermarks.wrote = 0
    master = Master()
    master.tables[RequestCode.GET_BROKER_RUNTIME_INFO] = 1
    asyncio.run(synchronized(state, master).synchronize("master:1"))
    assert state.offsets.query_all("T", "G") == {0: 4, 1: 7}


def test_a_slave_removes_the_queues_and_consumer_offsets_of_topics_that_its_master_has_deleted(state: Any) -> None:
    """Deleted topics would keep a map, a file and a folder for each queue, for ever, and deleted groups their offsets: a group
    that is made again after a promotion would begin where the old one ended."""
    stats = state.stats
    for topic, group in (("T", "G"), ("T", "Gone"), ("Deleted", "G"), ("Left", "G")):
        state.offsets.commit(topic, group, 0, 5)
        stats.table.add(GROUP_GET_NUMS, f"{topic}@{group}")
    state.topics.put(TopicConfig.with_queues("Deleted", 1))
    state.groups.put(SubscriptionGroupConfig(group_name="Gone"))
    state.store.ends = {
        ("T", 0): 70,
        ("Deleted", 0): 80,
        ("Left", 0): -1,
        ("Left", 1): 100,
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0): 9,
    }
    forgotten: list[str] = []
    state.topics.deleted.subscribe(forgotten.append)
    state.groups.deleted.subscribe(forgotten.append)
    asyncio.run(synchronized(state, Master()).synchronize("master:1"))
    assert set(state.store.ends) == {("T", 0), ("RMQ_SYS_TRANS_HALF_TOPIC", 0)}
    assert [(topic, group) for topic, group, _ in state.offsets.all()] == [("T", "G")]
    assert [key for _, key, _, _ in stats.table.rows()] == ["T@G"]
    assert {"Deleted", "Gone"} <= set(forgotten)


def test_a_slave_keeps_a_topic_whose_first_message_arrives_during_a_request_for_the_topic_table(state: Any) -> None:
    """Its first message came while the master was telling its table, and lies behind all that was here before."""
    master = Master()
    slave = synchronized(state, master)
    master.before_answer = lambda: state.store.ends.update({("New", 0): 130, ("Deleted", 0): 90})
    asyncio.run(slave.synchronize("master:1"))
    assert set(state.store.ends) == {("New", 0)}
    master.tables[RequestCode.GET_ALL_TOPIC_CONFIG] = {
        "dataVersion": {"timestamp": 6, "counter": 10},
        "topicConfigTable": {"New": TOPIC | {"topicName": "New"}},
    }
    state.store.watermarks.wrote = 140
    asyncio.run(slave.synchronize("master:1"))
    assert set(state.store.ends) == {("New", 0)}
    state.store.ends["Late", 0] = 135
    slave.unknown_arrived()
    asyncio.run(slave.synchronize("master:1"))
    assert set(state.store.ends) == {("New", 0)}, "a message of a topic that was deleted long ago made its queue again"


def test_a_slave_requests_no_tables_from_its_master_before_it_follows_the_log_of_the_master(state: Any) -> None:
    """It may have begun anew on an empty disk: this slave may be the only one that still has everything."""
    state.offsets.commit("Precious", "G", 0, 5)
    state.topics.put(TopicConfig.with_queues("Precious", 1))
    state.store.ends = {("Precious", 0): 80}
    master, follows = Master(), [False, False, True]
    asked_first: list[int] = []

    def is_following() -> bool:
        asked_first.append(len(master.asked))
        return follows.pop(0) if len(follows) > 1 else follows[0]

    slave = synchronized(state, master, is_following)

    async def until_followed() -> None:
        slave.start()
        while not slave.rounds:
            assert master.asked or ("Precious", 0) in state.store.ends
            await asyncio.sleep(0.001)
        await slave.stop()

    asyncio.run(asyncio.wait_for(until_followed(), 30))
    assert asked_first[:3] == [0, 0, 0], "no table was asked for before the log was followed"
    assert not state.store.ends


def test_a_slave_applies_no_consumer_offsets_while_it_does_not_copy_the_log(state: Any) -> None:
    """The connection to the master ended between its answer and the moment when they could be taken over."""
    state.offsets.commit("T", "Other", 0, 5)
    is_following = False
    slave = synchronized(state, Master(), lambda: is_following)
    asyncio.run(slave.synchronize("master:1"))
    assert state.offsets.query("T", "Other", 0) == 5
    is_following = True
    asyncio.run(slave.synchronize("master:1"))
    assert state.offsets.which_group_by_topic("T") == {"G"}


def test_a_slave_does_not_write_tables_of_its_master_again_if_they_have_not_changed(state: Any) -> None:
    """Each change is written to disk and told to name servers."""
    told: list[int] = []
    state.topics.changed.subscribe(lambda: told.append(1))
    slave = synchronized(state, Master())
    for _ in range(3):
        asyncio.run(slave.synchronize("master:1"))
    assert told == [1]


def test_a_slave_copies_consumer_groups_even_if_its_master_returns_an_error_for_empty_offset_tables(state: Any) -> None:
    """RocketMQ answers code 1 where a table is empty."""
    master = Master()
    master.tables[RequestCode.GET_ALL_CONSUMER_OFFSET] = 1
    master.tables[RequestCode.GET_ALL_DELAY_OFFSET] = 1
    asyncio.run(synchronized(state, master).synchronize("master:1"))
    assert state.groups.find("G") is not None
    assert state.follower.table is None


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", 16, {"topicConfigTable": {"T": 5}}, {"topicConfigTable": 5}])
def test_a_slave_synchronizes_again_in_the_next_round_after_an_invalid_table_of_its_master(
    state: Any, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The next round is another chance, and the log says what was wrong."""
    master = Master()
    master.tables[RequestCode.GET_ALL_TOPIC_CONFIG] = body
    slave = synchronized(state, master)

    async def until_it_works() -> None:
        slave.start()
        while "master:1" not in caplog.text:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.001)
        assert state.topics.select("TBW102") is not None, "nothing was taken over, nothing is lost"
        master.tables = dict(TABLES)
        while not slave.rounds:  # noqa: ASYNC110 - rounds are counted
            await asyncio.sleep(0.001)
        await slave.stop()

    asyncio.run(asyncio.wait_for(until_it_works(), 30))
    assert state.topics.select("T") is not None


def test_a_slave_logs_an_unreachable_master_once(state: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Every ten seconds for a week would fill the disk."""
    master = Master()
    master.failure = RemotingConnectError("nobody answers")
    slave = synchronized(state, master)

    async def ask_often() -> None:
        slave.start()
        while len(master.asked) < 5:  # noqa: ASYNC110 - requests are counted
            await asyncio.sleep(0.001)
        await slave.stop()

    asyncio.run(asyncio.wait_for(ask_often(), 30))
    assert caplog.text.count("nobody answers") == 1


def test_a_slave_that_finds_an_unknown_topic_in_the_log_requests_only_the_topic_table(
    state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics that come one after the other once had a master send all of its offsets and groups for each of them."""
    monkeypatch.setattr("flintmq.plugins.replication.slave_synchronize.REST_S", 0.001)
    master = Master()
    slave = SlaveSynchronize(state.api, master, lambda: "master:1", 3600.0)  # type: ignore[arg-type]

    async def learn_often() -> None:
        slave.start()
        for rounds in range(1, 8):
            while master.asked.count(RequestCode.GET_ALL_TOPIC_CONFIG) < rounds:  # noqa: ASYNC110 - requests are counted
                await asyncio.sleep(0.001)
            slave.wake()
        await slave.stop()

    asyncio.run(asyncio.wait_for(learn_often(), 30))
    for code in TABLES.keys() - {RequestCode.GET_ALL_TOPIC_CONFIG}:
        assert master.asked.count(code) == 1, code
    assert slave.rounds == 1

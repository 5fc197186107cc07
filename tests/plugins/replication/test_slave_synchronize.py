"""What a slave makes of its master's tables, good and bad."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.core.broker.groups import SubscriptionGroupManager
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.broker.topics import TopicConfigManager, boot_topics
from flintmq.core.errors import FlintError, RemotingConnectError
from flintmq.core.io import fastjson
from flintmq.core.testing.clock import ManualClock
from flintmq.plugins.replication.slave_synchronize import SlaveSynchronize
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import RemotingCommand

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

    async def invoke(self, _address: str, command: RemotingCommand, _timeout_ms: int) -> RemotingCommand:
        self.asked.append(command.code)
        if self.failure is not None:
            raise self.failure
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


@pytest.fixture
def state() -> Any:
    clock = ManualClock()
    boot = boot_topics(cluster="C", broker_name="b")
    follower = Follower()
    return SimpleNamespace(
        topics=TopicConfigManager(None, clock, boot),
        groups=SubscriptionGroupManager(None, clock),
        offsets=ConsumerOffsetManager(),
        stats=SimpleNamespace(forget_topic=lambda _topic: None),
        follower=follower,
        services_with=lambda _protocol: iter((follower,)),
        store=SimpleNamespace(watermarks=SimpleNamespace(wrote=100)),
    )


def synchronized(state: Any, master: Master) -> SlaveSynchronize:
    return SlaveSynchronize(state, master, lambda: "master:1", 0.01)  # type: ignore[arg-type]


def test_everything_is_taken_over(state: Any) -> None:
    """A topic that the master does not have is gone, too: the slave's tables are its master's."""
    master = Master()
    asyncio.run(synchronized(state, master).synchronize("master:1"))
    assert [config.topic_name for config in state.topics] == ["T"]
    assert state.topics.data_version.counter == 9
    assert state.offsets.query_all("T", "G") == {0: 4, 1: 7}
    assert state.follower.table == {"offsetTable": {3: 12}}
    assert state.groups.find("G").retry_max_times == 3


def test_offsets_wait_for_the_log_they_stand_for(state: Any) -> None:
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


def test_a_topic_that_the_log_says_is_deleted_is_forgotten(state: Any) -> None:
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


def test_a_master_that_does_not_say_where_its_log_ends(state: Any) -> None:
    """Its offsets are taken over at once, as RocketMQ's slaves do."""
    state.store.watermarks.wrote = 0
    master = Master()
    master.tables[RequestCode.GET_BROKER_RUNTIME_INFO] = 1
    asyncio.run(synchronized(state, master).synchronize("master:1"))
    assert state.offsets.query_all("T", "G") == {0: 4, 1: 7}


def test_what_did_not_change_is_left_alone(state: Any) -> None:
    """Each change is written to disk and told to name servers."""
    told: list[int] = []
    state.topics.changed.subscribe(lambda: told.append(1))
    slave = synchronized(state, Master())
    for _ in range(3):
        asyncio.run(slave.synchronize("master:1"))
    assert told == [1]


def test_a_master_without_offsets(state: Any) -> None:
    """RocketMQ answers code 1 where a table is empty."""
    master = Master()
    master.tables[RequestCode.GET_ALL_CONSUMER_OFFSET] = 1
    master.tables[RequestCode.GET_ALL_DELAY_OFFSET] = 1
    asyncio.run(synchronized(state, master).synchronize("master:1"))
    assert state.groups.find("G") is not None
    assert state.follower.table is None


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", 16, {"topicConfigTable": {"T": 5}}, {"topicConfigTable": 5}])
def test_a_bad_table_ends_a_round_and_no_more(state: Any, body: Any, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_master_that_is_away_is_told_once(state: Any, caplog: pytest.LogCaptureFixture) -> None:
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


def test_unknown_topics_have_topics_asked_for_and_offsets_once_in_an_interval(
    state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics that come one after the other once had a master send all of its offsets and groups for each of them."""
    monkeypatch.setattr("flintmq.plugins.replication.slave_synchronize.REST_S", 0.001)
    master = Master()
    slave = SlaveSynchronize(state, master, lambda: "master:1", 3600.0)  # type: ignore[arg-type]

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

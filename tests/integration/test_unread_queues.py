"""Nothing is written to a queue that nobody reads, although topics lose queues; and what waits in such a queue is told.

A message is acknowledged for a queue and stored there later: after a delay, a transaction, a refusal. The topic may have lost
the queue by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from bare_wire import Wire
from msgspec.structs import replace

import flintmq
from flintmq.core.broker.redirected_message import UNDELIVERED_TOPIC
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.io import fastjson
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.testing.clock import VirtualClock

QUEUES = 8


@attrs.frozen
class Running:
    """A broker whose topic ``T`` has eight queues, and a connection."""

    broker: flintmq.Broker
    clock: VirtualClock
    wire: Wire

    def call(self, work: Callable[[Any], object]) -> Any:
        """Do something with the broker's state on its thread."""

        async def run() -> object:
            return work(self.broker.state)

        return self.broker.call(run)

    def resize(self, topic: str, read: int, write: int) -> None:
        config = TopicConfig(topic_name=topic, read_queue_nums=read, write_queue_nums=write)
        self.call(lambda state: state.topics.put(config))

    def written(self, topic: str) -> dict[int, int]:
        """How many messages each queue has that was ever written."""

        def look(state: Any) -> dict[int, int]:
            queues = state.store.consume_queues.queues
            return {queue_id: queue.max_queue_offset for (name, queue_id), queue in queues.items() if name == topic}

        return {queue_id: messages for queue_id, messages in self.call(look).items() if messages}

    def send_half(self, queue_id: int, key: str) -> dict[str, str]:
        """Begin a transaction; return the header that commits it."""
        properties = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": key}
        half = self.wire.send("T", b"half", queue_id=queue_id, properties=properties, f="4")
        assert half.code == ResponseCode.SUCCESS, half.remark
        place = int(half.message_id[-16:], 16)
        return {
            "producerGroup": "P",
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(place),
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": key,
        }


@pytest.fixture
def running(configure: Any, connect: Any, unexpected: list[str]) -> Iterator[Running]:
    clock = VirtualClock()
    with flintmq.Broker(configure("groups.auto_create=true"), clock=clock) as broker:
        running = Running(broker, clock, connect(broker))
        running.resize("T", QUEUES, QUEUES)
        yield running


@pytest.mark.parametrize(("read", "write"), [(4, 4), (3, 2), (2, 3), (1, 8), (4, 0)])
def test_delayed_messages_for_a_removed_queue_are_delivered_to_a_readable_queue(
    running: Running, read: int, write: int
) -> None:
    """Delay levels, timers and transactions kept the queue that the topic had when the message was sent."""
    wire, clock = running.wire, running.clock
    ends = []
    for queue_id in range(QUEUES):
        assert wire.send("T", b"level", queue_id=queue_id, properties={"DELAY": "4"}).code == 0
        assert wire.send("T", b"timer", queue_id=queue_id, properties={"TIMER_DELAY_SEC": "30"}).code == 0
        ends.append(running.send_half(queue_id, f"K{queue_id}"))
    running.resize("T", read, write)
    for end in ends:
        answer = wire.ask(RequestCode.END_TRANSACTION, end)
        assert answer.code == 0, answer.remark
    clock.advance("40s")
    written = running.written("T")
    assert sum(written.values()) == 3 * QUEUES
    assert max(written) < read
    found = [record.body for queue_id in range(read) for record in wire.pull_all("T", queue_id=queue_id)]
    assert sorted(found) == [b"half"] * QUEUES + [b"level"] * QUEUES + [b"timer"] * QUEUES


def test_delayed_messages_of_a_removed_queue_are_delivered_to_another_queue_in_order(running: Running) -> None:
    """Consumers of an ordered topic take the order of a queue for the order of their messages."""
    for number in range(6):
        properties = {"DELAY": "4"}
        assert running.wire.send("T", b"%d" % number, queue_id=6, properties=properties).code == 0
        running.clock.advance("1s")
    running.resize("T", 4, 4)
    running.clock.advance("40s")
    assert running.written("T") == {2: 6}
    assert [record.body for record in running.wire.pull_all("T", queue_id=2)] == [b"%d" % n for n in range(6)]


@pytest.mark.parametrize("retry_topic", ["made by the first", "there before"])
def test_retried_messages_are_stored_only_in_existing_queues_of_the_retry_topic(
    running: Running, retry_topic: str
) -> None:
    """A group whose number of retry queues is raised has a retry topic of one queue all the same."""
    wire = running.wire
    if retry_topic == "there before":
        running.resize("%RETRY%G", 1, 1)

    def widen(state: Any) -> None:
        state.groups.put(replace(state.groups.select("G"), retry_queue_nums=4))

    sent = wire.send("T", b"poison")
    wire.pull("T", group="G")
    place = int(sent.message_id[-16:], 16)
    header = {"offset": place, "group": "G", "delayLevel": 1, "originTopic": "T", "unitMode": "false"}
    assert wire.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header).code == 0
    running.call(widen)
    for _ in range(20):
        assert wire.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header).code == 0
    running.clock.advance("40s")
    assert running.written("%RETRY%G") == {0: 21}


def test_the_broker_stores_messages_without_a_queue_id_only_in_readable_queues(running: Running) -> None:
    """A topic whose write queues outnumber its read queues takes what names no queue where it is read."""
    running.resize("T", 2, 8)
    for _ in range(40):
        assert running.wire.send("T", b"x", queue_id=-1).queue_id < 2
    running.broker.put([flintmq.Message("T", b"y") for _ in range(40)])
    assert set(running.written("T")) == {0, 1}


def test_delayed_messages_of_a_topic_without_queues_become_dead_letters_when_due(running: Running) -> None:
    """There is no queue in which a message would be found again: sends are refused, what waits is a dead letter."""
    wire = running.wire
    assert wire.send("T", b"level", queue_id=3, properties={"DELAY": "4"}).code == 0
    end = running.send_half(3, "K")
    running.resize("T", 0, 0)
    for queue_id in (-1, 0):
        assert wire.send("T", b"x", queue_id=queue_id).code == ResponseCode.SYSTEM_ERROR
    with pytest.raises(flintmq.FlintError, match="queue"):
        running.broker.put([flintmq.Message("T", b"x")])
    assert wire.ask(RequestCode.END_TRANSACTION, end).code == ResponseCode.SYSTEM_ERROR
    running.clock.advance("40s")
    assert running.written("T") == {}
    assert running.written(UNDELIVERED_TOPIC) == {0: 1}
    running.resize("T", 1, 1)
    assert wire.ask(RequestCode.END_TRANSACTION, end).code == ResponseCode.SUCCESS
    assert running.written("T") == {0: 1}


# what shrinking hides is told


def alarms(running: Running) -> dict[str, Any]:
    return {
        alarm.subject: alarm
        for alarm in running.call(lambda state: state.alarms.current())
        if alarm.id == "topic.unread_queues"
    }


def stats(running: Running, code: RequestCode, **fields: str) -> dict[int, dict[str, int]]:
    """The queues in the answer of 202 or 208."""
    answer = running.wire.ask(code, {"topic": "T", **fields})
    table = fastjson.loads(answer.body)["offsetTable"]
    return {queue["queueId"]: figures for queue, figures in table.items()}


def consume(running: Running, group: str, queue_id: int, consumer_offset: int) -> None:
    running.call(lambda state: state.offsets.commit("T", group, queue_id, consumer_offset))


def test_unread_messages_in_removed_queues_raise_an_alarm(running: Running) -> None:
    """RocketMQ says that the lag is 0, and deletes the messages some day."""
    for queue_id in range(QUEUES):
        for _ in range(3):
            assert running.wire.send("T", b"x", queue_id=queue_id).code == 0
        consume(running, "G", queue_id, 3 if queue_id < 6 else 1)
        consume(running, "Other", queue_id, 3)
    assert alarms(running) == {}
    running.resize("T", 4, 4)
    alarm = alarms(running)["T"]
    assert (alarm.level, alarm.value, alarm.unit) == ("warning", 4, "messages")
    assert "4 messages wait in queues of topic T that nobody reads, 6 to 7: it has 4 read queues" in alarm.message
    assert "group G has not consumed them" in alarm.message
    assert "topics create T --queues 8" in alarm.message
    assert sorted(stats(running, RequestCode.GET_TOPIC_STATS_INFO)) == list(range(QUEUES))
    behind = stats(running, RequestCode.GET_CONSUME_STATS, consumerGroup="G")
    assert {queue_id: one["brokerOffset"] - one["consumerOffset"] for queue_id, one in behind.items()} == {
        0: 0, 1: 0, 2: 0, 3: 0, 6: 2, 7: 2,
    }  # fmt: skip
    assert sorted(stats(running, RequestCode.GET_CONSUME_STATS, consumerGroup="Other")) == [0, 1, 2, 3]
    running.resize("T", 8, 8)
    assert alarms(running) == {}
    for queue_id in (6, 7):
        consume(running, "G", queue_id, 3)
    running.resize("T", 4, 4)
    assert alarms(running) == {}, "all of it was consumed before"


def test_messages_in_queues_that_no_group_has_read_raise_an_alarm(configure: Any, connect: Any) -> None:
    """Those of a retry topic that an earlier version wrote beyond its numbers; also after a start."""
    clock = VirtualClock()
    config = configure()
    with flintmq.Broker(config, clock=clock) as broker:
        running = Running(broker, clock, connect(broker))
        running.resize("%RETRY%G", 4, 4)
        for queue_id in range(4):
            assert running.wire.send("%RETRY%G", b"x", queue_id=queue_id).code == 0
        running.resize("%RETRY%G", 1, 1)
        assert "no group has ever read them" in alarms(running)["%RETRY%G"].message
    with flintmq.Broker(config, clock=clock) as broker:
        running = Running(broker, clock, connect(broker))
        alarm = alarms(running)["%RETRY%G"]
        assert (alarm.value, "1 to 3" in alarm.message) == (3, True)
        running.call(lambda state: state.topics.delete("%RETRY%G"))
        assert alarms(running) == {}


def test_messages_in_write_queues_that_consumers_cannot_read_raise_an_alarm(running: Running) -> None:
    """An administrator who gives a topic more write queues than read queues loses every message in them."""
    running.resize("T", 2, 8)
    assert running.wire.send("T", b"x", queue_id=5).code == 0
    assert alarms(running)["T"].value == 1

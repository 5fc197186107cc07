"""A topic that is deleted stays deleted: what waited for it is dropped when it is due, counted and told, and makes no queue.

Hours pass on a clock that is moved by hand; what the broker's timers would do then is done at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.remoting.wire.bodies import KVTable
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.testing.clock import ManualClock

TIMERS = ("delayed messages", "timers")
HALF = {"TRAN_MSG": "true", "PGROUP": "p"}


class Bench:
    """A broker whose time stands still, and a connection to it."""

    def __init__(self, broker: flintmq.Broker, clock: ManualClock, connect: Callable[[Any], Any], path: Path) -> None:
        self.broker = broker
        self.clock = clock
        self.wire = connect(broker)
        self.path = path

    def create(self, topic: str) -> None:
        fields = {"topic": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": "false"}
        more = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
        assert self.wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | more).code == 0

    def delete(self, topic: str) -> None:
        assert self.wire.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0

    def pass_s(self, seconds: int) -> None:
        """Let time pass, and do what is due then."""
        self.clock.advance_ms(seconds * 1000)

        async def run() -> None:
            for name in TIMERS:
                self.broker.timers.run_now(name)

        for _ in range(3):
            self.broker.call(run)

    @property
    def dropped(self) -> int:
        """How many messages were dropped, as request 28 has it."""
        return int(KVTable.decode(self.wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table["droppedMessages"])

    def queues(self, topic: str) -> list[tuple[str, int]]:
        """Return the queues of a topic in memory and on the disk."""

        async def known() -> list[tuple[str, int]]:
            return [key for key in self.broker.state.store.consume_queues.queues if key[0] == topic]

        on_disk = [(topic, int(path.name)) for path in self.path.glob(f"store/consumequeue/{topic}/*")]
        return sorted({*self.broker.call(known), *on_disk})

    def end(self, sent: Any, how: int, key: str) -> int:
        """Commit (8) or roll back (12) a transaction; return the code of the answer."""
        fields = {
            "producerGroup": "p",
            "tranStateTableOffset": sent.queue_offset,
            "commitLogOffset": int(sent.message_id[16:], 16),
            "commitOrRollback": how,
            "fromTransactionCheck": "false",
            "msgId": key,
        }
        return int(self.wire.ask(RequestCode.END_TRANSACTION, fields).code)


@pytest.fixture(name="bench")
def bench_fixture(configure: Any, connect: Any, tmp_path: Path, unexpected: list[str]) -> Iterator[Bench]:
    clock = ManualClock()
    with flintmq.Broker(configure(), clock=clock) as broker:
        yield Bench(broker, clock, connect, tmp_path)


@pytest.mark.parametrize("wish", [{"DELAY": "3"}, {"TIMER_DELAY_MS": "10000"}, {"TIMER_DELIVER_MS": "at"}])
def test_a_delayed_message_of_a_deleted_topic_is_dropped_when_it_is_due(
    bench: Bench, wish: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Delivery made the queue again, for good: a folder, a map, a dozen series of figures, of a topic that nobody can read."""
    bench.create("gone")
    bench.create("kept")
    if "TIMER_DELIVER_MS" in wish:
        wish = {"TIMER_DELIVER_MS": str(bench.clock.now_ms() + 10_000)}
    for number in range(3):
        for topic in ("gone", "kept"):
            key = {"UNIQ_KEY": f"{topic}-{number}"}
            assert bench.wire.send(topic, b"later", queue_id=2, properties=wish | key).code == 0
    bench.delete("gone")
    with caplog.at_level(logging.WARNING, "flintmq"):
        bench.pass_s(11)
    assert bench.wire.pull("kept", 0, queue_id=2).max_offset == 3, "those between them are delivered, once each"
    assert bench.queues("gone") == []
    assert bench.dropped == 3
    assert [line for line in caplog.messages if "[delivery.no_topic]" in line] == [
        f"message gone-{number} for gone is dropped: the topic was deleted while it waited [delivery.no_topic]"
        for number in range(3)
    ]
    bench.create("gone")
    bench.pass_s(60)
    assert bench.queues("gone") == [], "what was dropped does not come later"
    assert bench.dropped == 3


def test_a_delayed_message_is_delivered_if_its_deleted_topic_is_recreated_before_the_delay_ends(bench: Bench) -> None:
    """The name is all that a waiting message has; whoever makes the topic again before it is due has it delivered."""
    bench.create("again")
    assert bench.wire.send("again", b"later", queue_id=1, properties={"DELAY": "3"}).code == 0
    bench.delete("again")
    bench.create("again")
    bench.pass_s(11)
    assert bench.wire.pull("again", 0, queue_id=1).bodies == [b"later"]
    assert bench.dropped == 0


@pytest.mark.parametrize("wish", [{}, {"DELAY": "3"}, {"TIMER_DELAY_MS": "10000"}])
def test_a_transaction_of_a_deleted_topic_ends_and_drops_its_message(bench: Bench, wish: dict[str, str]) -> None:
    """The producer is not asked again and again; one that waits for the answer learns it."""
    bench.create("gone")
    sent = [
        bench.wire.send("gone", b"half", properties={**HALF, **wish, "UNIQ_KEY": f"k{number}"}) for number in range(2)
    ]
    assert [one.code for one in sent] == [0, 0]
    bench.delete("gone")
    assert bench.end(sent[0], 8, "k0") == ResponseCode.TOPIC_NOT_EXIST
    assert bench.end(sent[0], 8, "k0") == ResponseCode.SYSTEM_ERROR, "it has ended"
    assert bench.end(sent[1], 12, "k1") == 0
    bench.pass_s(20)
    assert bench.queues("gone") == []
    assert bench.dropped == 1
    figures = {one.name: one for one in bench.broker.call(metrics_of(bench.broker))}
    assert figures["flintmq_half_messages"].value == 0
    assert not any(one.labels.get("topic") == "gone" for one in figures.values())


def metrics_of(broker: flintmq.Broker) -> Callable[[], Any]:
    async def metrics() -> Any:
        return broker.api.figures.measurements()

    return metrics


def send_back(bench: Bench, place: int, group: str) -> int:
    fields = {"offset": place, "group": group, "delayLevel": 3, "originMsgId": "", "originTopic": "T"}
    return int(bench.wire.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code)


@pytest.mark.parametrize("group_stays", [True, False])
def test_a_retried_message_is_delivered_only_if_its_consumer_group_exists(bench: Bench, group_stays: bool) -> None:
    """The retry topic of a group that exists is made whole, as with its first message; that of no group is not."""
    bench.create("T")
    place = int(bench.wire.send("T", b"again").message_id[16:], 16)
    assert send_back(bench, place, "g") == 0
    bench.delete("%RETRY%g")
    if not group_stays:
        fields = {"groupName": "g", "cleanOffset": "true"}
        assert bench.wire.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields).code == 0
    bench.pass_s(11)
    if group_stays:
        assert bench.wire.pull("%RETRY%g", 0).bodies == [b"again"]
    assert (bench.queues("%RETRY%g") != [], bench.dropped) == (group_stays, int(not group_stays))


def test_a_message_of_a_deleted_topic_can_still_be_sent_back(bench: Bench) -> None:
    """It is the group's, which got it before the topic was deleted; its dead letters likewise."""
    bench.create("T")
    place = int(bench.wire.send("T", b"again").message_id[16:], 16)
    bench.delete("T")
    assert send_back(bench, place, "g") == 0
    bench.pass_s(11)
    assert bench.wire.pull("%RETRY%g", 0).bodies == [b"again"]
    fields = {"offset": place, "group": "g", "delayLevel": -1, "originMsgId": "", "originTopic": "T"}
    assert bench.wire.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0
    assert bench.queues("%DLQ%g") == [("%DLQ%g", 0)]
    assert bench.queues("T") == []

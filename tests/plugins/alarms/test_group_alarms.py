"""Consumers that fall behind or contradict one another fail without an error anywhere: the broker is the one to say so."""

from __future__ import annotations

import threading
from collections.abc import Callable

import attrs
import pytest

from flintmq import Message
from flintmq.client import sync
from flintmq.core.kernel.ports.alarm import WARNING, Alarm
from flintmq.plugins.alarms.group_alarms import client_id_shared
from flintmq.testing.clock import VirtualClock
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.tests.support.roles import become_master, become_slave, is_timed

Alarms = Callable[[EmbeddedBroker], dict[str, Alarm]]

SETTINGS = ("alarms.lag_messages=20", "alarms.lag_window_ms=50s")
QUICK = sync.ConsumerSettings(
    consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=0.05, commit_interval_s=0.02, pull_batch_size=32
)


def put(broker: EmbeddedBroker, count: int, topic: str = "T") -> None:
    broker.put([Message(topic, b"%d" % number) for number in range(count)])


def consume(broker: EmbeddedBroker, count: int, group: str = "G") -> None:
    """A real consumer takes so many messages and leaves; its offsets are stored."""
    left = threading.Semaphore(0)

    def listen(message: sync.MessageExt) -> None:
        left.release()

    with sync.Consumer(group, broker.broker, listen, settings=QUICK) as consumer:
        consumer.subscribe("T")
        for _ in range(count):
            assert left.acquire(timeout=20)


def until(broker: EmbeddedBroker, holds: Callable[[], bool]) -> None:
    """Wait until something holds that heartbeats bring about."""
    heard = threading.Event()
    broker.broker.state.consumers.registered.subscribe(lambda *_: heard.set())
    while not holds():
        assert heard.wait(timeout=20)
        heard.clear()


def subscribed(broker: EmbeddedBroker) -> list[frozenset[tuple[str, str, str]]]:
    """What the members of the group subscribe to, as far as they have said so."""

    async def ask() -> list[frozenset[tuple[str, str, str]]]:
        info = broker.broker.state.consumers.find("G")
        return [one.subscriptions for one in info.behaviours().values()] if info is not None else []

    return broker.broker.call(ask)


def test_a_growing_consumer_lag_raises_an_alarm_that_ends_after_the_messages_are_consumed(alarms: Alarms) -> None:
    """A group was there once, and messages go on coming; then its consumer comes back."""
    clock = VirtualClock()
    with EmbeddedBroker(settings=SETTINGS, clock=clock) as broker:
        broker.create_topic("T")
        put(broker, 10)
        consume(broker, 10)
        for step in range(6):
            assert alarms(broker) == {}, step
            put(broker, 30)
            clock.advance("10s")
        found = alarms(broker)["consumer.lag_growing"]
        assert (found.level, found.subject, found.value, found.unit, found.limit) == (
            "warning",
            "G",
            180,
            "messages",
            20,
        )
        assert "180 messages behind in topic T, 150 more than 50 seconds ago" in found.message
        assert "no members" in found.message
        consume(broker, 180)
        clock.advance("10s")
        assert alarms(broker) == {}


@pytest.mark.parametrize("settings", [(*SETTINGS, "alarms.lag_messages=0"), ("disabled_plugins=alarms",)])
def test_the_lag_alarm_can_be_switched_off(alarms: Alarms, settings: tuple[str, ...]) -> None:
    """A cluster whose groups are meant to lag."""
    clock = VirtualClock()
    with EmbeddedBroker(settings=settings, clock=clock) as broker:
        broker.create_topic("T")
        put(broker, 10)
        consume(broker, 10)
        for _ in range(8):
            put(broker, 30)
            clock.advance("10s")
        assert alarms(broker) == {}


def test_lags_of_system_groups_and_topics_raise_no_alarm(alarms: Alarms) -> None:
    """Tools and the broker's own groups leave offsets behind; so does a group in a topic of the system."""
    clock = VirtualClock()
    with EmbeddedBroker(settings=SETTINGS, clock=clock) as broker:
        broker.create_topic("T")

        async def leave_offsets() -> None:
            offsets = broker.broker.state.offsets
            for topic, group in (("T", "TOOLS_CONSUMER"), ("T", "CID_RMQ_SYS_x"), ("SCHEDULE_TOPIC_XXXX", "G")):
                for queue_id in range(4):
                    offsets.commit(topic, group, queue_id, 0)

        broker.broker.call(leave_offsets)
        for _ in range(8):
            put(broker, 30)
            broker.put([Message("T", b"later", delay_level=18) for _ in range(30)])
            clock.advance("10s")
        assert alarms(broker) == {}


def test_only_200_alarms_are_reported_if_thousands_of_groups_have_growing_lags(alarms: Alarms) -> None:
    """Three thousand groups that lag: clients are served in between, the memory is bounded, and so is what is told."""
    clock = VirtualClock()
    with EmbeddedBroker(settings=SETTINGS, clock=clock) as broker:
        broker.create_topic("T", queue_nums=8)

        async def leave_offsets() -> None:
            for number in range(3_000):
                for queue_id in range(8):
                    broker.broker.state.offsets.put("T", f"G{number}", queue_id, 0)

        broker.broker.call(leave_offsets)
        for _ in range(7):
            put(broker, 80)
            clock.advance("10s")

        async def ask() -> list[Alarm]:
            return broker.broker.state.alarms.current()

        found = broker.broker.call(ask)
        assert len(found) == 200
        assert {alarm.id for alarm in found} <= {"consumer.lag_growing", "alarms.more"}


@pytest.mark.parametrize(
    ("first", "second", "said", "odd"),
    [
        ((("A", "*"),), (("B", "*"),), "subscription to B: '*' of ", 2),
        ((("A", "*"),), (("A", "red || blue"),), "'red || blue'", 1),
        ((("A", "*"), ("B", "*")), (("A", "*"),), "B", 1),
    ],
)
def test_group_members_with_different_subscriptions_raise_an_alarm(
    alarms: Alarms, first: tuple[tuple[str, str], ...], second: tuple[tuple[str, str], ...], said: str, odd: int
) -> None:
    """Two real clients of one group: nothing tells them, and messages are lost."""
    with EmbeddedBroker() as broker:
        for topic in "AB":
            broker.create_topic(topic)
        with sync.Consumer("G", broker.broker, lambda message: None, settings=QUICK) as one:
            for topic, expression in first:
                one.subscribe(topic, expression)
            with sync.Consumer("G", broker.broker, lambda message: None, settings=QUICK) as other:
                for topic, expression in second:
                    other.subscribe(topic, expression)
                complete = sorted([len(first), len(second)])
                until(broker, lambda: sorted(len(each) for each in subscribed(broker)) == complete)
                found = alarms(broker)["group.conflict"]
                assert (found.level, found.subject, found.value, found.unit) == ("warning", "G", odd, "members")
                assert said in found.message
            assert alarms(broker) == {}


def test_group_members_with_equal_subscriptions_raise_no_alarm(alarms: Alarms) -> None:
    """The ordinary case, while a second one joins, too."""
    with EmbeddedBroker() as broker:
        broker.create_topic("A")
        with (
            sync.Consumer("G", broker.broker, lambda message: None, settings=QUICK) as one,
            sync.Consumer("G", broker.broker, lambda message: None, settings=QUICK) as other,
        ):
            one.subscribe("A", "red")
            other.subscribe("A", "red")
            until(broker, lambda: [len(each) for each in subscribed(broker)] == [1, 1])
            assert alarms(broker) == {}


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"message_model": "BROADCASTING"}, "message model: "),
        ({"consume_from": "CONSUME_FROM_LAST_OFFSET"}, "consume from where: "),
    ],
)
def test_group_members_with_different_consume_settings_raise_an_alarm(
    alarms: Alarms, odd: dict[str, str], said: str
) -> None:
    """They subscribe to the same, and still get what is not theirs: the broker and who asks it name the one that differs."""
    with EmbeddedBroker() as broker:
        broker.create_topic("A")
        settings = attrs.evolve(QUICK, **odd)
        with (
            sync.Consumer("G", broker.broker, lambda message: None, settings=QUICK) as one,
            sync.Consumer("G", broker.broker, lambda message: None, settings=QUICK) as two,
            sync.Consumer("G", broker.broker, lambda message: None, settings=settings, client_id="odd") as other,
        ):
            for consumer in (one, two, other):
                consumer.subscribe("A")
            until(broker, lambda: [len(each) for each in subscribed(broker)] == [1, 1, 1])
            found = alarms(broker)["group.conflict"]
            assert (found.value, said in found.message, "of odd" in found.message) == (1, True, True), found.message
        assert alarms(broker) == {}


def test_a_client_id_shared_by_two_clients_raises_an_alarm_until_one_client_leaves(alarms: Alarms) -> None:
    """Both consume everything, and neither can know."""
    with EmbeddedBroker() as broker:
        broker.create_topic("A")
        names, same = broker.name_server_address, "10.0.0.7@1"
        with sync.Consumer("G", names, lambda message: None, settings=QUICK, client_id=same) as one:
            one.subscribe("A")
            with sync.Consumer("G", names, lambda message: None, settings=QUICK, client_id=same) as other:
                other.subscribe("A")
                until(broker, lambda: "client.id_shared" in alarms(broker))
                found = alarms(broker)["client.id_shared"]
                assert (found.level, found.subject, found.value, found.unit) == ("warning", same, 2, "members")
                assert found.message.count("127.0.0.1:") == 2
            assert alarms(broker) == {}


def test_a_slave_raises_no_alarms_about_consumer_lag(alarms: Alarms) -> None:
    """A slave has its master's offsets, later; what was measured before it became one says nothing of the time after."""
    clock = VirtualClock()
    with EmbeddedBroker(settings=SETTINGS, clock=clock) as broker:
        broker.create_topic("T")
        put(broker, 10)
        consume(broker, 10)

        def fall_behind() -> None:
            for _ in range(6):
                put(broker, 30)
                clock.advance("10s")

        fall_behind()
        assert [*alarms(broker)] == ["consumer.lag_growing"]
        become_slave(broker)
        assert not is_timed(broker, "lag of groups")
        assert alarms(broker) == {}
        clock.advance("1h")
        become_master(broker)
        put(broker, 30)
        clock.advance("10s")
        assert alarms(broker) == {}
        fall_behind()
        assert [*alarms(broker)] == ["consumer.lag_growing"]


def test_the_alarm_about_a_shared_client_id_lists_only_a_few_client_addresses() -> None:
    """A program that starts a hundred processes with one id gets one line that can be read."""
    found = client_id_shared("G", "id", [f"10.0.0.{n}:1" for n in range(100)])
    assert (found.id, found.level, found.subject, found.value) == ("client.id_shared", WARNING, "id", 100)
    assert "10.0.0.9:1. Give each process" in found.message
    assert "10.0.0.10:1" not in found.message

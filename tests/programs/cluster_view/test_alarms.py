"""One list has what brokers tell and what only an onlooker sees; nothing stands there twice."""

from __future__ import annotations

import attrs
import msgspec

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm
from flintmq.programs.cluster_view.alarms import all_alarms, told_alarms
from flintmq.programs.cluster_view.memory import BrokerMemory
from flintmq.programs.cluster_view.poll import _note_lags
from flintmq.programs.cluster_view.progress import advance
from flintmq.programs.cluster_view.rows import broker_row
from flintmq.programs.cluster_view.values import GroupView, StuckQueue
from flintmq.remoting.wire.bodies import ConsumeStats, OffsetWrapper

BROKER = BrokerMemory("C", "broker-a", 0, "127.0.0.1:10911")


def group(name: str, *, conflict: str = "", stuck: int = 0) -> GroupView:
    queue = StuckQueue(
        topic="T", broker="broker-a", queue_id=0, consumer_offset=1, lag=5, standing_s=61.0, client_id=None
    )
    return GroupView(
        name=name, kind="user", brokers=("broker-a",), missing=(), members=1, consume_type="", message_model="",
        topics=("T",), lag=5, retry_lag=0, get_per_s=0.0, conflict=conflict, stuck=(queue,) * stuck, age_s=0.0,
        queues=None, member_list=None, conflicts=None,
    )  # fmt: skip


def telling(*alarms: Alarm, error: str = "") -> BrokerMemory:
    return attrs.evolve(BROKER, info={"alarms": msgspec.json.encode(list(alarms)).decode()}, error=error)


def found(broker: BrokerMemory, *groups: GroupView) -> list[tuple[str, str, str]]:
    rows = [broker_row(broker, 0.0, told_alarms(broker))]
    alarms = all_alarms(rows, {one.name: one for one in groups})
    return [(alarm.id, alarm.subject, alarm.address) for alarm in alarms]


def test_critical_alarms_of_a_broker_are_listed_before_warnings() -> None:
    broker = telling(Alarm("disk.low", WARNING, "", "low"), Alarm("store.fenced", CRITICAL, "", "fenced"))
    assert found(broker) == [("store.fenced", "", BROKER.address), ("disk.low", "", BROKER.address)]


def test_a_subscription_conflict_reported_by_a_broker_is_listed_once() -> None:
    """RocketMQ's broker tells none: there it is what the members report."""
    told = Alarm("group.conflict", WARNING, "g", "differ")
    assert found(telling(told), group("g", conflict="x")) == [("group.conflict", "g", BROKER.address)]
    assert found(BROKER, group("g", conflict="x")) == [("group.conflict", "g", "")]


def test_all_stuck_queues_of_a_consumer_group_are_reported_in_one_alarm() -> None:
    (alarm,) = all_alarms([], {"g": group("g", stuck=2)})
    assert (alarm.id, alarm.subject, alarm.value, alarm.unit) == ("consumer.stuck", "g", 10, "messages")
    assert "61 s in T broker-a:0" in alarm.message


def test_a_cluster_without_brokers_has_a_critical_alarm() -> None:
    """Every broker has gone, and the list of what is wrong must not be empty for it."""
    (alarm,) = all_alarms([], {}, is_empty=True)
    assert (alarm.id, alarm.level, alarm.key) == ("broker.none", CRITICAL, "namesrv.addresses")
    assert all_alarms([], {}) == (), "nobody was asked yet, or the name server does not answer"


def test_a_broker_reported_down_by_another_broker_has_one_alarm() -> None:
    """With the reason, which only their supervisor knows."""
    told = telling(Alarm("broker.missing", CRITICAL, "broker-b", "broker-b was ended by SIGKILL"))
    away = BrokerMemory("C", "broker-b", 0, "127.0.0.1:10921", error="nobody answers")
    (alarm,) = all_alarms([broker_row(one, 0.0, told_alarms(one)) for one in (told, away)], {})
    assert alarm.message == "broker-b was ended by SIGKILL"


def test_the_previous_alarms_of_a_broker_are_replaced_by_one_alarm_if_the_broker_does_not_answer() -> None:
    """They may be right again: nobody knows."""
    broker = telling(Alarm("disk.low", WARNING, "", "low"), error="nobody answers")
    assert found(broker) == [("broker.missing", "broker-a", BROKER.address)]


def test_an_alarm_is_raised_if_the_alarms_in_the_runtime_info_of_a_broker_are_unreadable() -> None:
    broker = attrs.evolve(BROKER, info={"alarms": "{"})
    assert found(broker) == [("alarms.unreadable", "", BROKER.address)]


def test_alarms_of_a_rocketmq_broker_are_computed_from_its_disk_usage_and_consumer_lags() -> None:
    """RocketMQ's: by RocketMQ's bounds, and by how its groups' lags went."""
    assert [one.id for one in told_alarms(silent("0.84"))] == []
    assert [one.id for one in told_alarms(silent("0.86"))] == ["disk.nearly_full"]
    broker = silent("0.91")
    for minute in range(7):
        broker.lags.note(minute * 60.0, "g", "T", 20_000 + minute * 1_000)
    assert [(one.id, one.subject) for one in told_alarms(broker)] == [
        ("disk.full", "commitlog"),
        ("consumer.lag_growing", "g"),
    ]


def silent(used: str) -> BrokerMemory:
    return BrokerMemory("C", "java", 0, "127.0.0.1:10911", info={"commitLogDiskRatio": used})


def test_lags_of_system_groups_raise_no_alarm() -> None:
    """The offsets of delay levels wait by design."""
    broker = silent("0.1")
    queue = MessageQueue("java", 0, "T")
    for minute in range(7):
        stats = [ConsumeStats(0.0, {queue: OffsetWrapper(20_000 + minute * 1_000, 0, 0)})]
        broker.progress = {group: advance(None, stats, minute * 60.0) for group in ("g", "CID_RMQ_SYS_TRANS")}
        _note_lags(broker, minute * 60.0)
    assert [(one.id, one.subject) for one in told_alarms(broker)] == [("consumer.lag_growing", "g")]


def test_names_in_alarms_are_shortened_to_one_line() -> None:
    """A group's name comes from clients."""
    (alarm,) = all_alarms([], {"g": group("g\n" + "x" * 500, conflict="y")})
    assert "\n" not in alarm.subject + alarm.message
    assert len(alarm.subject) < 320

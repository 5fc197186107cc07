"""What is counted on the hot paths must add up, per topic and group, and cost next to nothing there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.core.broker.stats import BrokerStats
from flintmq.core.broker.stats_table import StatsTable
from flintmq.core.kernel.ports import AppendedBatch
from flintmq.testing.clock import ManualClock


def records(*found: tuple[str, int, int]) -> list[Any]:
    return [SimpleNamespace(topic=topic, queue_id=queue_id, message_size_bytes=size) for topic, queue_id, size in found]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stats(clock: ManualClock) -> BrokerStats:
    return BrokerStats(clock, "C", {"SCHEDULE_TOPIC_XXXX"})


def minute(stats: BrokerStats, clock: ManualClock, name: str, key: str) -> tuple[int, float]:
    stats.sample()
    clock.advance_ms(10_000)
    stats.sample()
    found = stats.table.view(name, key)
    assert found is not None, (name, key)
    return found[0].sum, found[0].tps


def test_an_append_is_counted_per_topic_and_for_the_broker(stats: BrokerStats, clock: ManualClock) -> None:
    """One topic and several take different ways through the code."""
    stats.stored(records(("T", 0, 100), ("T", 1, 50)))
    stats.stored(records(("T", 0, 1), ("U", 0, 2), ("T", 0, 3)))
    stats.stored([])
    assert (stats.put_messages, stats.put_bytes) == (5, 156)
    assert stats.table.view("TOPIC_PUT_NUMS", "T") is not None, "seen before the first sample"
    stats.stored(records(("T", 0, 7)))
    assert minute(stats, clock, "TOPIC_PUT_NUMS", "T") == (5, 0.5)
    assert minute(stats, clock, "TOPIC_PUT_SIZE", "T")[0] == 161
    assert minute(stats, clock, "TOPIC_PUT_NUMS", "U")[0] == 1
    assert minute(stats, clock, "BROKER_PUT_NUMS", "C")[0] == 6
    assert stats.table.view("QUEUE_PUT_NUMS", "T@0") is None


@pytest.mark.parametrize("more", [[], [("T", 0, 5)], [("U", 0, 5)]])
def test_a_batch_is_counted_as_its_number_of_messages(
    stats: BrokerStats, clock: ManualClock, more: list[tuple[str, int, int]]
) -> None:
    """One object stands for them, alone, with others of its topic, and among several topics."""
    of_batch = AppendedBatch(
        "T", 0, 0, 250, 0, 0, 0, [0, 100], [100, 150], [0, 0], ["", ""], "", [b"", b""], [b"", b""]
    )
    stats.stored([of_batch, *records(*more)], 0.02)
    assert (stats.put_messages, stats.put_bytes) == (2 + len(more), 250 + 5 * len(more))
    stats.roll_put_times()
    assert f"[10~50ms]:{2 + len(more)} " in stats.put_times_text()
    of_topic = 2 + sum(topic == "T" for topic, _queue_id, _size in more)
    assert minute(stats, clock, "TOPIC_PUT_NUMS", "T")[0] == of_topic
    assert minute(stats, clock, "TOPIC_PUT_SIZE", "T")[0] == 250 + 5 * (of_topic - 2)


@pytest.mark.parametrize("mixed", [False, True])
def test_delayed_messages_are_counted_per_level(stats: BrokerStats, clock: ManualClock, mixed: bool) -> None:
    """RocketMQ counts queues in the schedule topic only."""
    stats.stored(
        records(("SCHEDULE_TOPIC_XXXX", 3, 100), ("SCHEDULE_TOPIC_XXXX", 3, 20), *([("T", 0, 1)] if mixed else []))
    )
    assert minute(stats, clock, "QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@3")[0] == 2
    assert minute(stats, clock, "QUEUE_PUT_SIZE", "SCHEDULE_TOPIC_XXXX@3")[0] == 120


def test_each_delivery_of_a_delayed_message_is_counted_for_the_group_named_schedule_consumer(
    stats: BrokerStats, clock: ManualClock
) -> None:
    """RocketMQ shows delayed messages that were delivered under a group of their own."""
    stats.delivered("SCHEDULE_TOPIC_XXXX", 3, records(("T", 0, 100), ("U", 1, 20)))
    stats.delivered("SCHEDULE_TOPIC_XXXX", 0, records(("T", 0, 5)))
    assert minute(stats, clock, "QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@3@SCHEDULE_CONSUMER")[0] == 2
    assert minute(stats, clock, "QUEUE_GET_SIZE", "SCHEDULE_TOPIC_XXXX@3@SCHEDULE_CONSUMER")[0] == 120
    assert minute(stats, clock, "GROUP_GET_NUMS", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER")[0] == 3
    assert minute(stats, clock, "GROUP_GET_SIZE", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER")[0] == 125
    assert stats.get_messages == 0, "nobody pulled"


def test_a_pull_is_counted_per_group_with_its_latency(stats: BrokerStats, clock: ManualClock) -> None:
    """consumeTps of 208 and 317 comes from here."""
    stats.handed_out("T", "g", 2, 32, 4_000, 0.004)
    stats.handed_out("T", "g", 2, 8, 1_000, 0.002)
    assert stats.consume_tps("g", "T") == 0.0, "no span of time has passed"
    assert minute(stats, clock, "GROUP_GET_NUMS", "T@g") == (40, 4.0)
    assert minute(stats, clock, "GROUP_GET_SIZE", "T@g")[0] == 5_000
    assert minute(stats, clock, "BROKER_GET_NUMS", "C")[0] == 40
    stats.handed_out("T", "g", 3, 20, 1_000, 0.001)
    per_pull = stats.table.view("GROUP_GET_NUMS", "T@g")
    assert per_pull is not None
    assert per_pull[0].avgpt == 20.0, "messages per pull, as RocketMQ has it"
    latency = stats.table.view("GROUP_GET_LATENCY", "2@T@g")
    assert latency is not None
    assert (latency[0].sum, latency[0].avgpt) == (6, 3.0)
    assert stats.consume_tps("g", "T") > 0
    assert (stats.get_found, stats.get_messages, stats.get_bytes, stats.get_time_max_s) == (3, 60, 6_000, 0.004)


def test_counters_of_a_deleted_topic_or_group_are_removed(stats: BrokerStats) -> None:
    """A broker on which topics come and go keeps nothing of them."""
    for topic in ("T", "T2"):
        stats.stored(records((topic, 0, 1)))
        for group in ("g", "g2"):
            stats.handed_out(topic, group, 0, 1, 1)
            stats.sent_back(topic, group)
    stats.forget_topic("T")
    assert stats.table.view("TOPIC_PUT_NUMS", "T") is None
    assert stats.table.view("GROUP_GET_LATENCY", "0@T@g") is None
    assert stats.table.view("TOPIC_PUT_NUMS", "T2") is not None
    stats.forget_group("g")
    assert stats.table.view("SNDBCK_PUT_NUMS", "T2@g") is None
    assert stats.table.view("SNDBCK_PUT_NUMS", "T2@g2") is not None
    stats.forget_group("g2")
    assert len(stats.table) == 2 + 2, "what is the broker's and T2's own is left"


def test_the_durations_of_appends_are_reported_as_a_histogram_and_as_quantiles_of_each_minute(
    stats: BrokerStats,
) -> None:
    """putMessageDistributeTime and putMessageEntireTimeMax of request 28."""
    stats.stored(records(("T", 0, 1), ("T", 0, 1)), 0.0004)
    stats.stored(records(("T", 0, 1)), 0.03)
    stats.stored(records(("T", 0, 1)), 11.0)
    assert stats.put_times_text() == "null"
    stats.roll_put_times()
    text = stats.put_times_text()
    assert text.startswith("[<=0ms]:2 [0~10ms]:0 [10~50ms]:1 ")
    assert text.endswith("[10s~]:1 ")
    assert stats.put_latency_ms(0.5) == 1.0
    assert stats.put_latency_ms(0.7) == pytest.approx(42.0)
    assert 10_000 < stats.put_latency_ms(0.999) <= 20_000
    stats.roll_put_times()
    assert stats.put_latency_ms(0.99) == 0.0, "a minute without messages"
    assert stats.put_time_max_s == 11.0


def test_the_number_of_counters_is_bounded_and_reaching_the_bound_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Groups may be made up by whoever pulls; what there is goes on being counted, and the log says so once."""
    table = StatsTable(ManualClock(), count_max=3)
    for number in range(5):
        table.add("GROUP_GET_NUMS", f"T@g{number}")
        table.add("GROUP_GET_NUMS", "T@g0", 2)
    assert len(table) == 3
    assert {key: total for _, key, total, _ in table.rows()} == {"T@g0": 11, "T@g1": 1, "T@g2": 1}
    assert len([line for line in caplog.messages if "counters" in line]) == 1
    table.forget_group("g2")
    table.add("GROUP_GET_NUMS", "T@g4")
    assert len(table) == 3

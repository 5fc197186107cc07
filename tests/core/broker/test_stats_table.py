"""There are several counters for each topic and group: one that rests must cost neither time nor memory, and say the same."""

from __future__ import annotations

import sys
import tracemalloc
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.core.broker.batch_figures import BatchFigures
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.broker.stats_table import StatsSpan, StatsTable
from flintmq.testing.clock import ManualClock
from flintmq.tests.support.effort import examples

SERIES = ((10, 7), (600, 7), (3600, 25))
KEYS = ("A", "B", "A@g")


class Plain:
    """The same counters, each with all of its snapshots."""

    def __init__(self) -> None:
        self.now_s = 0
        self.totals: dict[str, tuple[int, int]] = {}
        self.points: dict[str, list[list[tuple[int, int, int]]]] = {}
        self.taken_s = [0, 0, 0]

    def add(self, key: str, value: int) -> None:
        if key not in self.totals:
            self.points[key] = [[(self.now_s, 0, 0)] for _ in SERIES]
        before = self.totals.get(key, (0, 0))
        self.totals[key] = before[0] + value, before[1] + 1

    def sample(self) -> None:
        for series, (interval_s, kept) in enumerate(SERIES):
            if self.now_s - self.taken_s[series] >= interval_s * 0.9:
                self.taken_s[series] = self.now_s
                for key, of_key in self.points.items():
                    of_key[series] = [*of_key[series], (self.now_s, *self.totals[key])][-kept:]

    def span(self, key: str, series: int) -> StatsSpan:
        points = self.points[key][series]
        if len(points) < 2:
            return StatsSpan(0, 0.0, 0.0)
        (first_s, first, first_times), (last_s, last, last_times) = points[0], points[-1]
        value, times = last - first, last_times - first_times
        return StatsSpan(value, value / max(last_s - first_s, 0.001), value / times if times else 0.0)


STEPS = st.lists(
    st.tuples(st.integers(0, 400), st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 9)), max_size=3)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=examples(200), deadline=None)
@given(STEPS)
def test_statistics_of_the_last_minute_and_hour_and_day_equal_those_of_a_reference_implementation(
    steps: list[tuple[int, list[tuple[str, int]]]],
) -> None:
    """The figures for minute, hour and day must be right after any pause."""
    clock, plain = ManualClock(), Plain()
    table = StatsTable(clock)
    for rest, additions in steps:
        for key, value in additions:
            table.add("N", key, value)
            plain.add(key, value)
        for _ in range(rest):
            clock.advance_ms(10_000)
            plain.now_s += 10
            table.sample()
            plain.sample()
        for key in plain.totals:
            assert table.view("N", key) == tuple(plain.span(key, series) for series in range(3))


def test_a_statistics_snapshot_of_1000_counters_makes_fewer_than_50_function_calls() -> None:
    """Snapshots of 100,000 counters once blocked the loop for half a second, every 10 s."""
    clock = ManualClock()
    table = StatsTable(clock)
    for number in range(1_000):
        table.add("N", f"T{number}@G{number}")
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    clock.advance_ms(3_600_000)
    sys.setprofile(count)
    try:
        table.sample()
    finally:
        sys.setprofile(None)
    assert calls < 50


def test_the_memory_of_a_busy_counter_is_bounded() -> None:
    """One that is added to all day keeps a number for each snapshot that counts, and no more."""
    clock = ManualClock()
    table = StatsTable(clock)
    for _ in range(30 * 360):
        table.add("N", "T@G", 2**40)
        clock.advance_ms(10_000)
        table.sample()
    ((_, item),) = table._items["T"].items()
    assert [type(marks) for marks in item.marks] == [array] * 3
    assert [len(marks) // 3 for marks in item.marks] <= [7, 7, 25]


def test_deleted_topics_and_groups_leave_nothing_in_the_statistics_table() -> None:
    """Topics and groups that come and go must leave nothing behind, in whatever order they go."""
    table = StatsTable(ManualClock())
    for topic in "AB":
        table.add("TOPIC_PUT_NUMS", topic)
        for group in "gh":
            table.add("GROUP_GET_NUMS", f"{topic}@{group}")
            table.add("GROUP_GET_LATENCY", f"0@{topic}@{group}")
    assert table.forget_group("g") == ["A", "B"]
    assert table.forget_group("g") == []
    assert table.view("GROUP_GET_LATENCY", "0@A@g") is None
    table.forget_topic("A")
    assert len(table) == 3
    assert table.forget_group("h") == ["B"]
    table.forget_topic("B")
    assert (len(table), table._items, table._topics) == (0, {}, {})


def _used_by(names: int, uses: int) -> float:
    """Return the bytes of a name that is sent to and read so often, with half an hour of rest after each time."""
    clock = ManualClock()
    texts = [(f"Topic{number:06}", f"Group{number:06}") for number in range(names)]
    tracemalloc.start()
    try:
        stats = BrokerStats(clock)
        stats.figures = BatchFigures()
        for use in range(uses):
            for topic, group in texts:
                stats.table.add("TOPIC_PUT_NUMS", topic, 1)
                stats.table.add("TOPIC_PUT_SIZE", topic, 1_000 + use)
                stats.handed_out(topic, group, 0, 1, 1_000 + use, 0.001, use)
            for _ in range(180):
                clock.advance_ms(10_000)
                stats.sample()
        return tracemalloc.get_traced_memory()[0] / names
    finally:
        tracemalloc.stop()


def test_the_counters_of_a_new_topic_and_its_group_take_less_than_3_kb() -> None:
    """A topic and the group that reads it were 15 KB of counters before anything had been counted twice."""
    assert _used_by(100, 1) < 3_000


@pytest.mark.slow
def test_the_counters_of_a_topic_and_its_group_take_less_than_9_kb_after_a_day_of_use() -> None:
    """It was beyond 40 KB."""
    assert _used_by(20, 60) < 9_000

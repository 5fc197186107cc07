"""An alarm for every backlog is soon switched off by operators: only a lag that grows raises one, and memory is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.broker.lag_watch import STEPS, LagWatch
from flintmq.core.kernel.ports.alarm import Alarm

LIMIT = 1_000
WINDOW_S = 300.0


def watched(lags: list[int], *, every_s: float = 60.0) -> list[Alarm]:
    """What is told after a group's lag was looked at so often."""
    watch = LagWatch(LIMIT, WINDOW_S)
    for number, lag in enumerate(lags):
        watch.note(1_000 + number * every_s, "G", "T", lag)
    return list(watch.alarms(lambda _group: 2))


@pytest.mark.parametrize(
    ("what", "lags", "tells"),
    [
        ("it grows by ten percent a window", [5_000, 5_100, 5_200, 5_300, 5_400, 5_500], True),
        ("it grows in steps", [5_000, 5_000, 8_000, 8_000, 8_000, 8_000], True),
        ("it is large and grows by more than the limit", [10**8 + n * 300 for n in range(6)], True),
        ("a long time ago it was smaller", [1, 1, 1, 5_000, 5_100, 5_200, 5_300, 5_400, 5_500], True),
        ("not yet for a window", [5_000, 6_000, 7_000, 8_000, 9_000], False),
        ("it is below the limit", [100, 200, 300, 400, 500, 600], False),
        ("it was below the limit within the window", [500, 1_100, 1_200, 1_300, 1_400, 1_500], False),
        ("it shrinks", [9_000, 8_000, 7_000, 6_000, 5_000, 4_000], False),
        ("it was smaller in between", [5_000, 4_000, 5_200, 5_300, 5_400, 9_000], False),
        ("it is steady", [5_000, 5_010, 5_000, 5_005, 5_020, 5_010], False),
        ("it is worked off after it grew", [5_000, 6_000, 7_000, 8_000, 9_000, 9_500, 8_000, 6_000, 4_000, 2_000], False),
        ("it is gone", [5_000, 6_000, 7_000, 8_000, 9_000, 9_500, 0], False),
    ],
)  # fmt: skip
def test_a_lag_alarm_is_raised_only_if_the_lag_of_a_group_grows(what: str, lags: list[int], tells: bool) -> None:
    """Each row is a consumer as operators know it."""
    assert bool(watched(lags)) is tells, what


def test_the_lag_alarm_contains_the_lag_and_the_number_of_group_members() -> None:
    """The value is the lag, the limit the setting's; the text has the growth, and the members that there are."""
    (found,) = watched([5_000, 5_100, 5_200, 5_300, 5_400, 6_500])
    assert (found.id, found.level, found.subject) == ("consumer.lag_growing", "warning", "G")
    assert (found.value, found.unit, found.limit, found.key) == (6_500, "messages", LIMIT, "alarms.lag_messages")
    for part in ("6,500 messages behind in topic T", "1,500 more than 5 minutes ago", "its 2 members"):
        assert part in found.message


def test_a_group_has_a_single_lag_alarm_which_names_the_topic_with_the_largest_lag() -> None:
    """A group that reads forty topics is one fault."""
    watch = LagWatch(LIMIT, WINDOW_S)
    for number in range(6):
        for topic, lag in (("A", 2_000), ("B", 9_000), ("C", 3_000)):
            watch.note(number * 60.0, "G", topic, lag + number * 500)
    (found,) = watch.alarms(lambda _group: 0)
    assert "behind in topic B" in found.message
    assert "no members" in found.message


def test_the_lag_alarm_does_not_depend_on_the_sampling_interval() -> None:
    """A console looks once a second."""
    assert watched([5_000 + 2 * second for second in range(0, 700)], every_s=1.0)
    assert not watched([5_000 + second % 2 for second in range(0, 700)], every_s=1.0)


def test_the_lag_watch_removes_groups_without_recent_samples() -> None:
    """A deleted group must not stay in the list."""
    watch = LagWatch(LIMIT, WINDOW_S)
    for number in range(6):
        watch.note(number * 60.0, "G", "T", 5_000 * (number + 1))
        watch.note(number * 60.0, "H", "T", 5_000 * (number + 1))
    watch.note(360.0, "H", "T", 40_000)
    watch.forget_before(360.0)
    assert [alarm.subject for alarm in watch.alarms()] == ["H"]


def test_a_lag_limit_of_0_disables_the_monitoring_of_group_lag() -> None:
    """The way to switch it off."""
    watch = LagWatch(0, WINDOW_S)
    for number in range(9):
        watch.note(number * 60.0, "G", "T", 5_000 * (number + 1))
    assert len(watch) == 0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(0, 5_000)), max_size=200))
def test_memory_of_the_lag_watch_is_bounded(noted: list[tuple[int, int, int]]) -> None:
    """Clients name groups and topics: neither how many there are nor how often they are looked at makes it grow."""
    watch = LagWatch(LIMIT, WINDOW_S, pairs_max=4)
    at_s = 0.0
    for wait_s, group, lag in noted:
        at_s += wait_s
        watch.note(at_s, f"G{group}", "T", lag)
        assert len(watch) <= 4
        for pair in watch._pairs.values():
            assert len(pair.samples) <= STEPS + 2
            assert all(lag >= LIMIT for _, lag in pair.samples)
    list(watch.alarms())

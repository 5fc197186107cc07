"""Counters with history, for the answer to VIEW_BROKER_STATS_DATA (request 315). Used only on the event loop's thread.

The history has the sums of each counter for the last minute, hour and day.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from flintmq.core.io.clock import Clock
from flintmq.core.limits import COUNTERS_MAX
from flintmq.core.log_events import event_log

log = event_log("flintmq.broker")
GROUP_GET_LATENCY: Final = "GROUP_GET_LATENCY"
SAMPLE_INTERVAL_S: Final = 10.0
"""Seconds between two calls of :meth:`StatsTable.sample`."""
_SERIES: Final = ((10.0, 7), (600.0, 7), (3600.0, 25))
"""Three series of snapshots of the counters, for the last minute, hour and day. Each series is given as the seconds between two
snapshots and the number of kept snapshots."""


class StatsSpan(msgspec.Struct, frozen=True):
    """The figures of a counter for a span of time; RocketMQ's StatsSnapshot."""

    sum: int
    """Sum of the values that were added to the counter in the span of time."""
    tps: float
    """Sum of the values that were added to the counter in the span of time, divided by the span's length in seconds."""
    avgpt: float
    """Average of the values that were added to the counter: the sum divided by the number of additions."""


class _Item:
    """A counter with its values at the last snapshots.

    The value at a snapshot is recorded at the first addition after that snapshot. A snapshot thus costs nothing for counters
    that do not change. This matters because each topic and group may have several counters.
    """

    __slots__ = ("born", "created_s", "marks", "seen", "times", "value")

    def __init__(self, now_s: float, numbers: tuple[int, ...]) -> None:
        self.value = 0
        self.times = 0
        self.created_s = now_s
        self.born = self.seen = numbers
        """Numbers of the newest snapshots, one for each series. ``born`` keeps the numbers at the counter's creation. ``seen``
        keeps the numbers at the last addition to the counter."""
        self.marks: tuple[array[int], ...] = ()
        """Recorded snapshots of the counter: for each series, an array with three numbers per snapshot. The numbers are the
        snapshot's number, the counter's value, and the number of additions to the counter.

        A snapshot is recorded only if the counter changed before the next snapshot. For a snapshot that is not recorded, the
        values in the next recorded snapshot are also valid, because the counter did not change between the two. If no later
        snapshot is recorded, the counter's current values are valid.
        """

    def roll(self, numbers: tuple[int, ...]) -> None:
        """Record the counter's current value as its value at the newest snapshots. The caller then adds to the counter, for the
        first time after these snapshots, so that the value changes.

        A snapshot is a point in time at which the values of all counters are kept. There are three series of snapshots: for the
        last minute, hour and day. ``numbers`` has the number of each series' newest snapshot.
        """
        self.marks = self.marks or tuple(array("q") for _ in _SERIES)
        for marks, seen, number, (_, kept) in zip(self.marks, self.seen, numbers, _SERIES, strict=True):
            if number != seen:
                while marks and marks[0] <= number - kept:
                    del marks[:3]
                marks.extend((number, self.value, self.times))
        self.seen = numbers

    def at(self, series: int, number: int) -> tuple[int, int]:
        """Return the value of the counter, and the number of additions to it, at the time of a snapshot.

        Args:
            series: the index of the series of snapshots: 0 for the last minute, 1 for the last hour, 2 for the last day.
            number: the number of the snapshot in the series.
        """
        marks = self.marks[series] if self.marks else ()
        for index in range(0, len(marks), 3):
            if marks[index] >= number:
                return marks[index + 1], marks[index + 2]
        return self.value, self.times


def _nothing() -> None:
    """Do nothing. A :class:`StatsTable` calls a function, its argument ``fold``, before counters are read, so that the table's
    owner can add the counts that it has collected. This function is the default, for owners that add each count at once."""


class StatsTable:
    """Counters keyed by name and key; RocketMQ's StatsItemSet. Loop thread; a timer calls :meth:`sample` every 10 s.

    Args:
        clock: gives the monotonic time of snapshots.
        fold: a function that is called before counters are read. It calls :meth:`add` for the counts that the table's owner has
            collected.
        count_max: limit of counters. Additions that would need a further counter are ignored.
    """

    def __init__(self, clock: Clock, fold: Callable[[], None] = _nothing, *, count_max: int = COUNTERS_MAX) -> None:
        self._count_max = count_max
        self._is_full = False
        self._clock = clock
        self._fold = fold
        self._count = 0
        self._items: dict[str, dict[tuple[str, str], _Item]] = {}
        """Counters, keyed first by topic, and then by the pair (name of the counter, key of the counter). The key of a counter
        for a whole topic is the topic. The key of a counter for one consumer group in the topic is ``topic@group``."""
        self._topics: dict[str, set[str]] = {}
        """Topics in which a group has counters, keyed by group."""
        now_s = clock.monotonic_s()
        self._times_s = tuple(deque((now_s,), kept) for _, kept in _SERIES)
        """Monotonic times in seconds of the kept snapshots of the counters, for each series of snapshots."""
        self._numbers: tuple[int, ...] = (1,) * len(_SERIES)
        """Number of snapshots of each series since the start, which is also the number of the series' newest snapshot."""

    def __len__(self) -> int:
        return self._count

    def add(self, name: str, key: str, value: int = 1, times: int = 1) -> None:
        """Add a value to a counter, which is created if it is missing.

        Args:
            name: name of the counter, for example ``TOPIC_PUT_NUMS``.
            key: key of the counter, for example a topic. Several parts are joined by ``@``, the topic first.
            value: value to add.
            times: number of additions that ``value`` stands for.
        """
        item = self._find(name, key)
        if item is None:
            if self._count >= self._count_max:
                self._tell_full()
                return
            item = self._made(name, key)
        if item.seen is not self._numbers:
            item.roll(self._numbers)
        item.value += value
        item.times += times

    def _tell_full(self) -> None:
        if not self._is_full:
            self._is_full = True
            log.warning(
                "stats.full",
                "there are %(counters)d counters of topics and groups, so no further ones are created",
                counters=self._count,
            )

    def _find(self, name: str, key: str) -> _Item | None:
        found = self._items.get(_topic_of(name, key))
        return found.get((name, key)) if found is not None else None

    def _made(self, name: str, key: str) -> _Item:
        topic, group = _topic_of(name, key), _group_of(key)
        if group:
            self._topics.setdefault(group, set()).add(topic)
        self._count += 1
        item = _Item(self._clock.monotonic_s(), self._numbers)
        self._items.setdefault(topic, {})[name, key] = item
        return item

    def sample(self) -> None:
        """Take the snapshots of all counters that are due now."""
        self._fold()
        now_s = self._clock.monotonic_s()
        numbers = []
        for (interval_s, _), times_s, number in zip(_SERIES, self._times_s, self._numbers, strict=True):
            is_due = now_s - times_s[-1] >= interval_s * 0.9
            if is_due:
                times_s.append(now_s)
            numbers.append(number + is_due)
        self._numbers = tuple(numbers)

    def rows(self) -> Iterator[tuple[str, str, int, float]]:
        """Return name, key, sum since the start, and sum per second in the last minute, for each counter."""
        self._fold()
        return (
            (name, key, item.value, self._span(item, 0).tps)
            for items in list(self._items.values())
            for (name, key), item in list(items.items())
        )

    def view(self, name: str, key: str) -> tuple[StatsSpan, StatsSpan, StatsSpan] | None:
        """Return a counter's sum, sum per second and average for the last minute, the last hour and the last day; None if the
        table does not have the counter."""
        self._fold()
        item = self._find(name, key)
        return (self._span(item, 0), self._span(item, 1), self._span(item, 2)) if item is not None else None

    def tps(self, name: str, key: str) -> float:
        """Return a counter's sum per second in the last minute; 0 if the table does not have the counter."""
        self._fold()
        item = self._find(name, key)
        return self._span(item, 0).tps if item is not None else 0.0

    def _span(self, item: _Item, series: int) -> StatsSpan:
        times_s, number = self._times_s[series], self._numbers[series]
        seen = min(number - item.born[series], len(times_s))
        """Number of kept snapshots that were taken after the counter was created."""
        if not seen:
            return StatsSpan(0, 0.0, 0.0)
        if seen < _SERIES[series][1]:
            first_s, first_value, first_times = item.created_s, 0, 0
        else:
            first_s, (first_value, first_times) = times_s[0], item.at(series, number - seen + 1)
        last_value, last_times = item.at(series, number)
        value, times = last_value - first_value, last_times - first_times
        return StatsSpan(value, value / max(times_s[-1] - first_s, 0.001), value / times if times else 0.0)

    def forget_topic(self, topic: str) -> None:
        """Remove the counters of a topic, and of all groups in the topic."""
        gone = self._items.pop(topic, {})
        for _name, key in gone:
            self._leave(_group_of(key), topic)
        self._less(len(gone))

    def forget_group(self, group: str) -> list[str]:
        """Remove the counters of a group; return the topics in which the group had counters."""
        topics = sorted(self._topics.pop(group, ()))
        for topic in topics:
            items = self._items[topic]
            for name, key in list(items):
                if _group_of(key) == group:
                    del items[name, key]
                    self._less(1)
            if not items:
                del self._items[topic]
        return topics

    def _less(self, count: int) -> None:
        self._count -= count
        self._is_full = self._is_full and self._count >= self._count_max

    def _leave(self, group: str, topic: str) -> None:
        topics = self._topics.get(group)
        if topics is not None:
            topics.discard(topic)
            if not topics:
                del self._topics[group]


def _topic_of(name: str, key: str) -> str:
    """Return the topic in a counter's key.

    The topic is the first part of the key, except in keys of latencies, which have a queue id before the topic.
    """
    if name == GROUP_GET_LATENCY:
        key = key.partition("@")[2]
    return key.partition("@")[0]


def _group_of(key: str) -> str:
    """Return the last part of a counter's key that has several parts; empty for a single part.

    The last part is a group, or a queue id for counters of delay levels.
    """
    return key.rpartition("@")[2] if "@" in key else ""

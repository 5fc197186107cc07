"""Counters with a past: the last minute, hour and day of each (request 315). Loop thread."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from flintmq.core.io.clock import Clock
from flintmq.core.limits import COUNTERS_MAX

log = logging.getLogger("flintmq.broker")
SAMPLE_INTERVAL_S: Final = 10.0
"""How often :meth:`StatsTable.sample` wants to be called."""
_SERIES: Final = ((10.0, 7), (600.0, 7), (3600.0, 25))
"""Seconds between snapshots and how many are kept: a minute, an hour, a day."""


class StatsSpan(msgspec.Struct, frozen=True):
    """What was counted in a span of time."""

    sum: int
    """The sum of values."""
    tps: float
    """The sum per second."""
    avgpt: float
    """The sum per addition."""


class _Item:
    __slots__ = ("series", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        self.series: tuple[deque[tuple[float, int, int]], ...] = tuple(deque(maxlen=kept) for _, kept in _SERIES)

    def sample(self, now_s: float) -> None:
        for (interval_s, _), snapshots in zip(_SERIES, self.series, strict=True):
            if not snapshots or now_s - snapshots[-1][0] >= interval_s * 0.9:
                snapshots.append((now_s, self.value, self.times))

    def tps(self) -> float:
        snapshots = self.series[0]
        if not snapshots:
            return 0.0
        (first_s, first_value, _), (last_s, last_value, _) = snapshots[0], snapshots[-1]
        return (last_value - first_value) / max(last_s - first_s, 0.001)

    def span(self, number: int) -> StatsSpan:
        snapshots = self.series[number]
        if len(snapshots) < 2:
            return StatsSpan(0, 0.0, 0.0)
        (first_s, first_value, first_times), (last_s, last_value, last_times) = snapshots[0], snapshots[-1]
        value, times = last_value - first_value, last_times - first_times
        return StatsSpan(value, value / max(last_s - first_s, 0.001), value / times if times else 0.0)


def _nothing() -> None:
    """Do nothing: nothing waits to be counted."""


class StatsTable:
    """Counters by name and key. Loop thread; the caller's timer calls :meth:`sample` every 10 s.

    Args:
        clock: its monotonic side dates the snapshots.
        fold: called before anything is looked at, so that what was gathered elsewhere is added by :meth:`add`.
        count_max: so many counters there are at most; what would need another one is not counted.
    """

    def __init__(self, clock: Clock, fold: Callable[[], None] = _nothing, *, count_max: int = COUNTERS_MAX) -> None:
        self._count_max = count_max
        self._is_full = False
        self._clock = clock
        self._fold = fold
        self._items: dict[tuple[str, str], _Item] = {}

    def __len__(self) -> int:
        return len(self._items)

    def add(self, name: str, key: str, value: int = 1, times: int = 1) -> None:
        """Count ``times`` additions that make ``value`` together.

        Args:
            name: such as ``TOPIC_PUT_NUMS``.
            key: such as the topic; parts are joined by ``@``.
        """
        item = self._items.get((name, key))
        if item is None:
            if len(self._items) >= self._count_max:
                self._tell_full()
                return
            item = self._items[name, key] = _Item()
            item.sample(self._clock.monotonic_s())
        item.value += value
        item.times += times

    def _tell_full(self) -> None:
        if not self._is_full:
            self._is_full = True
            log.warning("there are %d counters of topics and groups: no more are made", len(self._items))

    def sample(self) -> None:
        """Take a snapshot of every counter that is due."""
        self._fold()
        now_s = self._clock.monotonic_s()
        for item in self._items.values():
            item.sample(now_s)

    def rows(self) -> Iterator[tuple[str, str, int, float]]:
        """Return name, key, sum since the start, and the last minute's sum per second of every counter."""
        self._fold()
        return ((name, key, item.value, item.tps()) for (name, key), item in list(self._items.items()))

    def view(self, name: str, key: str) -> tuple[StatsSpan, StatsSpan, StatsSpan] | None:
        """Return the last minute, hour and day; None when nothing was ever counted there."""
        self._fold()
        item = self._items.get((name, key))
        return (item.span(0), item.span(1), item.span(2)) if item is not None else None

    def tps(self, name: str, key: str) -> float:
        """Return the last minute's sum per second; 0 for what was never counted."""
        self._fold()
        item = self._items.get((name, key))
        return item.tps() if item is not None else 0.0

    def remove_where(self, unwanted: Callable[[str, list[str]], bool]) -> None:
        """Forget counters, chosen by their name and the parts of their key (between ``@``)."""
        for name, key in list(self._items):
            if unwanted(name, key.split("@")):
                del self._items[name, key]
                self._is_full = False

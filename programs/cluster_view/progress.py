"""Figures that need two readings: rates, and queues that do not move although messages wait. The functions are pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from flintmq.core.broker.lag_watch import lag_messages
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.remoting.wire.bodies import ConsumeStats, OffsetWrapper

RATE_MIN_S: Final = 1.0
"""Minimum number of seconds between two readings of a total from which a rate is computed."""


@attrs.define
class Meter:
    """Computes a rate from totals that are read from time to time."""

    total: int
    at_s: float
    per_s: float | None = None

    def note(self, total: int, at_s: float) -> None:
        """Add a new reading of the total. After a smaller total than before, as after a restart, the rate is computed from new
        readings only."""
        if total < self.total:
            self.total, self.at_s, self.per_s = total, at_s, None
        elif at_s - self.at_s >= RATE_MIN_S:
            self.per_s = (total - self.total) / (at_s - self.at_s)
            self.total, self.at_s = total, at_s


class Meters:
    """Rates per second at which several totals grow, keyed by a name, such as a topic's name. :meth:`keep` drops the rates
    whose names are not reported any more."""

    def __init__(self) -> None:
        self._meters: dict[str, Meter] = {}

    def note(self, name: str, total: int, at_s: float) -> None:
        """Add a new reading of the total with the given name."""
        known = self._meters.get(name)
        if known is None:
            self._meters[name] = Meter(total, at_s)
        else:
            known.note(total, at_s)

    def keep(self, names: Iterable[str]) -> None:
        """Drop the rates whose names are not among the given ones."""
        wanted = set(names)
        self._meters = {name: meter for name, meter in self._meters.items() if name in wanted}

    def per_s(self, name: str) -> float | None:
        """Return the rate with the given name; None before the second reading of its total."""
        meter = self._meters.get(name)
        return None if meter is None else meter.per_s


@attrs.define
class GroupProgress:
    """The progress of a group at one broker."""

    per_s: float
    """Messages per second that the group received recently, as the broker reports them."""
    queues: dict[MessageQueue, OffsetWrapper]
    standing: dict[MessageQueue, tuple[int, float]]
    """(consumer offset, time since which the offset has not moved) of each queue with waiting messages, keyed by queue."""
    lag: int = 0
    retry_lag: int = 0
    topics: tuple[str, ...] = ()

    def stuck(self, now_s: float, least_s: float) -> list[tuple[MessageQueue, float]]:
        """Return the queues whose offset has not moved for ``least_s`` seconds although messages wait, each with the
        duration."""
        return [(queue, now_s - since_s) for queue, (_, since_s) in self.standing.items() if now_s - since_s >= least_s]

    def lag_by_topic(self) -> dict[str, int]:
        """Return the number of messages that the group has still to consume, keyed by topic."""
        lags: dict[str, int] = {}
        for queue in self.standing:
            lags[queue.topic] = lags.get(queue.topic, 0) + lag_of(self.queues[queue])
        return lags


def lag_of(queue: OffsetWrapper) -> int:
    """Return the number of messages in a queue that a group has still to consume."""
    return lag_messages(queue.broker_queue_offset, queue.consumer_offset)


def advance(known: GroupProgress | None, stats: Iterable[ConsumeStats], now_s: float) -> GroupProgress:
    """Return a group's progress at a broker after a new reading.

    Args:
        known: the previous progress; None at the first reading.
        stats: the broker's answers, one per topic.
        now_s: the time of the answers.
    """
    before = known.standing if known is not None else {}
    found = GroupProgress(0.0, {}, {})
    topics: set[str] = set()
    for one in stats:
        found.per_s += one.consume_tps
        for queue, figures in one.offset_table.items():
            found.queues[queue] = figures
            topics.add(queue.topic)
            behind = lag_of(figures)
            if not behind:
                continue
            found.lag += behind
            if queue.topic.startswith(RETRY_PREFIX):
                found.retry_lag += behind
            stood = before.get(queue)
            still = stood is not None and stood[0] == figures.consumer_offset
            found.standing[queue] = stood if still and stood is not None else (figures.consumer_offset, now_s)
    found.topics = tuple(sorted(topics))
    return found


def ends_by_topic(groups: Mapping[str, GroupProgress]) -> dict[str, int]:
    """Return the sum of the queues' maximum offsets for each consumed topic. The rate of a topic is computed from the sums of
    two readings."""
    ends: dict[str, dict[int, int]] = {}
    for group in groups.values():
        for queue, figures in group.queues.items():
            ends.setdefault(queue.topic, {})[queue.queue_id] = figures.broker_queue_offset
    return {topic: sum(queues.values()) for topic, queues in ends.items()}

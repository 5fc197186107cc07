"""Tells a lag that grows from one that is merely there, with a bounded memory, from plain values.

A lag *grows* when it has been at least ``limit_messages`` for a whole window, was never below what it was when that began, and
is now a tenth greater, or ``limit_messages`` greater where that is less. So a consumer that works off a backlog, one that
reads in large steps, and one that keeps up under a steady load raise no alarm::

    lag     limit ┈┈┈┈┈┈┈┈┈┈┈╱┈┈┈┈┈┈╱▔▔╲╱▔▔▔▔╱  ◄ now: above the limit for a window, never below its beginning, and grown
                     ╱▔▔╲╱▔▔      │◄── window ──►│
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from flintmq.core.kernel.ports.alarm import WARNING, Alarm

PAIRS_MAX: Final = 2_000
"""Groups' topics above the limit that are remembered, about 1.5 KB each; further ones wait until others are below it again."""
STEPS: Final = 5
"""Samples in a window, so that a dip within it is seen."""
_GROWTH: Final = 10
"""The part of a lag by which it must have grown: a tenth."""


def lag_messages(max_queue_offset: int, consumer_offset: int) -> int:
    """Return how many messages of a queue wait for a group; a negative offset is one that was never stored."""
    return max(0, max_queue_offset - max(0, consumer_offset))


class _Pair(msgspec.Struct):
    """One group in one topic."""

    seen_s: float
    lag: int
    samples: deque[tuple[float, int]]
    """(when, lag): the first one is at most a window and a step old, and the others lie at least a step apart."""


class LagWatch:
    """Remembers the lags that are above a limit. One thread.

    Args:
        limit_messages: a lag below it is not looked at; 0 looks at none.
        window_s: how long a lag is looked at.
        pairs_max: so many topics of groups are remembered.
    """

    def __init__(self, limit_messages: int, window_s: float, pairs_max: int = PAIRS_MAX) -> None:
        self._limit = limit_messages
        self._window_s = window_s
        self._pairs_max = pairs_max
        self._pairs: dict[tuple[str, str], _Pair] = {}

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def step_s(self) -> float:
        """How often a lag has to be noted at least; more often is harmless."""
        return self._window_s / STEPS

    def note(self, at_s: float, group: str, topic: str, lag: int) -> None:
        """Take a lag of a group in a topic, in messages over all queues, measured at a time of a clock that never goes back."""
        if lag < self._limit or not self._limit:
            self._pairs.pop((group, topic), None)
            return
        pair = self._pairs.get((group, topic))
        if pair is None:
            if len(self._pairs) < self._pairs_max:
                self._pairs[group, topic] = _Pair(at_s, lag, deque([(at_s, lag)]))
            return
        pair.seen_s, pair.lag = at_s, lag
        samples = pair.samples
        if at_s - samples[-1][0] >= self.step_s:
            samples.append((at_s, lag))
            while at_s - samples[1][0] >= self._window_s:
                samples.popleft()

    def forget_before(self, at_s: float) -> None:
        """Forget what was not noted since: its group or topic is gone."""
        for key in [key for key, pair in self._pairs.items() if pair.seen_s < at_s]:
            del self._pairs[key]

    def alarms(self, members: Callable[[str], int | None] = lambda group: None) -> Iterator[Alarm]:
        """Return an alarm for each group whose lag grows, about the topic in which it is furthest behind.

        Args:
            members: returns how many members of a group are connected; None when that is unknown.
        """
        worst: dict[str, tuple[int, str, int]] = {}
        for (group, topic), pair in self._pairs.items():
            grown = self._grown(pair)
            if grown:
                worst[group] = max(worst.get(group, (0, "", 0)), (pair.lag, topic, grown))
        for group, (lag, topic, grown) in worst.items():
            yield _lag_growing(
                group, topic, lag, grown, within_s=self._window_s, limit=self._limit, members=members(group)
            )

    def _grown(self, pair: _Pair) -> int:
        """Return by how many messages a lag has grown; 0 where it does not count as growing."""
        began_s, began = pair.samples[0]
        if pair.seen_s - began_s < self._window_s or min(lag for _, lag in pair.samples) < began:
            return 0
        grown = pair.lag - began
        return grown if grown >= min(self._limit, max(1, began // _GROWTH)) else 0


def _lag_growing(
    group: str, topic: str, lag: int, grown: int, *, within_s: float, limit: int, members: int | None = None
) -> Alarm:
    """Return the alarm for a group that falls further and further behind.

    Args:
        group: the consumer group.
        topic: where it is furthest behind.
        lag: how many messages it has not consumed there.
        grown: how many more that is than at the beginning of the window.
        within_s: how long the window is.
        limit: the lag from which on this is told.
        members: how many members are connected; None when that is unknown.
    """
    if members == 0:
        advice = f"it has no members: start them, or delete the group (flintmq groups delete {group})"
    else:
        some = f"its {members} members" if members is not None else "its members"
        advice = f"{some} do not keep up: add some, or look what slows them down (flintmq groups show {group})"
    ago = f"{within_s / 60:.0f} minutes" if within_s >= 120 else f"{within_s:.0f} seconds"
    text = f"group {group} is {lag:,} messages behind in topic {topic}, {grown:,} more than {ago} ago; {advice}"
    return Alarm("consumer.lag_growing", WARNING, group, text, lag, "messages", limit, "alarms.lag_messages")

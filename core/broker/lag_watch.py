"""Detects lags of consumer groups that grow, as opposed to lags that are merely large, with limited memory.

A lag *grows* if three conditions hold. It was at least ``limit_messages`` for a whole window. In the window it was never below
its value at the window's beginning. It is now greater than that value by a tenth or by ``limit_messages``, whichever is less.
Thus a consumer that works off a backlog, reads in large steps, or keeps up with a steady load raises no alarm::

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
"""Maximum number of pairs of consumer group and topic whose lag is watched; the data of a pair takes about 1.5 KB. At this
number, no further pair is watched until the lag of a watched pair falls below ``alarms.lag_messages``."""
STEPS: Final = 5
"""Number of samples of a lag within the time window. If any sample is smaller than the first, the lag does not count as
growing."""
_GROWTH: Final = 10
"""Number by which a lag is divided to compute the smallest growth that raises an alarm. The divided lag is the lag at the
beginning of the time window. With the value 10, the lag must grow by a tenth. A growth by ``alarms.lag_messages`` always raises
the alarm, even if it is less than a tenth."""


def lag_messages(max_queue_offset: int, consumer_offset: int) -> int:
    """Return the number of messages in a queue that a group has not consumed.

    Args:
        max_queue_offset: the queue's end.
        consumer_offset: the group's consumer offset; a negative number means that no offset is stored, and counts as 0.
    """
    return max(0, max_queue_offset - max(0, consumer_offset))


class _Pair(msgspec.Struct):
    """The latest lag and the sampled lags of a consumer group in a topic."""

    seen_s: float
    lag: int
    samples: deque[tuple[float, int]]
    """Samples of the lag as (monotonic time in seconds, lag in messages), at least :attr:`LagWatch.step_s` apart. Only the
    first sample may be older than the time window."""


class LagWatch:
    """Watches lags of groups above a limit, and returns an alarm for each group with a growing lag. Not thread-safe.

    Args:
        limit_messages: smallest lag that is watched, in messages; with 0, no lag is watched.
        window_s: length of the window, in seconds.
        pairs_max: limit of watched pairs of group and topic.
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
        """Longest interval, in seconds, at which :meth:`note` may be called for a pair of group and topic."""
        return self._window_s / STEPS

    def note(self, at_s: float, group: str, topic: str, lag: int) -> None:
        """Record the lag of a consumer group in a topic.

        Args:
            at_s: monotonic time of the measurement.
            group: the group.
            topic: the topic.
            lag: the sum of the lags in all queues, in messages.
        """
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
        """Remove each pair of group and topic whose lag was not recorded since a monotonic time, because group or topic was
        deleted.
        """
        for key in [key for key, pair in self._pairs.items() if pair.seen_s < at_s]:
            del self._pairs[key]

    def alarms(self, members: Callable[[str], int | None] = lambda group: None) -> Iterator[Alarm]:
        """Yield an alarm for each group with a growing lag. The alarm names the topic with the group's largest growing lag.

        Args:
            members: returns the number of connected members of a group; None if it is unknown.
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
        """Return the growth of a group's lag in a topic, in messages; 0 if the lag does not count as growing."""
        began_s, began = pair.samples[0]
        if pair.seen_s - began_s < self._window_s or min(lag for _, lag in pair.samples) < began:
            return 0
        grown = pair.lag - began
        return grown if grown >= min(self._limit, max(1, began // _GROWTH)) else 0


def _lag_growing(
    group: str, topic: str, lag: int, grown: int, *, within_s: float, limit: int, members: int | None = None
) -> Alarm:
    """Return the alarm for a group whose lag grows.

    Args:
        group: the consumer group.
        topic: the topic with the largest growing lag.
        lag: the lag in messages.
        grown: growth of the lag in the window, in messages.
        within_s: length of the window, in seconds.
        limit: smallest lag for which the alarm is raised, in messages.
        members: number of connected members; None if it is unknown.
    """
    if members == 0:
        advice = f"it has no members: start them, or delete the group (flintmq groups delete {group})"
    else:
        some = f"its {members} members" if members is not None else "its members"
        advice = f"{some} do not keep up: add some, or look what slows them down (flintmq groups show {group})"
    ago = f"{within_s / 60:.0f} minutes" if within_s >= 120 else f"{within_s:.0f} seconds"
    text = f"group {group} is {lag:,} messages behind in topic {topic}, {grown:,} more than {ago} ago; {advice}"
    return Alarm("consumer.lag_growing", WARNING, group, text, lag, "messages", limit, "alarms.lag_messages")

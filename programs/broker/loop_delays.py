"""Remembers how long a loop kept the latest looks at it waiting. One thread."""

from __future__ import annotations

from collections import Counter, deque
from statistics import median
from typing import Final

LOOKS: Final = 20
"""So many looks are remembered: some seconds. A single block among them changes their median by nothing."""


class LoopDelays:
    """The latest delays, and what the loop was busy with.

    Args:
        slow_s: a loop is slow when half of its latest delays are longer.
    """

    def __init__(self, slow_s: float) -> None:
        self._slow_s = slow_s
        self._looks: deque[tuple[float, str]] = deque(maxlen=LOOKS)

    @property
    def median_s(self) -> float:
        """The delay that half of the latest looks did not exceed; 0 before there are enough."""
        return median(delay_s for delay_s, _ in self._looks) if len(self._looks) == LOOKS else 0.0

    @property
    def is_slow(self) -> bool:
        """Whether the loop is slow, and not merely stood still once."""
        return self.median_s > self._slow_s

    def note(self, delay_s: float, busy_with: str) -> None:
        """Take note of a look.

        Args:
            delay_s: how long it waited for its turn.
            busy_with: what the loop was busy with where that was long; else empty.
        """
        self._looks.append((delay_s, busy_with))

    def busiest(self) -> str:
        """Return what the loop was most often busy with."""
        found = Counter(place for _, place in self._looks if place)
        return found.most_common(1)[0][0] if found else "?"

"""Remembers the latest delays of an event loop. Not thread-safe."""

from __future__ import annotations

from collections import Counter, deque
from statistics import median
from typing import Final

LOOKS: Final = 20
"""Number of the event loop's latest delays whose median is computed. A single long delay does not change the median."""


class LoopDelays:
    """The latest delays of an event loop, and what the loop was busy with.

    Args:
        slow_s: the loop counts as slow if the median delay is longer.
    """

    def __init__(self, slow_s: float) -> None:
        self._slow_s = slow_s
        self._looks: deque[tuple[float, str]] = deque(maxlen=LOOKS)

    @property
    def median_s(self) -> float:
        """The median of the event loop's latest delays in seconds; 0 if there are too few delays."""
        return median(delay_s for delay_s, _ in self._looks) if len(self._looks) == LOOKS else 0.0

    @property
    def is_slow(self) -> bool:
        """Whether the event loop is slow over time, not only blocked once."""
        return self.median_s > self._slow_s

    def note(self, delay_s: float, busy_with: str) -> None:
        """Record a delay of the event loop.

        Args:
            delay_s: the delay in seconds.
            busy_with: what the loop was busy with, if the delay was long; else empty.
        """
        self._looks.append((delay_s, busy_with))

    def busiest(self) -> str:
        """Return what the event loop was busy with most often; ``?`` if this is unknown."""
        found = Counter(place for _, place in self._looks if place)
        return found.most_common(1)[0][0] if found else "?"

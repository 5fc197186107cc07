"""Counts values by size in plain lists, for what happens once per batch or sync."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds for what the disk takes."""


class Histogram:
    """How many values were at most so large. One thread adds; any may read, and sees a moment that is nearly one.

    Args:
        bounds: growing; the last bucket takes what is larger than all of them.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """By bucket, each without those below."""
        self.total = 0.0
        """The sum of all values."""

    def add(self, value: float, count: int = 1) -> None:
        """Count a value, or several that are equal."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

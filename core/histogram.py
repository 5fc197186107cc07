"""A histogram in plain lists, for measurements taken once per batch or sync."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of a histogram's buckets in seconds, suitable for durations of disk operations."""


class Histogram:
    """Counts values in buckets by size. One thread adds values; any thread can read an approximately consistent state.

    Args:
        bounds: the ascending upper bounds of the buckets; a further bucket counts values above all of them.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """Number of values in each bucket of the histogram. The numbers are not cumulative."""
        self.total = 0.0
        """Sum of all values in the histogram."""

    def add(self, value: float, count: int = 1) -> None:
        """Add a measured value to the histogram ``count`` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

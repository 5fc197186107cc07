"""The figures of one moment as plain numbers, in a bounded number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from flintmq.core.histogram import Histogram
from flintmq.core.kernel.ports import Measurement

Labels = tuple[str, ...]


@attrs.frozen
class Distribution:
    """A histogram of one moment."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """By bucket, each without those below."""
    total: float

    @classmethod
    def of(cls, histogram: Histogram) -> Distribution:
        """Return what a histogram holds now."""
        return cls(histogram.bounds, tuple(histogram.counts), histogram.total)


class Samples:
    """What one scrape tells. Filled on the loop's thread, then by one other.

    Args:
        limit: how many series are told; further ones are counted.
    """

    def __init__(self, limit: int = 20_000) -> None:
        self._limit = limit
        self.by_name: dict[str, list[tuple[Labels, float]]] = {}
        """By the metric's name: the values of its labels that its group has not in common, and the figure."""
        self.distributions: dict[str, list[tuple[Labels, Distribution]]] = {}
        """Likewise, of histograms."""
        self.info: Mapping[str, str] = {}
        """The figures of request 28."""
        self.of_services: list[Measurement] = []
        """What services of third parties bring."""
        self.count = 0
        self.left_out = 0
        """Series that were too many."""

    def add(self, name: str, figure: float, *labels: str) -> None:
        """Tell one figure."""
        if self.count >= self._limit:
            self.left_out += 1
            return
        self.count += 1
        known = self.by_name.get(name)
        if known is None:
            self.by_name[name] = [(labels, figure)]
        else:
            known.append((labels, figure))

    def add_all(self, figures: Iterable[tuple[str, float]]) -> None:
        """Tell figures that have no further labels, by name."""
        for name, figure in figures:
            self.add(name, figure)

    def add_histogram(self, name: str, histogram: Histogram, *labels: str) -> None:
        """Tell what a histogram holds now."""
        if self.count >= self._limit:
            self.left_out += 1
            return
        self.count += len(histogram.counts) + 2
        self.distributions.setdefault(name, []).append((labels, Distribution.of(histogram)))

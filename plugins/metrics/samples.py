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
        self.many: Samples | None = None
        """The figures of topics and groups, which several answers share."""
        self.texts: dict[bool, bytes] = {}
        """What was made of these, by whether it is OpenMetrics."""
        self.begun_s = 0.0
        """When these were gathered, by the monotonic clock, where answers share them."""
        self.spent_s = 0.0
        """The processor time that these took so far, their text included, where answers share them."""
        self.count = 0
        self.left_out = 0
        """Series that were too many."""

    @property
    def parts(self) -> tuple[Samples, ...]:
        """Return these, and those of topics and groups."""
        return (self,) if self.many is None else (self, self.many)

    def share(self, many: Samples) -> None:
        """Tell what others gathered, too: no metric may be in both. It counts as these."""
        self.many = many
        self.count += many.count

    @property
    def room(self) -> int:
        """Return how many series more are told."""
        return self._limit - self.count

    def takes(self, series: int) -> bool:
        """Return whether so many series more are told, and count them: the caller adds each to its :meth:`rows`."""
        if self.count + series > self._limit:
            self.left_out += series
            return False
        self.count += series
        return True

    def rows(self, name: str) -> list[tuple[Labels, float]]:
        """Return the labels and figures of a metric, for the caller to add to."""
        known = self.by_name.get(name)
        if known is None:
            known = self.by_name[name] = []
        return known

    def repeat(self, names: Mapping[str, str]) -> None:
        """Tell metrics under a second name, too."""
        for name, other in names.items():
            if name in self.by_name:
                self.by_name[other] = self.by_name[name]
            if name in self.distributions:
                self.distributions[other] = self.distributions[name]

    def add(self, name: str, figure: float, *labels: str) -> None:
        """Tell one figure."""
        if self.takes(1):
            self.rows(name).append((labels, figure))

    def add_all(self, figures: Iterable[tuple[str, float]]) -> None:
        """Tell figures that have no further labels, by name."""
        for name, figure in figures:
            self.add(name, figure)

    def add_histogram(self, name: str, histogram: Histogram, *labels: str) -> None:
        """Tell what a histogram holds now."""
        if self.takes(len(histogram.counts) + 2):
            self.distributions.setdefault(name, []).append((labels, Distribution.of(histogram)))

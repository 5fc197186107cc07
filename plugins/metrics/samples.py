"""Holds the figures of one scrape of the metrics as plain numbers, up to a maximum number of series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from flintmq.core.histogram import Histogram
from flintmq.core.kernel.ports import Measurement

Labels = tuple[str, ...]


@attrs.frozen
class Distribution:
    """A copy of a histogram's buckets at one moment."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """Number of values in each bucket of the histogram. The numbers are not cumulative."""
    total: float

    @classmethod
    def of(cls, histogram: Histogram) -> Distribution:
        """Return a copy of a histogram's current buckets."""
        return cls(histogram.bounds, tuple(histogram.counts), histogram.total)


class Samples:
    """The figures of one scrape. Not thread-safe: the event loop's thread adds figures first. Then one other thread
    adds figures.

    Args:
        limit: maximum number of series. Further series are left out and counted.
    """

    def __init__(self, limit: int = 20_000) -> None:
        self._limit = limit
        self.by_name: dict[str, list[tuple[Labels, float]]] = {}
        """Samples of counters and gauges, keyed by the metric's name. A sample has the figure and the values of the metric's
        labels, without the labels that all metrics of its group share."""
        self.distributions: dict[str, list[tuple[Labels, Distribution]]] = {}
        """Samples of histograms, keyed by the metric's name. A sample has the values of the metric's labels and the histogram's
        buckets."""
        self.info: Mapping[str, str] = {}
        """The figures in the broker's answer to GET_BROKER_RUNTIME_INFO (request 28), keyed by RocketMQ's names."""
        self.of_services: list[Measurement] = []
        """Measurements that services of third-party plugins publish."""
        self.many: Samples | None = None
        """Samples of topics and consumer groups, which several scrapes may share; None before :meth:`share` is called."""
        self.texts: dict[bool, bytes] = {}
        """Formatted text of the samples, keyed by whether the format is OpenMetrics (True) or Prometheus (False)."""
        self.begun_s = 0.0
        """Monotonic time, in seconds, at which gathering the samples began; set only for samples that several scrapes share."""
        self.spent_s = 0.0
        """Processor time, in seconds, for gathering and formatting the samples; set only for samples that several scrapes
        share."""
        self.count = 0
        self.left_out = 0
        """Number of series that were left out because the maximum number of series was reached."""

    @property
    def parts(self) -> tuple[Samples, ...]:
        """Return the samples of one scrape as a tuple: this object, and the samples of topics and consumer groups
        (:attr:`many`), which are made once for several scrapes.

        Until :meth:`share` sets :attr:`many`, the tuple contains only this object.
        """
        return (self,) if self.many is None else (self, self.many)

    def share(self, many: Samples) -> None:
        """Include samples of topics and consumer groups that several scrapes share. Their series count towards this object's
        maximum number of series. A metric must not be both in this object and in the shared samples."""
        self.many = many
        self.count += many.count

    @property
    def room(self) -> int:
        """Return how many more series of metrics fit into the limit."""
        return self._limit - self.count

    def takes(self, series: int) -> bool:
        """Count further series, and return whether they fit into the limit. If they fit, the caller adds each series to the
        :meth:`rows` of its metric."""
        if self.count + series > self._limit:
            self.left_out += series
            return False
        self.count += series
        return True

    def rows(self, name: str) -> list[tuple[Labels, float]]:
        """Return the list of a metric's label values and figures. The caller may append to the list."""
        known = self.by_name.get(name)
        if known is None:
            known = self.by_name[name] = []
        return known

    def repeat(self, names: Mapping[str, str]) -> None:
        """Expose some metrics under a second name, too.

        Args:
            names: second names of metrics, keyed by the first name.
        """
        for name, other in names.items():
            if name in self.by_name:
                self.by_name[other] = self.by_name[name]
            if name in self.distributions:
                self.distributions[other] = self.distributions[name]

    def add(self, name: str, figure: float, *labels: str) -> None:
        """Add one sample, or count the sample as left out if the limit of series is reached."""
        if self.takes(1):
            self.rows(name).append((labels, figure))

    def add_all(self, figures: Iterable[tuple[str, float]]) -> None:
        """Add the figures of several metrics, one figure for each metric, without values of labels.

        This method is for metrics without individual labels. Every metric belongs to a group of metrics with common labels. The
        values of the common labels are added when the metrics are formatted.

        Args:
            figures: pairs of a metric's name and its figure.
        """
        for name, figure in figures:
            self.add(name, figure)

    def add_histogram(self, name: str, histogram: Histogram, *labels: str) -> None:
        """Add a copy of a histogram, or count the histogram's series as left out if the limit of series is reached."""
        if self.takes(len(histogram.counts) + 2):
            self.distributions.setdefault(name, []).append((labels, Distribution.of(histogram)))

"""Makes of a snapshot what monitoring systems read: Prometheus's text, or OpenMetrics where it is asked for."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.exposition import choose_encoder

from flintmq.plugins.metrics.families import GROUPS, Family
from flintmq.plugins.metrics.snapshot import Samples


class _Once:
    """The metrics of one snapshot, as a collector of prometheus_client."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        """Return them in the order of their definitions."""
        for group in GROUPS:
            for family in group.families:
                found = self._samples.get(family.name)
                if found:
                    yield _metric(family, (*group.common, *family.labels), found)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the names are known to be different."""
        return ()


class Exposition:
    """Makes text of snapshots. Any thread."""

    def __init__(self) -> None:
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    def text(self, samples: Samples, accept: str) -> tuple[bytes, str]:
        """Return the text, and its content type.

        Args:
            samples: the figures.
            accept: what the client takes, as its header says.
        """
        registry = CollectorRegistry()
        registry.register(_Once(samples))
        registry.register(self._process)
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type


def _metric(family: Family, labels: tuple[str, ...], found: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    metric = Metric(name, family.meaning, family.kind)
    for values, figure in found:
        metric.add_sample(family.name, dict(zip(labels, values, strict=True)), figure)
    return metric

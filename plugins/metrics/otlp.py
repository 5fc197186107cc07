"""Pushes the figures to a collector of OpenTelemetry, by OTLP over HTTP. In a thread of its own, outside the loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from flintmq.core.io.threads import daemon_thread
from flintmq.core.log_events import event_log
from flintmq.plugins.metrics.families import FAMILIES, NODE
from flintmq.plugins.metrics.snapshot import NoSnapshotError

if TYPE_CHECKING:
    from flintmq.plugins.metrics.exposition import Commons
    from flintmq.plugins.metrics.samples import Samples

log = event_log("flintmq.broker")

TIMEOUT_S: Final = 10.0
"""For one push, with what the exporter tries again."""
_JOIN_S: Final = 5.0
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
Take = Callable[[], "tuple[Samples, Commons]"]


class OtlpPusher:
    """Pushes from :meth:`start` to :meth:`stop`.

    Args:
        take: returns the figures of now, and the values of the labels that groups have in common; NoSnapshotError where there
            are none. Called on the pusher's thread.
        endpoint: URL of the collector, ``http://HOST:4318/v1/metrics``.
        interval_s: between two pushes; the first one comes after one interval.
        boot_ms: since when counters count, in ms since 1970.
    """

    def __init__(self, take: Take, endpoint: str, interval_s: float, boot_ms: int) -> None:
        self._take = take
        self._endpoint = endpoint
        self._interval_s = interval_s
        self._boot_ns = boot_ms * 1_000_000
        self._exporter = OTLPMetricExporter(endpoint=endpoint, timeout=TIMEOUT_S)
        self._stopped = threading.Event()
        self._thread = daemon_thread(self._run, "flintmq-otlp")
        self._trouble = ""
        self.pushes = 0
        """Pushes that the collector took."""
        self.failures = 0
        """Pushes that were lost; counters have what they had in the next one."""

    def start(self) -> None:
        """Begin to push."""
        self._thread.start()

    def stop(self) -> None:
        """End, also in the middle of a push. Blocks for a moment. Idempotent."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._exporter.shutdown()
            if self._thread.is_alive():
                self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                self._note(self.push())
            except Exception as error:  # the next push may succeed, and this thread is the only one
                self._note(f"{type(error).__name__}: {error}")

    def push(self) -> str:
        """Push once; return why it failed, empty where it did not."""
        try:
            samples, commons = self._take()
        except NoSnapshotError as error:
            return str(error)
        result = self._exporter.export(data_of(samples, commons, self._boot_ns, time.time_ns()))
        return "" if result is MetricExportResult.SUCCESS else "the collector did not take them"

    def _note(self, trouble: str) -> None:
        if self._stopped.is_set():
            return
        self.failures += bool(trouble)
        self.pushes += not trouble
        if trouble and not self._trouble:
            log.warning(
                "metrics.not_pushed",
                "figures cannot be pushed to %(endpoint)s: %(error)s",
                endpoint=self._endpoint,
                error=trouble,
            )
        elif self._trouble and not trouble:
            log.info("metrics.pushed_again", "figures are pushed to %(endpoint)s again", endpoint=self._endpoint)
        self._trouble = trouble


def data_of(samples: Samples, commons: Commons, boot_ns: int, now_ns: int) -> MetricsData:
    """Return figures as OpenTelemetry's data, with the same names and labels as ``/metrics`` has.

    Args:
        samples: the figures.
        commons: what all samples of a group have in common.
        boot_ns: since when counters count, in ns since 1970.
        now_ns: of when the figures are.
    """
    node = dict(zip(NODE, commons[NODE], strict=True))
    resource = Resource({"service.name": "flintmq", "service.instance.id": node["node_id"]})
    metrics = [one for part in samples.parts for one in _own(part, commons, boot_ns, now_ns)]
    metrics += _of_services(samples, node, boot_ns, now_ns)
    scope = ScopeMetrics(InstrumentationScope("flintmq"), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _own(samples: Samples, commons: Commons, boot_ns: int, now_ns: int) -> Iterator[Metric]:
    for name, family in FAMILIES.items():
        names, common = (*family.common, *family.labels), commons[family.common]
        if found := samples.by_name.get(name):
            points = [
                NumberDataPoint(dict(zip(names, (*common, *labels), strict=True)), boot_ns, now_ns, figure)
                for labels, figure in found
            ]
            yield _metric(name, family.meaning, family.kind, points)
        elif distributions := samples.distributions.get(name):
            histograms = [
                HistogramDataPoint(
                    attributes=dict(zip(names, (*common, *labels), strict=True)),
                    start_time_unix_nano=boot_ns,
                    time_unix_nano=now_ns,
                    count=sum(one.counts),
                    sum=one.total,
                    bucket_counts=one.counts,
                    explicit_bounds=one.bounds,
                    min=None,
                    max=None,
                )
                for labels, one in distributions
            ]
            yield Metric(name, family.meaning, "", Histogram(histograms, _CUMULATIVE))


def _of_services(samples: Samples, node: dict[str, str], boot_ns: int, now_ns: int) -> Iterator[Metric]:
    for one in samples.of_services:
        point = NumberDataPoint({**node, **one.labels}, boot_ns, now_ns, one.value)
        yield _metric(one.name, one.meaning, one.kind, [point])


def _metric(name: str, meaning: str, kind: str, points: Sequence[NumberDataPoint]) -> Metric:
    data = Sum(points, _CUMULATIVE, is_monotonic=True) if kind == "counter" else Gauge(points)
    return Metric(name, meaning, "", data)

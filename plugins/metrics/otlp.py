"""Pushes the metrics to an OpenTelemetry collector by OTLP over HTTP, in a separate thread outside the event loop."""

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
"""Time limit in seconds for one push of metrics, including the exporter's retries."""
_JOIN_S: Final = 5.0
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
Take = Callable[[], "tuple[Samples, Commons]"]


class OtlpPusher:
    """Pushes metrics at a fixed interval from :meth:`start` to :meth:`stop`.

    Args:
        take: returns the current figures, and the values of the labels that all metrics of a group share. It raises
            NoSnapshotError if the loop does not answer. Called on the pusher's thread.
        endpoint: URL of the collector, ``http://HOST:4318/v1/metrics``.
        interval_s: time between two pushes; the first push comes after one interval.
        boot_ms: start time of the counters, in ms since 1970.
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
        """Number of pushes of metrics that the collector accepted."""
        self.failures = 0
        """Number of failed pushes of metrics. A failed push loses no increments of counters: counters are cumulative, so the
        next push contains the increments."""

    def start(self) -> None:
        """Start the thread that pushes metrics."""
        self._thread.start()

    def stop(self) -> None:
        """Stop pushing metrics, even in the middle of a push. Blocks for at most five seconds. Idempotent."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._exporter.shutdown()
            if self._thread.is_alive():
                self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                self._note(self.push())
            except Exception as error:  # A failed push must not end the thread, because the next push may succeed.
                self._note(f"{type(error).__name__}: {error}")

    def push(self) -> str:
        """Push the metrics once; return the reason if the push failed, else the empty string."""
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
    """Return figures as OpenTelemetry's data, with the names and labels that ``/metrics`` uses.

    Args:
        samples: the figures.
        commons: values of the labels that all metrics of a group share.
        boot_ns: start time of the counters, in ns since 1970.
        now_ns: time of the figures, in ns since 1970.
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

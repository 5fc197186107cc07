"""The service ``metrics``: serves ``/metrics``, ``/healthz`` and ``/readyz`` from the broker's start to its stop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.address import host_port
from flintmq.core.broker.batch_figures import BatchFigures
from flintmq.core.kernel.ports import Alarm
from flintmq.plugins.metrics.families import WITH_UNIT
from flintmq.plugins.metrics.gather import Gatherer
from flintmq.plugins.metrics.http_server import Answer, HttpServer
from flintmq.plugins.metrics.runtime_samples import add_runtime_samples
from flintmq.plugins.metrics.samples import Labels, Samples
from flintmq.plugins.metrics.snapshot import NoSnapshotError, Snapshots
from flintmq.remoting.server.addresses import reachable_host
from flintmq.remoting.server.descriptors import bind

if TYPE_CHECKING:
    from flintmq.config.sections.models import MetricsSection
    from flintmq.core.broker.api import BrokerApi
    from flintmq.plugins.metrics.exposition import Commons, Exposition
    from flintmq.plugins.metrics.otlp import OtlpPusher

FULL: Final = "store.disk_full"
"""Id of the reason for which a broker refuses messages while its disk is full. The broker still counts as ready, because it can
serve consumers."""
TIMEOUT_S: Final = 2.0
"""Maximum time in seconds that a request for metrics or a probe waits for the event loop."""


class MetricsService:
    """Serves metrics and probes over HTTP, and pushes metrics. Loop thread, except for methods that say otherwise.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._exposition: Exposition | None = None
        self._otlp: OtlpPusher | None = None
        self._gatherer = Gatherer(api)
        self._figures = Snapshots(
            api.work.loop, self._gatherer.steps, TIMEOUT_S, api.settings.current.metrics.series_max
        )
        self._signs = Snapshots(api.work.loop, _nothing, TIMEOUT_S)
        self._server: HttpServer | None = None
        self._address = ""
        self._left_out = 0
        self._waits_for = "the broker is starting"
        """Reason why the broker is not ready for clients; empty while the broker is ready."""

    def start(self) -> None:
        """Start the HTTP server and the pusher of metrics that are switched on. Until :meth:`ready`, probes get "starting".

        Raises:
            RemotingError: the port is in use, or the address does not belong to this machine.
        """
        self._api.figures.counts.measure(BatchFigures())
        self._api.server.measure(self._gatherer.latency)
        settings = self._api.settings.current.metrics
        if settings.enable:
            self._listen(settings)
        if settings.otlp_endpoint is not None:
            from flintmq.plugins.metrics.otlp import OtlpPusher

            interval_s, boot_ms = settings.otlp_interval_ms / 1000, self._api.figures.counts.boot_timestamp_ms
            self._otlp = OtlpPusher(self.told, settings.otlp_endpoint, interval_s, boot_ms)
            self._otlp.start()

    def _listen(self, settings: MetricsSection) -> None:
        from flintmq.plugins.metrics.exposition import Exposition

        self._exposition = Exposition()
        sock = bind(settings.host, settings.port, "metrics.host, metrics.port")
        self._address = host_port(reachable_host(settings.host), sock.getsockname()[1])
        self._server = HttpServer(sock, self.answer, slow_path="/metrics")
        self._server.start()

    def ready(self) -> None:
        """Report to probes from now on that the broker is ready."""
        self._waits_for = ""

    def ready_words(self) -> Mapping[str, str]:
        """Return a mapping with the address of the HTTP server, as ``host:port``, under the key ``metrics``. The mapping is
        empty if metrics are only pushed."""
        return {"metrics": self._address} if self._address else {}

    def alarms(self) -> Iterator[Alarm]:
        """Return an alarm if the last scrape of the metrics left out series."""
        if self._left_out:
            limit = self._api.settings.current.metrics.series_max
            text = f"the metrics leave out {self._left_out} series: raise metrics.series_max, or have fewer topics"
            yield Alarm(
                "metrics.series", "warning", "", text, limit + self._left_out, "series", limit, "metrics.series_max"
            )

    def withdraw(self) -> None:
        """Report to probes from now on that the broker is stopping, and so is not ready."""
        self._waits_for = "the broker is stopping"

    async def stop(self) -> None:
        """Stop the HTTP server and the pusher of metrics, after the HTTP requests under way are answered."""
        self._figures.close()
        self._signs.close()
        for part in (self._server, self._otlp):
            if part is not None:
                await self._api.work.background(part.stop)

    def answer(self, path: str, accept: str) -> Answer:
        """Return the answer to an HTTP request. Called on one of the HTTP server's threads.

        Args:
            path: the URL's path.
            accept: the client's header ``Accept``.
        """
        try:
            if path == "/metrics":
                return self._scrape(accept)
            if path in ("/healthz", "/readyz"):
                self._signs.take()
                return self._health() if path == "/healthz" else self._readiness()
        except NoSnapshotError as error:
            return Answer.text(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return Answer.text(HTTPStatus.NOT_FOUND, "no such page; pages: /metrics, /healthz, /readyz")

    def _scrape(self, accept: str) -> Answer:
        assert self._exposition is not None
        parts, content_type = self._exposition.text(*self.told(), accept)
        return Answer(HTTPStatus.OK, parts, content_type)

    def told(self) -> tuple[Samples, Commons]:
        """Return the current figures, and the values of the labels that are the same in all samples of a metric, such as
        ``cluster`` and ``broker``. The values are keyed by the tuple of the labels' names.

        Any thread except the loop's.

        Raises:
            NoSnapshotError: the loop has not answered, or the broker stops.
        """
        snapshot = self._figures.take()
        samples = snapshot.samples
        add_runtime_samples(samples)
        self._left_out = sum(part.left_out for part in samples.parts)
        for part in samples.parts:
            part.repeat(WITH_UNIT)
        samples.by_name["flintmq_scrape_seconds"] = [((), snapshot.took_s)]
        samples.by_name["flintmq_left_out_series"] = [((), self._left_out)]
        if self._otlp is not None:
            pushed = [(("taken",), self._otlp.pushes), (("lost",), self._otlp.failures)]
            samples.by_name["flintmq_otlp_pushes_total"] = list[tuple[Labels, float]](pushed)
        return samples, self._gatherer.commons(samples.info)

    def _health(self) -> Answer:
        trouble = self._api.log.health.trouble
        return Answer.text(HTTPStatus.OK, "ok" if trouble is None else f"alive, but {trouble.remark}")

    def _readiness(self) -> Answer:
        trouble = self._api.log.health.trouble
        if self._waits_for:
            return Answer.text(HTTPStatus.SERVICE_UNAVAILABLE, self._waits_for)
        if trouble is None:
            return Answer.text(HTTPStatus.OK, "ok")
        if trouble.reason == FULL:
            # A broker with a full disk counts as ready: consumers must reach it, so that messages can be deleted.
            return Answer.text(HTTPStatus.OK, f"ready for consumers, but {trouble.remark}")
        return Answer.text(HTTPStatus.SERVICE_UNAVAILABLE, trouble.remark)


def _nothing(_samples: Samples) -> Iterator[None]:
    """Return an iterator that gathers no figures. Probes use it, because they only check that the event loop answers."""
    return iter(())

"""What is pushed arrives: decoded by a receiver as a collector decodes it."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter", reason="the extra otel is not installed")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from flintmq import Broker, Message
from flintmq.config import BrokerConfig, ConfigError
from flintmq.config.sections.models import ListenSection, MetricsSection, StoreSection
from flintmq.plugins.metrics.families import FAMILIES


class Receiver(HTTPServer):
    """A collector that keeps what it is sent, and answers with a status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Take)
        self.status = 200
        self.taken: list[ExportMetricsServiceRequest] = []
        self.came = threading.Condition()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/metrics"

    def next(self) -> ExportMetricsServiceRequest:
        """The next request that comes from now on."""
        with self.came:
            known = len(self.taken)
            assert self.came.wait_for(lambda: len(self.taken) > known, timeout=20)
            return self.taken[-1]


class Take(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = zlib.decompress(body, 31)
        assert self.path == "/v1/metrics"
        with self.server.came:
            self.server.taken.append(ExportMetricsServiceRequest.FromString(body))
            self.server.came.notify_all()
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def config(root: Path, endpoint: str) -> BrokerConfig:
    return BrokerConfig(
        listen=ListenSection(port=0, vip=False),
        store=StoreSection(path=str(root)),
        metrics=MetricsSection(otlp_endpoint=endpoint, otlp_interval_ms=100),
    )


def points(request: ExportMetricsServiceRequest) -> dict[str, tuple[str, list[Any]]]:
    """Kind and points of each metric."""
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "flintmq"
    return {
        one.name: (one.WhichOneof("data"), list(getattr(one, one.WhichOneof("data")).data_points))
        for one in scope.metrics
    }


def labels(point: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in point.attributes}


def test_pushed_metrics_have_the_names_and_labels_and_values_of_scraped_metrics(
    tmp_path: Path, receiver: Receiver
) -> None:
    """Names, labels, kinds and figures, without a port of its own; counters count from the start of the broker."""

    async def work() -> None:
        async with Broker(config(tmp_path, receiver.endpoint)) as broker:
            assert broker.ready_words == {}
            await broker.put([Message("Orders", b"x" * 100) for _ in range(3)])
            found = points(await asyncio.to_thread(receiver.next))
            kind, (put,) = found["flintmq_put_messages_total"]
            assert (kind, put.as_int) == ("sum", 3)
            assert put.start_time_unix_nano == broker.state.stats.boot_timestamp_ms * 1_000_000
            kind, topics = found["rocketmq_messages_in_total"]
            (orders,) = (one for one in topics if labels(one)["topic"] == "Orders")
            family = FAMILIES["rocketmq_messages_in_total"]
            assert labels(orders).keys() == {*family.common, *family.labels}
            kind, (appends,) = found["flintmq_append_messages"]
            assert (kind, appends.count, appends.sum) == ("histogram", 1, 3)
            assert list(appends.bucket_counts)[2] == 1
            assert found["flintmq_fenced"][0] == "gauge"

    asyncio.run(work())


def test_pushes_to_a_failing_collector_are_retried_and_the_failure_is_logged_once(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """An outage of monitoring is a line in the log, not one a minute; afterwards the counters are right."""
    receiver.status = 400
    caplog.set_level("INFO", "flintmq")

    async def work() -> None:
        async with Broker(config(tmp_path, receiver.endpoint)):
            for _ in range(3):
                await asyncio.to_thread(receiver.next)
            receiver.status = 200
            await asyncio.to_thread(receiver.next)
            pushes = points(await asyncio.to_thread(receiver.next))["flintmq_otlp_pushes_total"][1]
            counts = {labels(one)["result"]: one.as_int for one in pushes}
            assert counts["lost"] >= 3
            assert counts["taken"] >= 1

    asyncio.run(work())
    events = [getattr(record, "event", "") for record in caplog.records]
    assert events.count("metrics.not_pushed") == 1
    assert events.count("metrics.pushed_again") == 1


def test_an_unreachable_collector_does_not_delay_the_stop_of_the_broker(tmp_path: Path) -> None:
    """What is pushed is worth less than an orderly stop."""

    async def work() -> None:
        async with asyncio.timeout(20):
            async with Broker(config(tmp_path, "http://127.0.0.1:9/v1/metrics")):
                await asyncio.sleep(0.2)

    asyncio.run(work())


def test_the_error_about_a_missing_otlp_package_names_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what to type, and which key it is about."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[otel\]'") as caught:
        asyncio.run(Broker(config(tmp_path, "http://127.0.0.1:9/")).start())
    assert caught.value.key == "metrics.otlp_endpoint"

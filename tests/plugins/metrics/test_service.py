"""What a monitoring system reads of a broker, in each state that the broker can be in."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from flintmq import Broker, Message
from flintmq.config import BrokerConfig, ConfigError
from flintmq.config.sections.models import BrokerSection, ListenSection, MetricsSection, StoreSection
from flintmq.core.errors import RemotingError
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.core.kernel.ports import Measurement
from flintmq.core.retention.retention import DiskFull
from flintmq.plugins.metrics.service import MetricsService
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.command import request
from flintmq.testing.service_kit import check_service

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def config(root: Path, **metrics: Any) -> BrokerConfig:
    return BrokerConfig(
        broker=BrokerSection(name="shop-a", cluster="shop"),
        listen=ListenSection(port=0, vip=False),
        store=StoreSection(path=str(root)),
        metrics=MetricsSection(enable=True, **metrics),
    )


def read(broker: Broker, path: str, accept: str = "*/*") -> tuple[int, str]:
    request = urllib.request.Request(f"http://{broker.ready_words['metrics']}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def ask(broker: Broker, path: str, accept: str = "*/*") -> tuple[int, str]:
    return await asyncio.to_thread(read, broker, path, accept)


def live(root: Path, work: Callable[[Broker], Coroutine[Any, Any, None]], **metrics: Any) -> None:
    async def run() -> None:
        async with Broker(config(root, **metrics)) as broker:
            await work(broker)

    asyncio.run(run())


def samples(text: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def test_a_scrape_returns_current_metric_values_with_the_labels_of_the_broker(tmp_path: Path) -> None:
    """Parsed by Prometheus's own parser, with the labels that tell brokers apart."""

    async def work(broker: Broker) -> None:
        await broker.put([Message("T", b"hello"), Message("T", b"world")])
        code, text = await ask(broker, "/metrics")
        assert code == 200
        (put,) = samples(text)["flintmq_put_messages_total"]
        assert (put.value, put.labels) == (2, {"cluster": "shop", "node_type": "broker", "node_id": "shop-a"})
        marks = {one.labels["watermark"]: one.value for one in samples(text)["flintmq_watermark_bytes"]}
        assert marks["wrote"] == broker.state.store.watermarks.wrote > 0

    live(tmp_path, work)


def test_each_time_series_occurs_once_in_a_scrape(tmp_path: Path) -> None:
    """Prometheus drops a sample that comes again in a scrape, and says so for each scrape."""

    async def work(broker: Broker) -> None:
        await broker.put([Message("T", b"hello")])
        _code, text = await ask(broker, "/metrics")
        series = [(one.name, *sorted(one.labels.items())) for found in samples(text).values() for one in found]
        assert [one for one, count in Counter(series).items() if count > 1] == []

    live(tmp_path, work)


def test_a_scrape_has_the_openmetrics_format_on_request(tmp_path: Path) -> None:
    """Prometheus asks for it first; its strict parser finds every rule kept."""

    async def work(broker: Broker) -> None:
        await broker.put([Message("T", b"x")])
        _, text = await ask(broker, "/metrics", OPENMETRICS)
        families = {one.name for one in openmetrics_parser.text_string_to_metric_families(text)}
        assert "flintmq_put_messages" in families
        assert text.endswith("# EOF\n")

    live(tmp_path, work)


def test_a_serving_broker_answers_healthz_and_readyz_with_200(tmp_path: Path) -> None:
    """What probes of a container ask."""

    async def work(broker: Broker) -> None:
        assert await ask(broker, "/healthz") == (200, "ok\n")
        assert await ask(broker, "/readyz") == (200, "ok\n")
        assert (await ask(broker, "/"))[0] == 404

    live(tmp_path, work)


def test_a_broker_whose_store_failed_to_sync_passes_healthz_and_fails_readyz(tmp_path: Path) -> None:
    """The scrape answers, readiness ends with the reason, and the process is alive all the same."""

    async def work(broker: Broker) -> None:
        broker.state.store.watermarks.fence_reason = "sync failed: no such device"
        code, text = await ask(broker, "/metrics")
        assert code == 200
        assert samples(text)["flintmq_fenced"][0].value == 1
        code, text = await ask(broker, "/readyz")
        assert code == 503
        assert "store.fenced" in text
        assert "sync failed: no such device" in text
        code, text = await ask(broker, "/healthz")
        assert code == 200
        assert text.startswith("alive, but ")
        assert "store.fenced" in text

    live(tmp_path, work)


def test_readyz_returns_200_if_the_disk_of_the_broker_is_full(tmp_path: Path) -> None:
    """A broker that is taken off the network for it could never be emptied."""

    async def work(broker: Broker) -> None:
        broker.state.store.disk_full = DiskFull("store", "96 %")
        code, text = await ask(broker, "/readyz")
        assert code == 200
        assert "store.disk_full" in text

    live(tmp_path, work)


def test_readyz_fails_while_the_broker_is_stopping(tmp_path: Path) -> None:
    """Before clients can reach it, and after they cannot."""

    async def work(broker: Broker) -> None:
        service = broker.state.service(MetricsService)
        service.withdraw()
        assert await ask(broker, "/readyz") == (503, "the broker is stopping\n")
        assert await ask(broker, "/healthz") == (200, "ok\n")

    live(tmp_path, work)


def test_healthz_fails_if_the_event_loop_is_blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker whose loop hangs serves nobody: the probe must fail, within a time."""
    monkeypatch.setattr("flintmq.plugins.metrics.service.TIMEOUT_S", 0.05)

    async def work(broker: Broker) -> None:
        for path in ("/healthz", "/readyz", "/metrics"):
            code, text = read(broker, path)  # on the loop's thread, which waits for the answer
            assert code == 503
            assert "has not answered within 0.05 s" in text

    live(tmp_path, work)


def test_the_start_of_a_broker_fails_if_its_metrics_port_is_in_use(tmp_path: Path) -> None:
    """With the address; monitoring that silently does not run is worse."""

    async def work(broker: Broker) -> None:
        port = int(broker.ready_words["metrics"].rpartition(":")[2])
        with pytest.raises(
            RemotingError, match=rf"cannot listen on 127.0.0.1:{port}: .* \(metrics.host, metrics.port\)"
        ):
            await Broker(config(tmp_path / "b", port=port)).start()

    live(tmp_path / "a", work)


def test_the_error_about_a_missing_metrics_package_names_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what to type, and which key it is about."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[metrics\]'") as caught:
        asyncio.run(Broker(config(tmp_path)).start())
    assert caught.value.key == "metrics.enable"


def test_enabling_metrics_without_the_plugin_is_an_error(tmp_path: Path) -> None:
    """Rather than a broker that is not watched."""
    without = attrs.evolve(config(tmp_path), disabled_plugins=("metrics",))
    with pytest.raises(ConfigError, match=r"'metrics.enable' needs the plugin 'metrics'"):
        asyncio.run(Broker(without).start())


def test_the_metrics_service_passes_the_conformance_checks_for_services(tmp_path: Path) -> None:
    """Those of the kit, which third parties run."""

    async def work(broker: Broker) -> None:
        await asyncio.to_thread(check_service, lambda timers: MetricsService(broker.state.api))

    live(tmp_path, work)


class Counts:
    """A third party's service with figures."""

    def __init__(self, told: Any) -> None:
        self.told = told

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def metrics(self) -> Any:
        return self.told()


class CountsPlugin:
    plugin_name = "counts"

    def __init__(self, told: Any) -> None:
        self.told = told

    @hookimpl
    def flintmq_services(self, register: Any) -> None:
        register("counts", lambda context: Counts(self.told))


@pytest.mark.parametrize(
    ("told", "shown", "error"),
    [
        (lambda: [Measurement("counts_total", 4, {"of": 'a"b'}, "counter", "Things.")], 1, ""),
        (lambda: (Measurement("counts", 1, {"of": str(n)}) for n in itertools.count()), 1000, ""),
        (lambda: [Measurement("flintmq_fenced", 1)], 0, "cannot be called"),
        (lambda: 7, 0, "not iterable"),
    ],
)
def test_invalid_metric_values_of_a_plugin_service_are_counted_as_errors_of_that_plugin(
    tmp_path: Path, told: Any, shown: int, error: str
) -> None:
    """Whatever one returns, the broker's own figures are told, and there are only so many."""

    async def run() -> None:
        async with Broker(config(tmp_path), plugins=[CountsPlugin(told)]) as broker:
            code, text = await ask(broker, "/metrics")
            found = samples(text)
            assert code == 200
            assert found["flintmq_fenced"][0].value == 0
            assert sum(len(those) for name, those in found.items() if name.startswith("counts")) == shown
            (info,) = (info for info in broker.kernel.describe() if info.name == "counts")
            assert error in info.last_error
            if error:
                again = samples((await ask(broker, "/metrics"))[1])["flintmq_plugin_errors_total"]
                assert {one.labels["plugin"] for one in again} == {"counts"}

    asyncio.run(run())


def test_an_alarm_is_raised_if_a_scrape_has_more_time_series_than_the_configured_maximum(tmp_path: Path) -> None:
    """Nobody looks for series that are not there."""
    small = attrs.evolve(config(tmp_path), metrics=MetricsSection(enable=True, series_max=1_000))

    async def run() -> None:
        async with Broker(small) as broker:
            await broker.put([Message(f"T{number}", b"x") for number in range(200)])
            assert not broker.state.alarms.current()
            _, text = await ask(broker, "/metrics")
            left_out = samples(text)["flintmq_left_out_series"][0].value
            assert left_out > 0
            (alarm,) = [one for one in broker.state.alarms.current() if one.id != "loop.blocked"]  # a busy machine
            assert (alarm.id, alarm.value, alarm.key) == ("metrics.series", 1_000 + left_out, "metrics.series_max")

    asyncio.run(run())


def test_refused_requests_are_counted_by_reason(tmp_path: Path) -> None:
    """The ids of docs/refusals.md, so that an operator finds what to change."""

    async def work(broker: Broker) -> None:
        async with RemotingClient() as client:
            await client.invoke(broker.address, request(9_999, {}), 5_000)
        found = samples((await ask(broker, "/metrics"))[1])["flintmq_refusals_total"]
        assert {one.labels["reason"]: one.value for one in found} == {"code.unsupported": 1}

    live(tmp_path, work)

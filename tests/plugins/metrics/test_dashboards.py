"""The dashboards and rules that people have find what they ask for: each metric, with the labels that are asked of it."""

from __future__ import annotations

import asyncio
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from prometheus_client import parser

from flintmq.plugins.metrics.families import FAMILIES
from flintmq.plugins.testing.embedded import EmbeddedBroker
from flintmq.tests.support.traffic import COUNT, GROUP, TOPIC, send_and_consume

USES = tomllib.loads((Path(__file__).parent / "dashboard_uses.toml").read_text())
NOT_TOLD = USES.pop("not_told")
OF_THE_SCRAPE = set(USES.pop("of_the_scrape"))
ASKED = [(source, metric, labels) for source, metrics in USES.items() for metric, labels in metrics.items()]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    """Yield the samples of a broker with some traffic, by name."""
    settings = ["metrics.enable=true", "offsets.flush_interval_ms=100"]
    with EmbeddedBroker(tmp_path_factory.mktemp("metrics") / "store", settings=settings) as site:
        url = f"http://{site.broker.ready_words['metrics']}/metrics"

        def scrape() -> str:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return str(answer.read(), "utf-8")

        text = asyncio.run(send_and_consume(site.name_server_address, scrape))
        found: dict[str, list[Any]] = {}
        for family in parser.text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample)
                if sample.name.endswith("_count"):
                    found.setdefault(family.name, []).append(sample)
        yield found


@pytest.mark.parametrize(("source", "metric", "labels"), ASKED)
def test_a_query_finds_its_metric_and_labels(
    told: dict[str, list[Any]], source: str, metric: str, labels: list[str]
) -> None:
    """A panel without data, or a variable without values, is what an operator sees of a wrong name."""
    if metric in NOT_TOLD:
        assert metric not in FAMILIES, "it is told by now: take it off the list"
        return
    assert metric in told, f"{source} asks for it"
    wanted = set(labels) - OF_THE_SCRAPE
    assert any(wanted <= sample.labels.keys() for sample in told[metric])


def value(told: dict[str, list[Any]], name: str, **labels: str) -> float:
    (found,) = (one.value for one in told[name] if labels.items() <= one.labels.items())
    return float(found)


def test_the_figures_are_those_of_the_traffic(told: dict[str, list[Any]]) -> None:
    """A name with a wrong figure is worse than none."""
    reader = {"topic": TOPIC, "consumer_group": GROUP}
    assert value(told, "rocketmq_messages_in_total", topic=TOPIC, message_type="normal") in (COUNT, COUNT + 1)
    assert value(told, "rocketmq_messages_in_total", topic="SCHEDULE_TOPIC_XXXX", message_type="delay") == 1
    assert value(told, "rocketmq_messages_out_total", **reader) >= COUNT
    assert value(told, "rocketmq_send_to_dlq_messages_total", **reader) == 2
    assert value(told, "rocketmq_consumer_lag_messages", **reader) <= 1
    assert value(told, "rocketmq_group_diff", group=GROUP, topic=TOPIC) <= 1
    assert value(told, "rocketmq_topic_dlq_offset", group=GROUP) == 2
    assert value(told, "rocketmq_producer_offset", topic=TOPIC) in (COUNT, COUNT + 1)
    assert value(told, "rocketmq_message_size", topic=TOPIC) in (COUNT, COUNT + 1), "the histogram's count"
    assert value(told, "flintmq_append_messages_sum") >= COUNT
    assert value(told, "rocketmq_brokeruntime_commitlog_maxoffset") == value(
        told, "flintmq_watermark_bytes", watermark="wrote"
    )


def test_every_sample_is_of_a_definition(told: dict[str, list[Any]]) -> None:
    """Its labels are those that docs/metric-names.md says, so that the page is true."""
    for name, samples in told.items():
        family = FAMILIES.get(name) or FAMILIES.get(name.rpartition("_")[0])
        if name.startswith("process_"):
            continue
        assert family is not None, name
        for sample in samples:
            assert sample.labels.keys() - {"le"} == {*family.common, *family.labels}

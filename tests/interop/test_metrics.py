"""The scrape of RocketMQ 5.3 beside FlintMQ's after the same traffic: the same names, types and labels."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from prometheus_client import parser

from flintmq.plugins.metrics.families import FAMILIES
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.tests.interop.client_matrix.sites import JAVA_53, jars_of, java_peer, java_settings, registered
from flintmq.tests.support.ports import free_ports
from flintmq.tests.support.traffic import TOPIC, send_and_consume

pytestmark = [pytest.mark.slow, pytest.mark.java]

NOT_TOLD = {
    "rocketmq_topic_create_execution_time": "making a topic appends a line to a file",
    "rocketmq_consumer_group_create_execution_time": "likewise",
    "rocketmq_half_messages": "flintmq_half_messages counts those of all topics",
    "rocketmq_finish_message_latency": "not counted",
    "rocketmq_timer_enqueue_latency": "not counted",
    "rocketmq_timer_dequeue_lag": "not counted",
    "rocketmq_timer_dequeue_latency": "not counted",
    "rocketmq_timer_dequeue": "not counted",
    "rocketmq_timer_enqueue": "not counted",
    "rocketmq_timer_message_snapshot": "not counted",
    "rocketmq_timing_messages": "timerCongestNum of request 28",
    "rocketmq_delay_message_latency": "not counted",
}
NOT_HERE = ("rocketmq_pop_", "rocketmq_rocksdb_", "otel_", "target_info")
"""How the names of things begin that FlintMQ does not have."""
ADDED = {"otel_scope_name", "le"}
"""Labels that its exporter adds to everything, and that of buckets."""
COUNTED = ("rocketmq_messages_in_total", "rocketmq_messages_out_total", "rocketmq_send_to_dlq_messages_total")


@attrs.frozen
class Told:
    """One metric of a scrape."""

    kind: str
    labels: frozenset[frozenset[str]]
    figures: dict[frozenset[tuple[str, str]], float]


def scrape(address: str) -> dict[str, Told]:
    """Return what is told, by the name in its samples, but for what a histogram adds to its own."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    samples: dict[str, list[Any]] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            kinds[name] = kind
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    found = {}
    for name, those in samples.items():
        base = re.sub(r"_(bucket|count|sum|created)$", "", name)
        if name.endswith(("_bucket", "_sum", "_created")):
            continue
        own = [{key: text for key, text in one.labels.items() if key not in ADDED} for one in those]
        figures = {frozenset(labels.items()): one.value for labels, one in zip(own, those, strict=True)}
        # The type stands in front of the name without its unit there, so that of the samples is not known to anybody.
        kind = kinds.get(name) or kinds.get(base) or kinds.get(re.sub(r"_(milliseconds|bytes|seconds)$", "", base), "?")
        found[base if name.endswith("_count") else name] = Told(
            kind, frozenset(frozenset(labels) for labels in own), figures
        )
    return found


def counters(told: dict[str, Told]) -> dict[tuple[str, str], float]:
    """Return the figures of the traffic's topic, by name and group."""
    return {
        (name, dict(labels).get("consumer_group", "")): figure
        for name in COUNTED
        for labels, figure in told[name].figures.items()
        if ("topic", TOPIC) in labels
    }


def answered(told: dict[str, Told]) -> set[tuple[str, ...]]:
    """Return the codes of requests and of their answers, whether these were held, and their results."""
    names = "request_code", "response_code", "is_long_polling", "result"
    return {tuple(dict(labels)[name] for name in names) for labels in told["rocketmq_rpc_latency_milliseconds"].figures}


def test_metrics_have_the_same_names_and_types_and_labels_as_in_rocketmq_5(tmp_path: Path) -> None:
    """A dashboard for RocketMQ 5 must not need a second version for FlintMQ."""
    jars_of(JAVA_53)
    (port,) = free_ports(1)
    prometheus = (
        "metricsExporterType=PROM",
        f"metricsPromExporterPort={port}",
        "metricsPromExporterHost=127.0.0.1",
        "enableStatsMetrics=true",
    )
    peer = java_peer(JAVA_53, tmp_path)
    with peer.name_server(), peer.broker(tmp_path / "java", *java_settings(JAVA_53), *prometheus, kill=True):
        asyncio.run(registered(peer.namesrv))
        theirs = asyncio.run(send_and_consume(peer.namesrv, lambda: scrape(f"127.0.0.1:{port}")))
    with EmbeddedBroker(tmp_path / "store", settings=["metrics.enable=true"]) as site:
        address = site.broker.ready_words["metrics"]
        ours = asyncio.run(send_and_consume(site.name_server_address, lambda: scrape(address)))

    told = {name: one for name, one in theirs.items() if not name.startswith(NOT_HERE)}
    assert len(told) > 15, "the other broker told its figures"
    bare = {re.sub(r"_(milliseconds|seconds)$", "", name) for name in told.keys() - FAMILIES.keys()}
    assert bare <= NOT_TOLD.keys(), "told by RocketMQ, and by nobody here"
    both = told.keys() & ours.keys()
    assert len(both) > 15
    assert {name: told[name].kind for name in both} == {name: ours[name].kind for name in both}
    assert {name: told[name].labels for name in both} == {name: ours[name].labels for name in both}
    assert answered(theirs) & answered(ours) >= {("send_message_v2", "success", "false", "success")}
    assert not answered(ours) - answered(theirs)
    for told_by in (theirs, ours):
        found = counters(told_by)
        delivered = {key: found.pop(key) for key in [*found] if key[0] == "rocketmq_messages_out_total"}
        assert all(count >= 40 for count in delivered.values()), "what is delivered twice counts twice"
        assert found == {
            ("rocketmq_messages_in_total", ""): 40,
            ("rocketmq_send_to_dlq_messages_total", "billing"): 2,
        }

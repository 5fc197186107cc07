"""The dashboards and rules that people have find what they ask for: each metric, with the labels that are asked of it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from flintmq.plugins.metrics.families import FAMILIES
from flintmq.tests.support.traffic import COUNT, GROUP, TOPIC

USES = tomllib.loads((Path(__file__).parent / "dashboard_uses.toml").read_text())
NOT_TOLD = USES.pop("not_told")
OF_THE_SCRAPE = set(USES.pop("of_the_scrape"))
ASKED = [(source, metric, labels) for source, metrics in USES.items() for metric, labels in metrics.items()]


@pytest.mark.parametrize(("source", "metric", "labels"), ASKED)
def test_each_dashboard_query_uses_a_metric_and_labels_that_a_scrape_contains(
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


def test_metric_values_match_the_messages_that_were_sent_and_consumed(told: dict[str, list[Any]]) -> None:
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


def test_each_sample_has_exactly_the_labels_in_the_definition_of_its_metric(told: dict[str, list[Any]]) -> None:
    """Its labels are those that docs/metric-names.md says, so that the page is true."""
    for name, samples in told.items():
        family = FAMILIES.get(name) or FAMILIES.get(name.rpartition("_")[0])
        if name.startswith("process_"):
            continue
        assert family is not None, name
        for sample in samples:
            assert sample.labels.keys() - {"le"} == {*family.common, *family.labels}


RARE = {"flintmq_alarm", "flintmq_refusals_total"}
"""Told only where something is wrong."""
GRAFANA = Path(__file__).resolve().parents[3] / "docs" / "grafana" / "flintmq.json"


def queries(part: Any) -> list[str]:
    """Every query of a dashboard."""
    if isinstance(part, dict):
        own = [text for name, text in part.items() if name in ("expr", "query", "definition") and isinstance(text, str)]
        return own + [text for each in part.values() for text in queries(each)]
    return [text for each in part for text in queries(each)] if isinstance(part, list) else []


def test_the_grafana_dashboard_uses_existing_metrics_and_labels(told: dict[str, list[Any]]) -> None:
    """Each metric is told, and has the labels by which it is chosen and summed; each panel has a query."""
    dashboard = json.loads(GRAFANA.read_text())
    found = [text for text in queries(dashboard) if text != "prometheus"]
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len(found) >= len(panels) > 10
    assert all(panel.get("targets") for panel in panels)
    for text in found:
        asked = re.findall(r"((?:rocketmq|flintmq|process)_\w+)(?:\{([^}]*)\})?", text)
        assert asked, text
        summed = {label.strip() for group in re.findall(r"by \(([^)]*)\)", text) for label in group.split(",")}
        for name, selector in asked:
            if name.startswith("process_"):
                assert name in told
                continue
            assert name in told or name in RARE, f"{name} in {text}"
            labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selector)) | summed
            family = FAMILIES.get(name) or FAMILIES[name.rpartition("_")[0]]
            assert labels <= {*family.common, *family.labels, "le"}, text

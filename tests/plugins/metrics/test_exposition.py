"""Names that clients chose come into a text that programs read: they must stay names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, parser
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics import parser as openmetrics_parser

from flintmq.core.histogram import Histogram
from flintmq.core.kernel.ports import Measurement
from flintmq.plugins.metrics.exposition import Exposition
from flintmq.plugins.metrics.families import FAMILIES, GROUPS
from flintmq.plugins.metrics.samples import Samples

COMMONS = {group.common: tuple("c" for _ in group.common) for group in GROUPS}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PARSERS = {"*/*": parser, OPENMETRICS: openmetrics_parser}
EXPOSITION = Exposition()


@pytest.mark.parametrize("accept", PARSERS)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_label_value_is_parsed_back_unchanged(accept: str, name: str) -> None:
    """Quotes, line ends, braces and backslashes of a subject included."""
    samples = Samples()
    samples.add("flintmq_alarm", 1, "an.id", "warning", name)
    samples.add("flintmq_put_messages_total", 3)
    samples.add_histogram("flintmq_sync_seconds", Histogram((0.5, 1.0)))
    samples.of_services = [Measurement("audit_lines_total", 2, {"file": name}, "counter", "Lines.")]
    parts, content_type = EXPOSITION.text(samples, COMMONS, accept)
    text = b"".join(parts)
    assert content_type.startswith("application/openmetrics" if accept == OPENMETRICS else "text/plain")
    found = {
        sample.name: sample
        for family in PARSERS[accept].text_string_to_metric_families(text.decode())
        for sample in family.samples
    }
    assert found["flintmq_alarm"].labels["subject"] == name
    assert found["audit_lines_total"].labels["file"] == name
    assert found["audit_lines_total"].value == 2
    assert found["flintmq_put_messages_total"].value == 3
    assert found["flintmq_sync_seconds_count"].value == 0


NAMES = st.text(st.sampled_from('a"\\\n{},=é '), max_size=8) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=8
)
FIGURES = st.integers(0, 2**53) | st.floats(allow_nan=False)


class Library:
    """The same figures as prometheus_client is told them."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        for part in self._samples.parts:
            for name, found in part.by_name.items():
                family = FAMILIES[name]
                metric = Metric(name.removesuffix("_total"), family.meaning, family.kind)
                for labels, figure in found:
                    metric.add_sample(name, labels_of(name, labels), figure)
                yield metric
            for name, distributions in part.distributions.items():
                metric = HistogramMetricFamily(name, FAMILIES[name].meaning, labels=names_of(name))
                for labels, one in distributions:
                    below = accumulate(one.counts)
                    buckets = list(zip((*map(str, one.bounds), "+Inf"), below, strict=True))
                    metric.add_metric(list(labels_of(name, labels).values()), buckets, one.total)
                yield metric


def names_of(name: str) -> tuple[str, ...]:
    return (*FAMILIES[name].common, *FAMILIES[name].labels)


def labels_of(name: str, labels: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(names_of(name), (*COMMONS[FAMILIES[name].common], *labels), strict=True))


def parsed(text: str, accept: str) -> dict[str, tuple[str, str, dict[Any, float]]]:
    return {
        family.name: (
            family.type,
            family.documentation,
            {(one.name, frozenset(one.labels.items())): one.value for one in family.samples},
        )
        for family in PARSERS[accept].text_string_to_metric_families(text)
    }


@pytest.mark.parametrize("accept", PARSERS)
@given(st.lists(st.tuples(NAMES, NAMES, FIGURES), min_size=1, max_size=6, unique_by=lambda row: row[:2]))
def test_the_exposition_text_equals_that_of_the_prometheus_library(
    accept: str, rows: list[tuple[str, str, float]]
) -> None:
    """Its own writer is the judge of ours, which exists because the library takes three times as long."""
    samples, many = Samples(), Samples()
    for topic, group, figure in rows:
        samples.add("flintmq_alarm", figure, topic, "warning", group)
        many.add("rocketmq_consumer_offset", figure, topic, group)
        many.add("rocketmq_messages_out_total", abs(figure), topic, group, "false")
        histogram = Histogram((0.5, 1000.0))
        histogram.add(min(abs(figure), 2_000.0))  # infinity too: a latency that is no number is none
        samples.add_histogram("rocketmq_rpc_latency", histogram, "remoting", topic, group, "false", "success")
    samples.share(many)
    ours, _ = EXPOSITION.text(samples, COMMONS, accept)
    again, _ = EXPOSITION.text(samples, COMMONS, accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Library(samples))
    encode, _ = choose_encoder(accept)
    theirs = parsed(encode(registry).decode(), accept)
    found = parsed(b"".join(ours).decode(), accept)
    assert theirs.keys() <= found.keys()
    assert {name: found[name] for name in theirs} == theirs
    assert {name: told for name, told in parsed(b"".join(again).decode(), accept).items() if name in theirs} == theirs


def test_time_series_above_the_limit_are_omitted_and_counted() -> None:
    """A broker with a million queues answers all the same."""
    samples = Samples(limit=2)
    for number in range(5):
        samples.add("flintmq_refusals_total", 1, f"r{number}")
    samples.add_histogram("flintmq_sync_seconds", Histogram((1.0,)))
    assert (samples.count, samples.left_out) == (2, 3 + 4), "a histogram of two buckets is four series"

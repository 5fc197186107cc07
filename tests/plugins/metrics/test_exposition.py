"""Names that clients chose come into a text that programs read: they must stay names."""

from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from flintmq.core.histogram import Histogram
from flintmq.core.kernel.ports import Measurement
from flintmq.plugins.metrics.exposition import Exposition
from flintmq.plugins.metrics.families import GROUPS
from flintmq.plugins.metrics.samples import Samples

COMMONS = {group.common: tuple("c" for _ in group.common) for group in GROUPS}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PARSERS = {"*/*": parser, OPENMETRICS: openmetrics_parser}
EXPOSITION = Exposition()


@pytest.mark.parametrize("accept", PARSERS)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_label_comes_back_as_it_was(accept: str, name: str) -> None:
    """Quotes, line ends, braces and backslashes of a subject included."""
    samples = Samples()
    samples.add("flintmq_alarm", 1, "an.id", "warning", name)
    samples.add("flintmq_put_messages_total", 3)
    samples.add_histogram("flintmq_sync_seconds", Histogram((0.5, 1.0)))
    samples.of_services = [Measurement("audit_lines_total", 2, {"file": name}, "counter", "Lines.")]
    text, content_type = EXPOSITION.text(samples, COMMONS, accept)
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


def test_series_beyond_the_limit_are_counted() -> None:
    """A broker with a million queues answers all the same."""
    samples = Samples(limit=2)
    for number in range(5):
        samples.add("flintmq_refusals_total", 1, f"r{number}")
    samples.add_histogram("flintmq_sync_seconds", Histogram((1.0,)))
    assert (samples.count, samples.left_out) == (2, 4)

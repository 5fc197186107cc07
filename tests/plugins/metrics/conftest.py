"""A scrape of a broker with some traffic, which several tests look at."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from flintmq.testing.embedded import EmbeddedBroker
from flintmq.tests.support.traffic import send_and_consume


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    """Yield the samples of a broker with some traffic, by name."""
    parser = pytest.importorskip("prometheus_client.parser", reason="the extra metrics is not installed")
    settings = ["metrics.enable=true", "listen.loop_blocked_warn_ms=500", "offsets.flush_interval_ms=100"]
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

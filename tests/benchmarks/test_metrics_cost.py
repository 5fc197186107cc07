"""The benchmark of metrics is only worth something while it runs, and while its figures can be true."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from .metrics_cost import measure


def test_the_metrics_benchmark_measures_sends_pulls_and_scrapes() -> None:
    found = asyncio.run(measure(calls=2, rounds=2, topics=(3,)))
    assert found.keys() == {
        *("send", "send alone", "batch", "pull"),
        *(f"{kind} of 3 topics, {part} ms" for kind in ("scrape", "kept scrape") for part in ("loop", "text")),
    }
    assert all(value > 0 for value in found.values())

"""A run loads every broker of its topic: what several brokers give together is what they were started for."""

from __future__ import annotations

import asyncio
from typing import Literal

import attrs
import pytest

from flintmq.programs.bench.run import BenchSettings, run_bench
from flintmq.testing.cluster import EmbeddedCluster


@pytest.fixture
def flintmq_layout() -> dict[str, int]:
    return {"broker-a": 0, "broker-b": 0}


@pytest.mark.parametrize("batch", [1, 32])
def test_a_benchmark_run_sends_to_and_consumes_from_every_broker_of_its_topic(
    flintmq_cluster: EmbeddedCluster, batch: int
) -> None:
    """One of two that got nothing, or was not drained, would halve what they are said to do."""
    bench = BenchSettings(bench="send", topic="Load", count=1_600, warmup_s=0.0, connections=2, inflight=2, batch=batch)

    def run(what: Literal["send", "consume"]) -> int:
        made = asyncio.run(run_bench(attrs.evolve(bench, bench=what), flintmq_cluster.name_server_address, None))
        assert made.errors == 0
        return made.messages

    assert run("send") >= 1_600
    stored = [len(broker.messages("Load")) for broker in flintmq_cluster]
    assert len(stored) == 2
    assert min(stored) > 0
    assert run("consume") >= 1_600

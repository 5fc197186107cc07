"""``bench latency`` as it is typed: every figure is there, and messages of earlier runs do not count."""

from __future__ import annotations

import json
import os

import pytest

from .conftest import RunCommand


def test_bench_latency_counts_only_messages_of_its_run(cli: RunCommand, name_server: str) -> None:
    """Every message sent by the clock arrives at the listener, and old ones in the topic are not counted."""
    common = ("bench", "latency", "-n", name_server, "--rate", 400, "--seconds", 0.2, "--topic", "Latency")
    for _ in range(2):
        found = json.loads(cli(*common, "--warmup", 0.02, "--pid", os.getpid()).out)
        assert (found["missing"], found["errors"]) == (0, 0)
        assert found["messages"] == pytest.approx(80, abs=10)  # 8 of the warm-up may arrive late
        assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
        assert found["send_p50_ms"] > 0


def test_the_latency_benchmark_of_two_brokers_prints_the_ratio_of_their_latencies(
    cli: RunCommand, name_server: str
) -> None:
    """Both are measured in turn, and the last line has the ratios."""
    words = ("--rate", 200, "--seconds", 0.1, "--warmup", 0, "--rounds", 2, "--topic", "Latency")
    outcome = cli("bench", "latency", "-n", name_server, "--against", name_server, *words)
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    assert [line["bench"] for line in lines] == [*(["latency"] * 4), "latency ratio"]
    assert lines[-1]["rounds"] == 2
    assert lines[-1]["p50_ms"] > 0

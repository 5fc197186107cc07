"""tools/bench_memory.py, whose figures docs/operations.md quotes: each row is about what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "bench_memory.py"


@pytest.mark.slow
def test_the_memory_benchmark_measures_the_cost_of_each_topic_and_queue_and_connection() -> None:
    """A row whose work was not done, or was done before its first figure, would show no growth."""
    few = ["--topics", "40", "--queues", "4", "--connections", "80", "--groups", "40", "--messages", "20000"]
    done = subprocess.run([sys.executable, TOOL, *few], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    rest, topic, queue, _offset, connection, message = [json.loads(line) for line in done.stdout.splitlines()]
    assert rest["own_mib"] > 5
    assert topic["disk_bytes_each"] < 4_096, "a topic is a line of a file"
    assert queue["count"] == 160
    assert queue["disk_bytes_each"] >= 65_536, "a queue that has a message has a file"
    assert 0.9 <= connection["descriptors_each"] <= 1.0
    assert message["disk_bytes_each"] >= 128

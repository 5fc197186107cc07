"""What a run says: one flat record, and the facts about the machine that make it comparable."""

from __future__ import annotations

import os
import platform
import statistics
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs


@attrs.frozen
class BenchResult:
    """One run."""

    bench: str
    """``send`` or ``consume``."""
    target: str
    """The name server of the broker that was measured."""
    topic: str
    messages: int
    requests: int
    seconds: float
    rate: float
    """Messages per second."""
    p50_ms: float
    """Of one request, from its write to its answer."""
    p99_ms: float
    p999_ms: float
    errors: int
    error_codes: dict[str, int]
    """Response code → how often."""
    client_cpu_us: float
    """Processor time of this client per message."""
    broker_cpu_us: float | None
    """Processor time of the broker per message; None when its process is not known."""
    connections: int
    inflight: int
    """Requests in flight per connection."""
    size_bytes: int
    """Of a body."""
    batch: int

    def as_json(self) -> dict[str, Any]:
        """Return the values for one line of JSON."""
        return attrs.asdict(self) | {"machine": machine_facts()}


def percentile_ms(sorted_latencies_s: Sequence[float] | array[float], share: float) -> float:
    """Return the latency that this share of requests does not exceed; 0 without requests."""
    if not sorted_latencies_s:
        return 0.0
    return round(sorted_latencies_s[min(len(sorted_latencies_s) - 1, int(len(sorted_latencies_s) * share))] * 1000, 4)


def process_cpu_s(pid: int) -> float:
    """Return the processor time of a process and its threads so far. Raises ``OSError`` when it does not exist."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_facts() -> dict[str, Any]:
    """Return processor, cores, system and Python version."""
    model = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        model = platform.machine()
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


class Measured(Protocol):
    """What runs of any kind have in common; figures that :func:`ratios` knows are attributes of their names."""

    @property
    def bench(self) -> str: ...

    @property
    def target(self) -> str: ...


def ratios(ours: Sequence[Measured], theirs: Sequence[Measured]) -> dict[str, Any]:
    """Return our medians over theirs: a rate above 1 and a latency below 1 are better."""
    found: dict[str, Any] = {"bench": f"{ours[0].bench} ratio", "target": ours[0].target, "against": theirs[0].target}
    for name in ("rate", "p50_ms", "p99_ms", "p999_ms", "client_cpu_us", "broker_cpu_us"):
        mine = [value for result in ours if (value := getattr(result, name)) is not None]
        other = [value for result in theirs if (value := getattr(result, name)) is not None]
        if mine and other and statistics.median(other) > 0:
            found[name] = round(statistics.median(mine) / statistics.median(other), 4)
    return found | {"rounds": len(ours)}

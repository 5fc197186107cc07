"""What the dispatcher ``spark_feed`` costs: brokers without it, with the feed, and with a landing zone, in turn.

Brokers that differ only in that run side by side; each round loads one after the other over the network, so that the
machine's other work affects all alike. Reported are the broker's processor time per message and the acknowledgements' latency,
each as a ratio to the broker without it, round by round. The landing zone's own process is measured separately: it is
not the broker's side.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.plugins.bench.figures import ratio
from flintmq.plugins.bench.machine import machine_facts
from flintmq.plugins.bench.run import BenchResult, BenchSettings, run_bench

WITHOUT: Final = "without"
FEED: Final = "feed"
LANDING: Final = "landing"

Run = Callable[[Coroutine[Any, Any, BenchResult]], BenchResult]
"""Runs a coroutine on a loop of the kind that is wanted."""


@attrs.frozen
class Contender:
    """One of the brokers."""

    label: str
    name_server: str
    pid: int


def overrides(label: str, folder: Path) -> list[str]:
    """Return the settings in which the brokers differ."""
    if label == WITHOUT:
        return ["dispatchers=consume_queue,index"]
    landing = [f"spark_feed.landing.path={folder / 'zone'}", "spark_feed.landing.roll_interval_ms=1s"]
    return ["dispatchers=consume_queue,index,spark_feed", *(landing if label == LANDING else [])]


def measure(
    contenders: Sequence[Contender], bench: BenchSettings, rounds: int, run: Run, tell: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Load the brokers in turn.

    Args:
        contenders: the first one is what the others are compared with.
        bench: the load.
        rounds: of each broker; every second round goes backwards.
        run: runs a measurement.
        tell: given each result.

    Returns:
        Medians by broker, and ratios to the first one with their 95 % intervals.
    """
    found: dict[str, list[BenchResult]] = {one.label: [] for one in contenders}
    for number in range(rounds):
        for one in contenders if number % 2 == 0 else reversed(contenders):
            result = run(run_bench(bench, one.name_server, one.pid))
            found[one.label].append(result)
            tell({"contender": one.label, "round": number} | result.as_json())
    return summary(found, contenders[0].label) | {"bench": "feed", "rounds": rounds, "machine": machine_facts()}


def summary(found: Mapping[str, Sequence[BenchResult]], base: str) -> dict[str, Any]:
    """Return medians and ratios."""
    result: dict[str, Any] = {}
    before = found[base]
    for label, runs in found.items():
        cpu_us = [run.broker_cpu_us or 0.0 for run in runs]
        told: dict[str, Any] = {
            "rate": round(statistics.median(run.rate for run in runs), 1),
            "p50_ms": statistics.median(run.p50_ms for run in runs),
            "p99_ms": statistics.median(run.p99_ms for run in runs),
            "broker_cpu_us": round(statistics.median(cpu_us), 3),
            "errors": sum(run.errors for run in runs),
        }
        if label != base:
            base_us = [run.broker_cpu_us or 0.0 for run in before]
            told["more_cpu_us"] = round(
                statistics.median(mine - other for mine, other in zip(cpu_us, base_us, strict=True)), 3
            )
            for name, mine, other in (
                ("cpu_ratio", cpu_us, base_us),
                ("p50_ratio", [run.p50_ms for run in runs], [run.p50_ms for run in before]),
                ("p99_ratio", [run.p99_ms for run in runs], [run.p99_ms for run in before]),
            ):
                made = ratio(mine, other)
                told[name] = made.as_json() if made is not None else None
        result[label] = told
    return result

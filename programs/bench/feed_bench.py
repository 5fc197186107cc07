"""Measures the cost of the dispatcher ``spark_feed`` by a comparison of three brokers.

The first broker runs without the dispatcher, the second with it. The third broker also has a landing zone: a separate process
writes the messages to Parquet files. The brokers differ in nothing else, and run at the same time.

Each round loads one broker after the other over the network, so that other load on the machine affects all brokers alike. The
figures are the broker's processor time per message and the latency of acknowledgements, as ratios to the broker without the
dispatcher, per round. The process of the landing zone is measured separately.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.programs.bench.figures import ratio
from flintmq.programs.bench.machine import machine_facts
from flintmq.programs.bench.run import BenchResult, BenchSettings, run_bench

WITHOUT: Final = "without"
FEED: Final = "feed"
LANDING: Final = "landing"
_CPU: Final = "broker_cpu_us"
_MEDIAN_DIGITS: Final = {"rate": 1, "p50_ms": 4, "p99_ms": 4, _CPU: 3}

Run = Callable[[Coroutine[Any, Any, BenchResult]], BenchResult]
"""Function that runs a benchmark's coroutine on the chosen kind of event loop."""


@attrs.frozen
class Contender:
    """One of the brokers that the benchmark of ``spark_feed`` compares."""

    label: str
    name_server: str
    pid: int


def overrides(label: str, folder: Path) -> list[str]:
    """Return the settings in which a broker of the benchmark differs from the other brokers."""
    if label == WITHOUT:
        return ["dispatchers=consume_queue,index"]
    landing = [f"spark_feed.landing.path={folder / 'zone'}", "spark_feed.landing.roll_interval_ms=1s"]
    return ["dispatchers=consume_queue,index,spark_feed", *(landing if label == LANDING else [])]


def measure(
    contenders: Sequence[Contender], bench: BenchSettings, rounds: int, run: Run, tell: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Load the brokers in turn, and return a summary.

    Args:
        contenders: the brokers; the first one is the base of the ratios.
        bench: the settings of the load.
        rounds: the number of rounds; every second round has the opposite order.
        run: runs a measurement.
        tell: called with each result.

    Returns:
        Medians for each broker, and ratios to the first broker with 95 % intervals.
    """
    found: dict[str, list[BenchResult]] = {one.label: [] for one in contenders}
    for number in range(rounds):
        for one in contenders if number % 2 == 0 else reversed(contenders):
            result = run(run_bench(bench, one.name_server, one.pid))
            found[one.label].append(result)
            tell({"contender": one.label, "round": number} | result.as_json())
    return summary(found, contenders[0].label) | {"bench": "feed", "rounds": rounds, "machine": machine_facts()}


def summary(found: Mapping[str, Sequence[BenchResult]], base: str) -> dict[str, Any]:
    """Return the medians of all measured brokers, and the ratios of their medians to those of the broker ``base``."""
    values = {
        label: {name: [getattr(run, name) or 0.0 for run in runs] for name in _MEDIAN_DIGITS}
        for label, runs in found.items()
    }
    result: dict[str, Any] = {}
    for label, mine in values.items():
        told: dict[str, Any] = {
            name: round(statistics.median(mine[name]), digits) for name, digits in _MEDIAN_DIGITS.items()
        }
        told["errors"] = sum(run.errors for run in found[label])
        if label != base:
            other = values[base]
            more_us = [ours - theirs for ours, theirs in zip(mine[_CPU], other[_CPU], strict=True)]
            told["more_cpu_us"] = round(statistics.median(more_us), 3)
            for name, figure in (("cpu_ratio", _CPU), ("p50_ratio", "p50_ms"), ("p99_ratio", "p99_ms")):
                made = ratio(mine[figure], other[figure])
                told[name] = made.as_json() if made is not None else None
        result[label] = told
    return result

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

from flintmq.programs.bench.figures import ratio
from flintmq.programs.bench.machine import machine_facts
from flintmq.programs.bench.run import BenchResult, BenchSettings, run_bench

WITHOUT: Final = "without"
FEED: Final = "feed"
LANDING: Final = "landing"
_CPU: Final = "broker_cpu_us"
_MEDIAN_DIGITS: Final = {"rate": 1, "p50_ms": 4, "p99_ms": 4, _CPU: 3}

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

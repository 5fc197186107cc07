"""``flintmq bench latency``: measure the time from a send to a listener that waits."""

from __future__ import annotations

from typing import Unpack

import click
from click import FloatRange, IntRange

from flintmq.plugins.bench.latency import LatencyResult, run_latency
from flintmq.plugins.bench.run import BenchSettings
from flintmq.plugins.cli.bench_target import (
    Measured,
    Target,
    access_to_measure,
    broker_to_measure,
    measure_in_turn,
    measured_options,
    runner,
)
from flintmq.plugins.cli.parser import Command


class LatencyLoad(Measured):
    """What the command line says about a load."""

    rate: float
    warmup: float
    size: int
    topic: str
    queues: int


@click.command(cls=Command)
@measured_options
@click.option("--rate", type=FloatRange(0.1, 200_000), default=200.0, metavar="R", help="Messages per second.")
@click.option("--warmup", type=FloatRange(min=0), default=1.0, metavar="S", help="Messages before any counts.")
@click.option("--size", type=IntRange(0, 4 * 1024 * 1024), default=128, metavar="BYTES", help="Of a body.")
@click.option("--topic", default="FlintLatency", metavar="T", help="Created where it is missing.")
@click.option("--queues", type=IntRange(1, 1024), default=4, metavar="N", help="Of a topic that is created.")
def latency(**load: Unpack[LatencyLoad]) -> None:
    """Measure end to end: from the send to a listener that waits. One line of JSON per run, then the ratios."""
    bench = BenchSettings(
        bench="send",
        topic=load["topic"],
        seconds=load["seconds"],
        warmup_s=load["warmup"],
        size_bytes=load["size"],
        queues=load["queues"],
        access=access_to_measure(load["namesrv"], load["settings"]),
    )
    run = runner(load["loop"])

    def once(settings: BenchSettings, target: Target) -> LatencyResult:
        found: LatencyResult = run(run_latency(settings, load["rate"], *target))
        return found

    with broker_to_measure(load["namesrv"], load["pid"], load["settings"]) as target:
        measure_in_turn(once, bench, target, load)

"""``flintmq bench latency``: measure the time from a send to a listener that waits."""

from __future__ import annotations

import attrs
import click

from flintmq.plugins.bench.latency import run_latency
from flintmq.plugins.bench.result import ratios
from flintmq.plugins.bench.run import BenchSettings
from flintmq.plugins.cli import bench, options
from flintmq.plugins.cli.bench_target import access_to_measure, broker_to_measure, runner
from flintmq.plugins.cli.connect import access, checked_name_servers
from flintmq.plugins.cli.output import print_json
from flintmq.plugins.cli.parser import Command, ValueOf


@click.command(cls=Command)
@bench.name_server_option
@options.access
@click.option(
    "--rate", type=click.FloatRange(min=0.1, max=200_000), default=200.0, metavar="R", help="Messages per second."
)
@bench.seconds_option
@click.option("--warmup", type=click.FloatRange(min=0), default=1.0, metavar="S", help="Messages before any counts.")
@click.option(
    "--size", type=click.IntRange(min=0, max=4 * 1024 * 1024), default=128, metavar="BYTES", help="Of a body."
)
@click.option("--topic", default="FlintLatency", metavar="T", help="Created where it is missing.")
@click.option(
    "--queues", type=click.IntRange(min=1, max=1024), default=4, metavar="N", help="Of a topic that is created."
)
@bench.pid_option
@bench.against_option
@bench.against_pid_option
@bench.rounds_option
@options.settings
@click.option("--loop", type=ValueOf(bench.Loop), default=bench.Loop.AUTO, help="The client's event loop.")
def latency(
    namesrv: str | None,
    rate: float,
    seconds: float,
    warmup: float,
    size: int,
    topic: str,
    queues: int,
    pid: int | None,
    against: str | None,
    against_pid: int | None,
    rounds: int,
    settings: tuple[str, ...],
    loop: bench.Loop,
) -> None:
    """Measure end to end: from the send to a listener that waits. One line of JSON per run, then the ratios."""
    asked = BenchSettings(
        bench="send",
        topic=topic,
        seconds=seconds,
        warmup_s=warmup,
        size_bytes=size,
        queues=queues,
        access=access_to_measure(namesrv, settings),
    )
    other_asked = attrs.evolve(asked, access=access())
    run = runner(loop)
    with broker_to_measure(namesrv, pid, settings) as target:
        if against is None:
            print_json(run(run_latency(asked, rate, *target)).as_json())
            return
        other = (checked_name_servers(against), against_pid)
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(run(run_latency(asked, rate, *target)))
            print_json(ours[-1].as_json())
            theirs.append(run(run_latency(other_asked, rate, *other)))
            print_json(theirs[-1].as_json())
        print_json(ratios(ours, theirs))

"""``flintmq bench send`` and ``consume``: measure a broker with a client that costs little."""

from __future__ import annotations

import enum

import attrs
import click

from flintmq.core.errors import RemotingError
from flintmq.plugins.bench.result import BenchResult, ratios
from flintmq.plugins.bench.run import BenchSettings, run_bench
from flintmq.plugins.cli import options
from flintmq.plugins.cli.bench_target import Target, access_to_measure, broker_to_measure, runner
from flintmq.plugins.cli.connect import HINT, access, checked_name_servers
from flintmq.plugins.cli.exits import CommandError, ExitCode
from flintmq.plugins.cli.output import print_json
from flintmq.plugins.cli.parser import Command, ValueOf

PRELOAD_COUNT = 200_000
"""Messages that are stored before consuming is measured, in a broker that is started for it."""


class Loop(enum.StrEnum):
    """The client's event loop."""

    AUTO = "auto"
    ASYNCIO = "asyncio"
    UVLOOP = "uvloop"


name_server_option = click.option(
    "--namesrv", "-n", metavar="HOST:PORT", help="Of the broker to measure; else one that is started."
)
against_option = click.option("--against", metavar="HOST:PORT", help="Also measure the broker of this name server.")
rounds_option = click.option(
    "--rounds", type=click.IntRange(min=1), default=3, metavar="N", help="With --against: runs of each, in turn."
)
seconds_option = click.option(
    "--seconds", type=click.FloatRange(min=0.01), default=5.0, metavar="S", help="How long is measured."
)
warmup_option = click.option(
    "--warmup", type=click.FloatRange(min=0), default=1.0, metavar="S", help="Load before anything is counted."
)
count_option = click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="Measure so many messages, however long it takes."
)
connections_option = click.option("--connections", type=click.IntRange(min=1, max=10000), default=4, metavar="C")
in_flight_option = click.option(
    "--inflight", type=click.IntRange(min=1, max=65535), default=32, metavar="K", help="Requests per connection."
)
size_option = click.option(
    "--size", type=click.IntRange(min=0, max=4 * 1024 * 1024), default=1024, metavar="BYTES", help="Of a body."
)
topic_option = click.option("--topic", default="FlintBench", metavar="T", help="Created where it is missing.")
queues_option = click.option(
    "--queues", type=click.IntRange(min=1, max=1024), default=8, metavar="N", help="Of a topic that is created."
)
pid_option = click.option("--pid", type=int, help="The broker's process: its processor time is measured.")
against_pid_option = click.option("--against-pid", type=int, help="Likewise, of the other broker.")
loop_name_option = click.option("--loop", type=ValueOf(Loop), default=Loop.AUTO, help="The client's event loop.")


@click.command(cls=Command)
@name_server_option
@options.access
@seconds_option
@warmup_option
@count_option
@connections_option
@in_flight_option
@size_option
@click.option("--batch", type=click.IntRange(min=1, max=4096), default=1, metavar="N", help="Messages per request.")
@topic_option
@queues_option
@pid_option
@against_option
@against_pid_option
@rounds_option
@options.settings
@loop_name_option
def send(
    namesrv: str | None,
    seconds: float,
    warmup: float,
    count: int | None,
    connections: int,
    inflight: int,
    size: int,
    batch: int,
    topic: str,
    queues: int,
    pid: int | None,
    against: str | None,
    against_pid: int | None,
    rounds: int,
    settings: tuple[str, ...],
    loop: Loop,
) -> None:
    """Measure sending. --set configures the broker that is started."""
    bench = BenchSettings(
        bench="send",
        topic=topic,
        seconds=seconds,
        warmup_s=warmup,
        count=count,
        connections=connections,
        inflight=inflight,
        size_bytes=size,
        batch=batch,
        queues=queues,
        access=access_to_measure(namesrv, settings),
    )
    with broker_to_measure(namesrv, pid, settings) as target:
        _run(bench, target, (against, against_pid), rounds, loop)


@click.command(cls=Command)
@name_server_option
@options.access
@seconds_option
@warmup_option
@count_option
@connections_option
@size_option
@click.option("--batch", type=click.IntRange(min=1, max=1024), default=32, metavar="N", help="Messages per pull.")
@topic_option
@queues_option
@pid_option
@against_option
@against_pid_option
@rounds_option
@options.settings
@loop_name_option
def consume(
    namesrv: str | None,
    seconds: float,
    warmup: float,
    count: int | None,
    connections: int,
    size: int,
    batch: int,
    topic: str,
    queues: int,
    pid: int | None,
    against: str | None,
    against_pid: int | None,
    rounds: int,
    settings: tuple[str, ...],
    loop: Loop,
) -> None:
    """Measure consuming: pulls of what is stored, from the first message again when the last one is reached."""
    bench = BenchSettings(
        bench="consume",
        topic=topic,
        seconds=seconds,
        warmup_s=warmup,
        count=count,
        connections=connections,
        inflight=1,
        size_bytes=size,
        batch=batch,
        queues=queues,
        access=access_to_measure(namesrv, settings),
    )
    with broker_to_measure(namesrv, pid, settings) as target:
        if namesrv is None:
            _preload(bench, target, loop)
        _run(bench, target, (against, against_pid), rounds, loop)


def _preload(bench: BenchSettings, target: Target, loop: Loop) -> None:
    batch = max(1, min(64, 1024 * 1024 // (bench.size_bytes + 128)))
    filling = attrs.evolve(
        bench, bench="send", count=PRELOAD_COUNT, warmup_s=0.0, connections=2, inflight=8, batch=batch
    )
    _once(filling, target, loop)


def _run(bench: BenchSettings, target: Target, against: tuple[str | None, int | None], rounds: int, loop: Loop) -> None:
    name_server, other_pid = against
    if name_server is None:
        print_json(_once(bench, target, loop).as_json())
        return
    other = (checked_name_servers(name_server), other_pid)
    other_bench = attrs.evolve(bench, access=access())
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(_once(bench, target, loop))
        print_json(ours[-1].as_json())
        theirs.append(_once(other_bench, other, loop))
        print_json(theirs[-1].as_json())
    print_json(ratios(ours, theirs))


def _once(bench: BenchSettings, target: Target, loop: Loop) -> BenchResult:
    try:
        found: BenchResult = runner(loop.value)(run_bench(bench, *target))
    except RemotingError as error:
        raise CommandError(f"{error}; {HINT}", ExitCode.NETWORK) from error
    return found

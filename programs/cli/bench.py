"""``flintmq bench send``, ``consume``, ``latency``, ``feed`` and ``recover``: measure a broker from outside."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any, Final, Unpack

import attrs
import click
from click import FloatRange, IntRange

from flintmq.config import load_config
from flintmq.core.errors import RemotingError
from flintmq.dispatchers.consume_queue.delay_times import DelayLevels
from flintmq.programs.bench import feed_bench
from flintmq.programs.bench.latency import LatencyResult, run_latency
from flintmq.programs.bench.recover import bench_recover
from flintmq.programs.bench.run import BenchResult, BenchSettings, run_bench
from flintmq.programs.cli import options
from flintmq.programs.cli.bench_target import (
    Measured,
    Target,
    broker_to_measure,
    connections_option,
    loop_option,
    measure_in_turn,
    measured_options,
    runner,
    seconds_option,
    settings_of,
    size_option,
    topic_options,
    warmup_option,
)
from flintmq.programs.cli.child import ServedChild
from flintmq.programs.cli.connect import HINT
from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.output import print_json
from flintmq.programs.cli.parser import Command

PRELOAD_COUNT: Final = 200_000
"""Number of messages that ``flintmq bench consume`` stores before the measurement, if the command starts a broker itself."""

load_warmup = warmup_option(1.0, "Seconds of load before the measurement.")
count_option = click.option(
    "--count", type=IntRange(min=1), metavar="N", help="Measure N messages, in place of --seconds."
)


class Load(Measured):
    """The options of ``flintmq bench send`` and ``flintmq bench consume``."""

    count: int | None
    connections: int
    inflight: int
    batch: int


class LatencyLoad(Measured):
    """The options of ``flintmq bench latency``."""

    rate: float


@click.command(cls=Command)
@load_warmup
@count_option
@connections_option
@size_option(1024)
@topic_options("FlintBench", 8)
@measured_options
@click.option("--inflight", type=IntRange(1, 65_535), default=32, metavar="K", help="Requests per connection.")
@click.option("--batch", type=IntRange(min=1, max=4096), default=1, metavar="N", help="Messages per request.")
def send(**load: Unpack[Load]) -> None:
    bench = settings_of("send", load)
    with broker_to_measure(load["namesrv"], load["pid"], load["settings"]) as target:
        measure_in_turn(lambda settings, broker: _once(settings, broker, load["loop"]), bench, target, load)


@click.command(cls=Command)
@load_warmup
@count_option
@connections_option
@size_option(1024)
@topic_options("FlintBench", 8)
@measured_options
@click.option("--batch", type=IntRange(min=1, max=1024), default=32, metavar="N", help="Messages per pull.")
def consume(**load: Unpack[Load]) -> None:
    load["inflight"] = 1
    bench = settings_of("consume", load)
    with broker_to_measure(load["namesrv"], load["pid"], load["settings"]) as target:
        if load["namesrv"] is None:
            batch = max(1, min(64, 1024 * 1024 // (bench.size_bytes + 128)))
            filling = attrs.evolve(
                bench, bench="send", count=PRELOAD_COUNT, warmup_s=0.0, connections=2, inflight=8, batch=batch
            )
            _once(filling, target, load["loop"])
        measure_in_turn(lambda settings, broker: _once(settings, broker, load["loop"]), bench, target, load)


def _once(bench: BenchSettings, target: Target, loop: str) -> BenchResult:
    try:
        found: BenchResult = runner(loop)(run_bench(bench, *target))
    except RemotingError as error:
        raise CommandError(f"{error}; {HINT}", ExitCode.NETWORK) from error
    return found


@click.command(cls=Command)
@measured_options
@click.option("--rate", type=FloatRange(0.1, 200_000), default=200.0, metavar="R", help="Messages per second.")
@warmup_option(1.0, "Seconds of sending before the measurement.")
@size_option(128)
@topic_options("FlintLatency", 4)
def latency(**load: Unpack[LatencyLoad]) -> None:
    bench, run = settings_of("send", load), runner(load["loop"])

    def once(settings: BenchSettings, target: Target) -> LatencyResult:
        found: LatencyResult = run(run_latency(settings, load["rate"], *target))
        return found

    with broker_to_measure(load["namesrv"], load["pid"], load["settings"]) as target:
        measure_in_turn(once, bench, target, load)


@click.command(cls=Command)
@click.option("--rounds", type=IntRange(min=1), default=5, metavar="N", help="Rounds; each measures every broker once.")
@seconds_option(3.0, "Seconds of one measurement.")
@warmup_option(0.5, "Seconds of load before each measurement.")
@connections_option
@click.option("--inflight", type=IntRange(min=1, max=65535), default=8, metavar="K")
@size_option(128)
@click.option("--landing/--no-landing", default=True, help="Also measure a broker with a landing zone (needs pyarrow).")
@click.option(
    "--folder",
    type=options.PATH,
    metavar="DIR",
    help="The folder for the brokers' stores; by default the one for temporary files.",
)
@options.settings
@loop_option
def feed(rounds: int, landing: bool, folder: Path | None, settings: tuple[str, ...], loop: str, **load: Any) -> None:
    bench = BenchSettings(bench="send", topic="FlintFeed", **load)
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flintmq-bench-feed-", dir=folder)))
        contenders = []
        for label in (feed_bench.WITHOUT, feed_bench.FEED, *((feed_bench.LANDING,) if landing else ())):
            words = [word for text in (*feed_bench.overrides(label, work), *settings) for word in ("--set", text)]
            place = ["--store", str(work / label), "--port", "0", "--namesrv-port", "0"]
            child = stack.enter_context(ServedChild([*place, *words]))
            contenders.append(feed_bench.Contender(label, child.namesrv, child.pid))
        print_json(feed_bench.measure(contenders, bench, rounds, runner(loop), print_json))


@click.command(cls=Command)
@click.option(
    "--store",
    type=options.PATH,
    required=True,
    metavar="DIR",
    help="The store; it is only read, and copies of it are measured.",
)
@click.option(
    "--work",
    type=options.PATH,
    metavar="DIR",
    help="The folder for the copies; by default the one for temporary files.",
)
@options.settings
def recover(store: Path, work: Path | None, settings: tuple[str, ...]) -> None:
    config = load_config(None, settings, {}).config
    levels = DelayLevels(config.delay.levels)
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="flintmq-recover-", dir=work) as folder:
        result = bench_recover(store, Path(folder), config, {level: levels.delay_ms(level) for level in levels})
        print_json(result.as_json())

"""``flintmq bench send`` and ``consume``: measure a broker with a client that costs little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar, Unpack

import attrs
import click
from click import FloatRange, IntRange

from flintmq.core.errors import RemotingError
from flintmq.plugins.bench.result import BenchResult
from flintmq.plugins.bench.run import BenchSettings, run_bench
from flintmq.plugins.cli.bench_target import (
    Loop,
    Measured,
    Target,
    access_to_measure,
    broker_to_measure,
    measure_in_turn,
    measured_options,
    runner,
)
from flintmq.plugins.cli.connect import HINT
from flintmq.plugins.cli.exits import CommandError, ExitCode
from flintmq.plugins.cli.parser import Command

F = TypeVar("F", bound=Callable[..., Any])

PRELOAD_COUNT: Final = 200_000
"""Messages that are stored before consuming is measured, in a broker that is started for it."""


class Load(Measured):
    """What the command line says about a load."""

    warmup_s: float
    count: int | None
    connections: int
    inflight: int
    size_bytes: int
    batch: int
    topic: str
    queues: int


_OPTIONS: Final = (
    click.option(
        "--warmup",
        "warmup_s",
        type=FloatRange(min=0),
        default=1.0,
        metavar="S",
        help="Load before anything is counted.",
    ),
    click.option("--count", type=IntRange(min=1), metavar="N", help="Measure so many messages, however long it takes."),
    click.option("--connections", type=IntRange(min=1, max=10_000), default=4, metavar="C"),
    click.option(
        "--size", "size_bytes", type=IntRange(0, 4 * 1024 * 1024), default=1024, metavar="BYTES", help="Of a body."
    ),
    click.option("--topic", default="FlintBench", metavar="T", help="Created where it is missing."),
    click.option("--queues", type=IntRange(1, 1024), default=8, metavar="N", help="Of a topic that is created."),
)


def load_options(command: F) -> F:
    """Give a command the options that sending and consuming have in common."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return measured_options(command)


@click.command(cls=Command)
@load_options
@click.option("--inflight", type=IntRange(1, 65_535), default=32, metavar="K", help="Requests per connection.")
@click.option("--batch", type=IntRange(min=1, max=4096), default=1, metavar="N", help="Messages per request.")
def send(**load: Unpack[Load]) -> None:
    """Measure sending. --set configures the broker that is started."""
    with broker_to_measure(load["namesrv"], load["pid"], load["settings"]) as target:
        _run(_settings("send", load), target, load)


@click.command(cls=Command)
@load_options
@click.option("--batch", type=IntRange(min=1, max=1024), default=32, metavar="N", help="Messages per pull.")
def consume(**load: Unpack[Load]) -> None:
    """Measure consuming: pulls of what is stored, from the first message again when the last one is reached."""
    load["inflight"] = 1
    bench = _settings("consume", load)
    with broker_to_measure(load["namesrv"], load["pid"], load["settings"]) as target:
        if load["namesrv"] is None:
            _preload(bench, target, load["loop"])
        _run(bench, target, load)


def _settings(bench: Literal["send", "consume"], load: Load) -> BenchSettings:
    known: dict[str, Any] = {name: value for name, value in load.items() if name in attrs.fields_dict(BenchSettings)}
    return BenchSettings(bench=bench, access=access_to_measure(load["namesrv"], load["settings"]), **known)


def _preload(bench: BenchSettings, target: Target, loop: Loop) -> None:
    batch = max(1, min(64, 1024 * 1024 // (bench.size_bytes + 128)))
    filling = attrs.evolve(
        bench, bench="send", count=PRELOAD_COUNT, warmup_s=0.0, connections=2, inflight=8, batch=batch
    )
    _once(filling, target, loop)


def _run(bench: BenchSettings, target: Target, load: Load) -> None:
    measure_in_turn(lambda settings, broker: _once(settings, broker, load["loop"]), bench, target, load)


def _once(bench: BenchSettings, target: Target, loop: Loop) -> BenchResult:
    try:
        found: BenchResult = runner(loop.value)(run_bench(bench, *target))
    except RemotingError as error:
        raise CommandError(f"{error}; {HINT}", ExitCode.NETWORK) from error
    return found

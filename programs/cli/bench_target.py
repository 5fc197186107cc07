"""What the measurements of ``flintmq bench`` measure: a broker that was named, or one started for the measurement."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, TypeVar

import attrs
import click
from click import FloatRange, IntRange

from flintmq.programs.bench.figures import ratios
from flintmq.programs.bench.latency import LatencyResult
from flintmq.programs.bench.run import BenchResult, BenchSettings
from flintmq.programs.broker.running import run_loop_named
from flintmq.programs.cli import options
from flintmq.programs.cli.child import ServedChild
from flintmq.programs.cli.connect import access, access_to_own, checked_name_servers
from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.output import print_json

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", BenchResult, LatencyResult)

Target = tuple[str, int | None]
"""A name server, and the process of its broker where that is known."""


def size_option(default: int) -> Callable[[F], F]:
    """Return the size of a body, as ``size_bytes``."""
    return click.option(
        "--size", "size_bytes", type=IntRange(0, 4 * 1024 * 1024), default=default, metavar="BYTES", help="Of a body."
    )


def warmup_option(default: float, said: str) -> Callable[[F], F]:
    """Return how long load is made before anything is measured, as ``warmup_s``."""
    return click.option("--warmup", "warmup_s", type=FloatRange(min=0), default=default, metavar="S", help=said)


def seconds_option(default: float, said: str) -> Callable[[F], F]:
    """Return how long is measured."""
    return click.option("--seconds", type=FloatRange(min=0.01), default=default, metavar="S", help=said)


def topic_options(topic: str, queues: int) -> Callable[[F], F]:
    """Return the topic, and how many queues it gets where it has to be created."""

    def add(command: F) -> F:
        command = click.option(
            "--queues", type=IntRange(1, 1024), default=queues, metavar="N", help="Of a topic that is created."
        )(command)
        return click.option("--topic", default=topic, metavar="T", help="Created where it is missing.")(command)

    return add


connections_option = click.option(
    "--connections", type=IntRange(min=1, max=10_000), default=4, metavar="C", help="To each broker of the topic."
)
loop_option = click.option(
    "--loop", type=click.Choice(["auto", "asyncio", "uvloop"]), default="auto", help="The client's event loop."
)


class Measured(TypedDict):
    """What the command line says about the brokers to measure, see :func:`measured_options`; the load's own options follow."""

    namesrv: str | None
    pid: int | None
    against: str | None
    against_pid: int | None
    rounds: int
    settings: tuple[str, ...]
    loop: str
    seconds: float
    warmup_s: float
    size_bytes: int
    topic: str
    queues: int


_OPTIONS: Final = (
    click.option("--namesrv", "-n", metavar="HOST:PORT", help="Of the broker to measure; else one that is started."),
    options.access,
    click.option("--pid", type=int, help="The broker's process: its processor time is measured."),
    click.option("--against", metavar="HOST:PORT", help="Also measure the broker of this name server."),
    click.option("--against-pid", type=int, help="Likewise, of the other broker."),
    click.option("--rounds", type=IntRange(1), default=3, metavar="N", help="With --against: runs of each, in turn."),
    seconds_option(5.0, "How long is measured."),
    options.settings,
    loop_option,
)


def measured_options(command: F) -> F:
    """Give a command the options that say which brokers are measured, and how often."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def settings_of(bench: Literal["send", "consume"], asked: Measured) -> BenchSettings:
    """Return how load is made, as the command line says."""
    known: dict[str, Any] = {name: value for name, value in asked.items() if name in attrs.fields_dict(BenchSettings)}
    # Who measures a broker of his own signs as that one asks for.
    signing = access() if asked["namesrv"] is not None else access_to_own(asked["settings"])
    return BenchSettings(bench=bench, access=signing, **known)


def measure_in_turn(
    once: Callable[[BenchSettings, Target], R], bench: BenchSettings, target: Target, asked: Measured
) -> None:
    """Measure one broker, or two brokers in turn, and print a line of JSON per run; of two brokers then the ratios.

    Args:
        once: measures a broker once.
        bench: how load is made; towards the other broker the client signs as the command line says.
        target: the broker to measure.
        asked: what the command line says.
    """
    if asked["against"] is None:
        print_json(once(bench, target).as_json())
        return
    other = (checked_name_servers(asked["against"]), asked["against_pid"])
    other_bench = attrs.evolve(bench, access=access())
    ours, theirs = [], []
    for _ in range(asked["rounds"]):
        ours.append(once(bench, target))
        print_json(ours[-1].as_json())
        theirs.append(once(other_bench, other))
        print_json(theirs[-1].as_json())
    print_json(ratios(ours, theirs))


@contextlib.contextmanager
def broker_to_measure(namesrv: str | None, pid: int | None, settings: Sequence[str]) -> Iterator[Target]:
    """Yield the broker that was named, else one started with these settings; its store is removed afterwards.

    Raises:
        CommandError: settings were given for a broker that runs already, or the broker does not start.
    """
    if namesrv is not None:
        if settings:
            raise CommandError("--set configures the broker that is started: leave out -n", ExitCode.USAGE)
        yield checked_name_servers(namesrv), pid
        return
    store = Path(tempfile.mkdtemp(prefix="flintmq-bench-"))
    words = [word for setting in settings for word in ("--set", setting)]
    try:
        with ServedChild(["--store", str(store), "--port", "0", "--namesrv-port", "0", *words]) as child:
            yield child.namesrv, child.pid
    finally:
        shutil.rmtree(store, ignore_errors=True)


def runner(loop: str) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Return a function that runs coroutines on the event loop of this name.

    Raises:
        CommandError: the event loop is unknown, or uvloop is not installed.
    """
    if loop not in ("auto", "asyncio", "uvloop"):
        raise CommandError(f"--loop is auto, asyncio or uvloop, not '{loop[:40]}'", ExitCode.USAGE)
    try:
        return run_loop_named(loop)
    except ImportError as error:
        raise CommandError(
            "uvloop is not installed: pip install '.[fast]' in FlintMQ's folder", ExitCode.USAGE
        ) from error

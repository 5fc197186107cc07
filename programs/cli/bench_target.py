"""Options of ``flintmq bench`` that select the measured broker: a running broker, or a new broker for the measurement."""

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
"""(address of the name server, process id of the broker) of a benchmark; the process id is None if it is unknown."""


def size_option(default: int) -> Callable[[F], F]:
    """Return the option ``--size`` for the size of a body in bytes, ``size_bytes``."""
    return click.option(
        "--size",
        "size_bytes",
        type=IntRange(0, 4 * 1024 * 1024),
        default=default,
        metavar="BYTES",
        help="Size of a body.",
    )


def warmup_option(default: float, said: str) -> Callable[[F], F]:
    """Return the option ``--warmup`` for the seconds of load before the measurement, ``warmup_s``."""
    return click.option("--warmup", "warmup_s", type=FloatRange(min=0), default=default, metavar="S", help=said)


def seconds_option(default: float, said: str) -> Callable[[F], F]:
    """Return the option ``--seconds`` for the duration of a measurement."""
    return click.option("--seconds", type=FloatRange(min=0.01), default=default, metavar="S", help=said)


def topic_options(topic: str, queues: int) -> Callable[[F], F]:
    """Return the options ``--topic`` and ``--queues``. ``--queues`` is the number of queues of a topic that is created."""

    def add(command: F) -> F:
        command = click.option(
            "--queues",
            type=IntRange(1, 1024),
            default=queues,
            metavar="N",
            help="Queues of the topic, if it is created.",
        )(command)
        return click.option("--topic", default=topic, metavar="T", help="The topic; created if it does not exist.")(
            command
        )

    return add


connections_option = click.option(
    "--connections",
    type=IntRange(min=1, max=10_000),
    default=4,
    metavar="C",
    help="Connections to each broker of the topic.",
)
loop_option = click.option(
    "--loop", type=click.Choice(["auto", "asyncio", "uvloop"]), default="auto", help="The client's event loop."
)


class Measured(TypedDict):
    """The values of the options that :func:`measured_options` adds to a command. Subclasses add the options of one kind of
    measurement."""

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
    click.option(
        "--namesrv",
        "-n",
        metavar="HOST:PORT",
        help="The name server of the broker to measure; by default a broker is started.",
    ),
    options.access,
    click.option("--pid", type=int, help="The broker's process id, to measure its processor time."),
    click.option("--against", metavar="HOST:PORT", help="Also measure the broker of this name server."),
    click.option("--against-pid", type=int, help="The process id of the broker of --against."),
    click.option(
        "--rounds", type=IntRange(1), default=3, metavar="N", help="With --against: number of runs of each broker."
    ),
    seconds_option(5.0, "Seconds of one measurement."),
    options.settings,
    loop_option,
)


def measured_options(command: F) -> F:
    """Add options to a click command that measures brokers. The options set, for example, which brokers are measured, how many
    seconds a run takes, and how many runs are made."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def settings_of(bench: Literal["send", "consume"], asked: Measured) -> BenchSettings:
    """Return the settings of the benchmark's load from its command-line options."""
    known: dict[str, Any] = {name: value for name, value in asked.items() if name in attrs.fields_dict(BenchSettings)}
    # For a broker that the benchmark starts, the credentials come from the broker's own settings.
    signing = access() if asked["namesrv"] is not None else access_to_own(asked["settings"])
    return BenchSettings(bench=bench, access=signing, **known)


def measure_in_turn(
    once: Callable[[BenchSettings, Target], R], bench: BenchSettings, target: Target, asked: Measured
) -> None:
    """Measure one broker, or two brokers in turn. Print a line of JSON per run and, for two brokers, the ratios.

    Args:
        once: the function that runs the benchmark once against a broker, and returns the result.
        bench: the settings of the load. For the second broker, the credentials of the command line replace the credentials in
            these settings.
        target: the first broker to measure.
        asked: the values of the command's options. ``--against`` names the second broker.
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
    """Yield the running broker of ``--namesrv``, or start a new broker with the given settings and remove its store afterwards.

    Raises:
        CommandError: settings are given for a running broker, or the broker does not start.
    """
    if namesrv is not None:
        if settings:
            raise CommandError(
                "--set configures a broker that this command starts, but -n names running ones: leave out one of the two",
                ExitCode.USAGE,
            )
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
    """Return a function that runs coroutines on the event loop with the given name.

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

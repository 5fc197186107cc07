"""``flintmq bench latency`` and ``flintmq bench compare``: over the network, one broker or two in turn."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flintmq.plugins.cli import options
from flintmq.plugins.cli.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from flintmq.plugins.bench.versus import Row, RowSpec, Side, Starts

ROW_NAMES = (
    "memory-idle, send-4x1, send-4x8, send-4x64, send-32x1, batch-32, consume, latency-200, latency-2000, memory, in-process, "
    "start; with --client java-sync-THREADS-BYTES, java-async, java-oneway, java-batch, java-backlog, java-latency-RATE"
)


def latency(
    namesrv: Annotated[
        str | None, typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Of the broker; else one of our own.")
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", metavar="R", min=0.1, max=200_000, help="Messages per second.")
    ] = 200.0,
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", min=0.01, help="How long is measured.")] = 5.0,
    warmup: Annotated[float, typer.Option("--warmup", metavar="S", min=0, help="Messages before any counts.")] = 1.0,
    size: Annotated[int, typer.Option("--size", metavar="BYTES", min=0, max=4 * 1024 * 1024, help="Of a body.")] = 128,
    topic: Annotated[str, typer.Option("--topic", metavar="T", help="Created where it is missing.")] = "FlintLatency",
    queues: Annotated[
        int, typer.Option("--queues", metavar="N", min=1, max=1024, help="Of a topic that is created.")
    ] = 4,
    pid: Annotated[
        int | None, typer.Option("--pid", help="The broker's process: its processor time is measured.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="HOST:PORT", help="Also measure the broker of this name server.")
    ] = None,
    against_pid: Annotated[int | None, typer.Option("--against-pid", help="Likewise, of the other broker.")] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=1, help="With --against: runs of each, in turn.")
    ] = 3,
    settings: options.Settings = None,
    loop: Annotated[str, typer.Option("--loop", metavar="NAME", help="auto, asyncio or uvloop.")] = "auto",
) -> None:
    """Measure end to end: from the send to a listener that waits. One line of JSON per run, then the ratios."""
    import attrs

    from flintmq.plugins.bench.latency import run_latency
    from flintmq.plugins.bench.result import ratios
    from flintmq.plugins.bench.run import BenchSettings
    from flintmq.plugins.cli.bench import access_to_measure, broker_to_measure
    from flintmq.plugins.cli.connect import access, checked_name_servers
    from flintmq.plugins.cli.output import print_json

    bench = BenchSettings(
        bench="send",
        topic=topic,
        seconds=seconds,
        warmup_s=warmup,
        size_bytes=size,
        queues=queues,
        access=access_to_measure(namesrv, settings),
    )
    other_bench = attrs.evolve(bench, access=access())
    run = runner(loop)
    with broker_to_measure(namesrv, pid, settings) as target:
        if against is None:
            print_json(run(run_latency(bench, rate, *target)).as_json())
            return
        other = (checked_name_servers(against), against_pid)
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(run(run_latency(bench, rate, *target)))
            print_json(ours[-1].as_json())
            theirs.append(run(run_latency(other_bench, rate, *other)))
            print_json(theirs[-1].as_json())
        print_json(ratios(ours, theirs))


def compare(
    against: Annotated[
        str | None, typer.Option("--against", metavar="HOST:PORT", help="The name server of the other broker.")
    ] = None,
    against_pid: Annotated[int | None, typer.Option("--against-pid", help="The other broker's process.")] = None,
    namesrv: Annotated[
        str | None, typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Of this broker; else one of our own.")
    ] = None,
    pid: Annotated[int | None, typer.Option("--pid", help="This broker's process, where it is named by -n.")] = None,
    rows: Annotated[str | None, typer.Option("--rows", metavar="A,B,...", help=f"Some of: {ROW_NAMES}.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", min=0.01, help="Of one measurement.")] = 3.0,
    warmup: Annotated[float, typer.Option("--warmup", metavar="S", min=0, help="Before each measurement.")] = 1.0,
    rounds: Annotated[int, typer.Option("--rounds", metavar="R", min=1, help="Of each row, the brokers in turn.")] = 3,
    against_start: Annotated[
        str, typer.Option("--against-start", metavar="COMMAND", help="Starts the other broker, for the row 'start'.")
    ] = "",
    against_stop: Annotated[
        str, typer.Option("--against-stop", metavar="COMMAND", help="Stops it; also before the first start.")
    ] = "",
    client: Annotated[
        str,
        typer.Option("--client", metavar="COMMAND", help="Load by the Java client: a program like the kit's bench.sh."),
    ] = "",
    generator: Annotated[
        str, typer.Option("--generator", metavar="COMMAND", help="Load of single sends by a program like loadgen.c.")
    ] = "",
    settings: options.Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line per row and no table.")] = False,
    loop: Annotated[
        str, typer.Option("--loop", metavar="NAME", help="The client's: auto, asyncio or uvloop.")
    ] = "auto",
) -> None:
    """Compare with another broker that speaks RocketMQ: the same load on both, in turn, and the ratio of each round."""
    from flintmq.plugins.bench.versus import ROWS, Setting, Side, compare_row, geometric_means
    from flintmq.plugins.cli.bench import broker_to_measure
    from flintmq.plugins.cli.connect import checked_name_servers
    from flintmq.plugins.cli.exits import warn
    from flintmq.plugins.cli.output import print_json, print_table

    chosen = _rows(rows, ROWS, bool(client))
    run = runner(loop)
    starts: dict[str, Starts] = {"FlintMQ": functools.partial(_own_start, settings)}
    other = None
    if against is not None:
        other = Side("the other broker", checked_name_servers(against), against_pid)
        if against_start:
            starts[other.name] = functools.partial(_other_start, against_start, against_stop, other.name_server)
    setting = Setting(
        run=run,
        seconds=seconds,
        warmup_s=warmup,
        starts=starts,
        in_process=functools.partial(_put, run, seconds),
        client=client,
        generator=generator,
    )
    found: list[Row] = []
    with broker_to_measure(namesrv, pid, settings) as (name_server, own_pid):
        ours = Side("FlintMQ", name_server, own_pid)
        for spec in chosen:
            if spec.name == "start":
                _stop_other(other, against_stop)
            found.append(compare_row(spec, setting, ours, other, rounds))
            print_json(found[-1].as_json()) if as_json else _tell(found[-1])
    means = geometric_means(found)
    if as_json and means:
        print_json(means)
    if not as_json:
        print_table(
            ("row", "figure", "FlintMQ#", "other#", "ratio#", "95 %#"),
            [line for row in found for line in _lines(row)] + _mean_lines(means),
            title=f"{rounds} rounds of {seconds:g} s, 128 bytes; medians; a ratio below 1 is less than the other's",
        )
    for row in found:
        if row.why_not:
            warn(f"{row.spec.name}: {row.why_not}")


def _rows(wanted: str | None, known: tuple[RowSpec, ...], has_client: bool) -> tuple[RowSpec, ...]:
    if wanted is None:
        return tuple(spec for spec in known if has_client or not spec.needs_client)
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    missing = [name for name in names if name not in {spec.name for spec in known}]
    if missing or not names:
        raise CommandError(f"--rows: there is no row '{', '.join(missing)}'; they are {ROW_NAMES}", ExitCode.USAGE)
    chosen = tuple(spec for spec in known if spec.name in names)
    if not has_client and any(spec.needs_client for spec in chosen):
        raise CommandError("rows of the Java client need --client COMMAND", ExitCode.USAGE)
    return chosen


def runner(loop: str) -> Any:
    """Runs coroutines on a loop of the name given. Raises CommandError for another name, and where uvloop is missing."""
    from flintmq.plugins.broker.service import run_loop_named

    if loop not in ("auto", "asyncio", "uvloop"):
        raise CommandError(f"--loop is auto, asyncio or uvloop, not '{loop[:40]}'", ExitCode.USAGE)
    try:
        return run_loop_named(loop)
    except ImportError as error:
        raise CommandError("uvloop is not installed: pip install 'flintmq[fast]'", ExitCode.USAGE) from error


def _put(run: Any, seconds: float) -> dict[str, float]:
    from flintmq.plugins.bench.in_process import put_us

    return {"put_us": round(run(put_us(seconds, 128)), 3)}


@contextlib.contextmanager
def _own_start(settings: list[str] | None) -> Iterator[str]:
    from flintmq.plugins.cli.bench import broker_to_measure

    with broker_to_measure(None, None, settings) as (name_server, _pid):
        yield name_server


def _other_start(command: str, stop: str, name_server: str) -> Any:
    from flintmq.plugins.bench.versus import started_by

    return started_by(command, stop, name_server)


def _stop_other(other: Side | None, stop: str) -> None:
    """What is to be started must not run."""
    from flintmq.core.errors import FlintError
    from flintmq.plugins.bench.versus import started_by

    if other is not None and stop:
        with contextlib.suppress(FlintError), started_by("true", stop, other.name_server):
            pass


def _tell(row: Row) -> None:
    import sys

    print(f"{row.spec.name}: {row.spec.title}", file=sys.stderr, flush=True)


def _lines(row: Row) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    document = row.as_json()
    for name in row.spec.figures:
        entry = document.get(name, {})
        if entry:
            interval = entry.get("ratio_95")
            found.append(
                (
                    "" if found else row.spec.title,
                    name,
                    _short(entry.get("ours")),
                    _short(entry.get("theirs")),
                    _short(entry.get("ratio")),
                    f"{interval[0]:.3g} to {interval[1]:.3g}" if interval else "-",
                )
            )
    return found or [(row.spec.title, "not measured", "-", "-", "-", "-")]


def _mean_lines(means: dict[str, Any]) -> list[tuple[object, ...]]:
    names = [name for name, value in means.items() if isinstance(value, dict)]
    return [
        (
            "" if at else f"geometric mean of {means['rows']} rows of the Java client",
            name,
            "-",
            "-",
            _short(means[name]["ratio"]),
            "-",
        )
        for at, name in enumerate(names)
    ]


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"

"""``flintmq bench``: how fast a broker is, measured by a client that costs next to nothing."""

from __future__ import annotations

import contextlib
import enum
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flintmq.plugins.cli import bench_compare, bench_feed, bench_flush, bench_recover, bench_report, options
from flintmq.plugins.cli.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from flintmq.plugins.bench.result import BenchResult
    from flintmq.plugins.bench.run import BenchSettings
    from flintmq.remoting.client.access import Access

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Measure a broker: one line of JSON per run. Without -n a FlintMQ of its own is started for it.",
)

app.command("flush")(bench_flush.flush)
app.command("latency")(bench_compare.latency)
app.command("compare")(bench_compare.compare)
app.command("feed")(bench_feed.feed)
app.command("report")(bench_report.report)
app.command("recover")(bench_recover.recover)

PRELOAD_COUNT = 200_000
"""Messages that are stored before consuming is measured, in a broker of our own."""


class Loop(enum.StrEnum):
    """The client's event loop."""

    AUTO = "auto"
    ASYNCIO = "asyncio"
    UVLOOP = "uvloop"


NameServer = Annotated[
    str | None,
    typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Of the broker to measure; else one of our own."),
]
Against = Annotated[
    str | None, typer.Option("--against", metavar="HOST:PORT", help="Also measure the broker of this name server.")
]
Rounds = Annotated[int, typer.Option("--rounds", metavar="N", min=1, help="With --against: runs of each, in turn.")]
Seconds = Annotated[float, typer.Option("--seconds", metavar="S", min=0.01, help="How long is measured.")]
Warmup = Annotated[float, typer.Option("--warmup", metavar="S", min=0, help="Load before anything is counted.")]
Count = Annotated[
    int | None, typer.Option("--count", metavar="N", min=1, help="Measure so many messages, however long it takes.")
]
Connections = Annotated[int, typer.Option("--connections", metavar="C", min=1, max=10_000)]
InFlight = Annotated[int, typer.Option("--inflight", metavar="K", min=1, max=65_535, help="Requests per connection.")]
Size = Annotated[int, typer.Option("--size", metavar="BYTES", min=0, max=4 * 1024 * 1024, help="Of a body.")]
Topic = Annotated[str, typer.Option("--topic", metavar="T", help="Created where it is missing.")]
Queues = Annotated[int, typer.Option("--queues", metavar="N", min=1, max=1024, help="Of a topic that is created.")]
Pid = Annotated[int | None, typer.Option("--pid", help="The broker's process: its processor time is measured.")]
AgainstPid = Annotated[int | None, typer.Option("--against-pid", help="Likewise, of the other broker.")]
LoopName = Annotated[Loop, typer.Option("--loop", help="The client's event loop.")]


@app.command()
def send(
    namesrv: NameServer = None,
    seconds: Seconds = 5.0,
    warmup: Warmup = 1.0,
    count: Count = None,
    connections: Connections = 4,
    inflight: InFlight = 32,
    size: Size = 1024,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, max=4096, help="Messages per request.")] = 1,
    topic: Topic = "FlintBench",
    queues: Queues = 8,
    pid: Pid = None,
    against: Against = None,
    against_pid: AgainstPid = None,
    rounds: Rounds = 3,
    settings: options.Settings = None,
    loop: LoopName = Loop.AUTO,
) -> None:
    """Measure sending. --set configures the broker of our own."""
    from flintmq.plugins.bench.run import BenchSettings

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


@app.command()
def consume(
    namesrv: NameServer = None,
    seconds: Seconds = 5.0,
    warmup: Warmup = 1.0,
    count: Count = None,
    connections: Connections = 4,
    size: Size = 1024,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, max=1024, help="Messages per pull.")] = 32,
    topic: Topic = "FlintBench",
    queues: Queues = 8,
    pid: Pid = None,
    against: Against = None,
    against_pid: AgainstPid = None,
    rounds: Rounds = 3,
    settings: options.Settings = None,
    loop: LoopName = Loop.AUTO,
) -> None:
    """Measure consuming: pulls of what is stored, from the first message again when the last one is reached."""
    from flintmq.plugins.bench.run import BenchSettings

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


Target = tuple[str, int | None]
"""A name server, and the process of its broker where that is known."""


@contextlib.contextmanager
def broker_to_measure(namesrv: str | None, pid: int | None, settings: list[str] | None) -> Iterator[Target]:
    """What is to be measured: what was named, else a broker of our own, whose store goes with it."""
    from flintmq.plugins.cli.child import ServedChild
    from flintmq.plugins.cli.connect import checked_name_servers

    if namesrv is not None:
        if settings:
            raise CommandError("--set configures a broker of our own: leave out -n", ExitCode.USAGE)
        yield checked_name_servers(namesrv), pid
        return
    store = Path(tempfile.mkdtemp(prefix="flintmq-bench-"))
    words = [word for setting in settings or () for word in ("--set", setting)]
    try:
        with ServedChild(["--store", str(store), "--port", "0", "--namesrv-port", "0", *words]) as child:
            yield child.namesrv, child.pid
    finally:
        shutil.rmtree(store, ignore_errors=True)


def access_to_measure(namesrv: str | None, settings: list[str] | None) -> Access:
    """How the load signs and encrypts: as was said, or as the broker of our own wants it."""
    from flintmq.plugins.cli.connect import access, access_to_own

    return access() if namesrv is not None else access_to_own(settings or ())


def _preload(bench: BenchSettings, target: Target, loop: Loop) -> None:
    import attrs

    batch = max(1, min(64, 1024 * 1024 // (bench.size_bytes + 128)))
    filling = attrs.evolve(
        bench, bench="send", count=PRELOAD_COUNT, warmup_s=0.0, connections=2, inflight=8, batch=batch
    )
    _once(filling, target, loop)


def _run(bench: BenchSettings, target: Target, against: tuple[str | None, int | None], rounds: int, loop: Loop) -> None:
    import attrs

    from flintmq.plugins.bench.result import ratios
    from flintmq.plugins.cli.connect import access, checked_name_servers
    from flintmq.plugins.cli.output import print_json

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
    from flintmq.core.errors import RemotingError
    from flintmq.plugins.bench.run import run_bench
    from flintmq.plugins.broker.service import run_loop_named
    from flintmq.plugins.cli.connect import HINT

    try:
        return run_loop_named(loop.value)(run_bench(bench, *target))
    except ImportError as error:
        raise CommandError("uvloop is not installed: pip install 'flintmq[fast]'", ExitCode.USAGE) from error
    except RemotingError as error:
        raise CommandError(f"{error}; {HINT}", ExitCode.NETWORK) from error

"""``flintmq bench``: how fast a broker is, measured by a client that costs next to nothing."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from flintmq.plugins.cli import bench_feed, bench_flush, bench_recover, options
from flintmq.plugins.cli.bench_target import Target, access_to_measure, broker_to_measure, runner
from flintmq.plugins.cli.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from flintmq.plugins.bench.result import BenchResult
    from flintmq.plugins.bench.run import BenchSettings

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Measure a broker: one line of JSON per run. Without -n a FlintMQ of its own is started for it.",
)

app.command("flush")(bench_flush.flush)
app.command("feed")(bench_feed.feed)
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
        access=access_to_measure(namesrv, settings or ()),
    )
    with broker_to_measure(namesrv, pid, settings or ()) as target:
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
        access=access_to_measure(namesrv, settings or ()),
    )
    with broker_to_measure(namesrv, pid, settings or ()) as target:
        if namesrv is None:
            _preload(bench, target, loop)
        _run(bench, target, (against, against_pid), rounds, loop)


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
    from flintmq.plugins.cli.connect import HINT

    try:
        found: BenchResult = runner(loop.value)(run_bench(bench, *target))
    except RemotingError as error:
        raise CommandError(f"{error}; {HINT}", ExitCode.NETWORK) from error
    return found

"""``flintmq bench feed``: what feeding Spark costs the broker."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from flintmq.plugins.cli import options

Folder = Annotated[
    Path | None,
    typer.Option("--folder", metavar="DIR", help="Where the brokers' stores are made; else for temporary files."),
]


def feed(
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", min=1, help="Of each broker, in turn.")] = 5,
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", min=0.01, help="Of one measurement.")] = 3.0,
    warmup: Annotated[float, typer.Option("--warmup", metavar="S", min=0, help="Before each measurement.")] = 0.5,
    connections: Annotated[int, typer.Option("--connections", metavar="C", min=1, max=10_000)] = 4,
    inflight: Annotated[int, typer.Option("--inflight", metavar="K", min=1, max=65_535)] = 8,
    size: Annotated[int, typer.Option("--size", metavar="BYTES", min=0, max=4 * 1024 * 1024, help="Of a body.")] = 128,
    landing: Annotated[bool, typer.Option(help="Also a broker with a landing zone (needs pyarrow).")] = True,
    folder: Folder = None,
    settings: options.Settings = None,
    loop: Annotated[
        str, typer.Option("--loop", metavar="NAME", help="The client's: auto, asyncio or uvloop.")
    ] = "auto",
) -> None:
    """Measure brokers without and with the dispatcher spark_feed, in turn. A line of JSON per run, then medians and ratios."""
    from flintmq.plugins.bench.feed_bench import FEED, LANDING, WITHOUT, Contender, measure, overrides
    from flintmq.plugins.bench.run import BenchSettings
    from flintmq.plugins.cli.bench_target import runner
    from flintmq.plugins.cli.child import ServedChild
    from flintmq.plugins.cli.output import print_json

    bench = BenchSettings(
        bench="send",
        topic="FlintFeed",
        seconds=seconds,
        warmup_s=warmup,
        connections=connections,
        inflight=inflight,
        size_bytes=size,
    )
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flintmq-bench-feed-", dir=folder)))
        contenders = []
        for label in (WITHOUT, FEED, *((LANDING,) if landing else ())):
            words = [word for text in (*overrides(label, work), *(settings or ())) for word in ("--set", text)]
            place = ["--store", str(work / label), "--port", "0", "--namesrv-port", "0"]
            child = stack.enter_context(ServedChild([*place, *words]))
            contenders.append(Contender(label, child.namesrv, child.pid))
        print_json(measure(contenders, bench, rounds, runner(loop), print_json))

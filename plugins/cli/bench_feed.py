"""``flintmq bench feed``: what feeding Spark costs the broker."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import click

from flintmq.plugins.bench.feed_bench import FEED, LANDING, WITHOUT, Contender, measure, overrides
from flintmq.plugins.bench.run import BenchSettings
from flintmq.plugins.cli import options
from flintmq.plugins.cli.bench_target import runner
from flintmq.plugins.cli.child import ServedChild
from flintmq.plugins.cli.output import print_json
from flintmq.plugins.cli.parser import Command

folder_option = click.option(
    "--folder", type=options.PATH, metavar="DIR", help="Where the brokers' stores are made; else for temporary files."
)


@click.command(cls=Command)
@click.option("--rounds", type=click.IntRange(min=1), default=5, metavar="N", help="Of each broker, in turn.")
@click.option("--seconds", type=click.FloatRange(min=0.01), default=3.0, metavar="S", help="Of one measurement.")
@click.option(
    "--warmup", "warmup_s", type=click.FloatRange(min=0), default=0.5, metavar="S", help="Before each measurement."
)
@click.option("--connections", type=click.IntRange(min=1, max=10000), default=4, metavar="C")
@click.option("--inflight", type=click.IntRange(min=1, max=65535), default=8, metavar="K")
@click.option(
    "--size", "size_bytes", type=click.IntRange(0, 4 * 1024 * 1024), default=128, metavar="BYTES", help="Of a body."
)
@click.option("--landing/--no-landing", default=True, help="Also a broker with a landing zone (needs pyarrow).")
@folder_option
@options.settings
@click.option("--loop", default="auto", metavar="NAME", help="The client's: auto, asyncio or uvloop.")
def feed(rounds: int, landing: bool, folder: Path | None, settings: tuple[str, ...], loop: str, **load: Any) -> None:
    """Measure brokers without and with the dispatcher spark_feed, in turn. A line of JSON per run, then medians and ratios."""
    bench = BenchSettings(bench="send", topic="FlintFeed", **load)
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flintmq-bench-feed-", dir=folder)))
        contenders = []
        for label in (WITHOUT, FEED, *((LANDING,) if landing else ())):
            words = [word for text in (*overrides(label, work), *(settings)) for word in ("--set", text)]
            place = ["--store", str(work / label), "--port", "0", "--namesrv-port", "0"]
            child = stack.enter_context(ServedChild([*place, *words]))
            contenders.append(Contender(label, child.namesrv, child.pid))
        print_json(measure(contenders, bench, rounds, runner(loop), print_json))

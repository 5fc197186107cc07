#!/usr/bin/env python3
"""Measures end to end: from the send to a listener that waits. One line of JSON per run, then the ratios.

    tools/bench_latency.py [-n HOST:9876] [--rate 2000] [--against HOST:9876 --rounds 5]

Without ``--namesrv`` a FlintMQ is started for the measurement.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import attrs
from against_java.latency import run_latency

from flintmq.plugins.bench.result import ratios
from flintmq.plugins.bench.run import BenchSettings
from flintmq.plugins.cli.bench_target import access_to_measure, broker_to_measure, runner
from flintmq.plugins.cli.connect import access, checked_name_servers
from flintmq.plugins.cli.exits import finished
from flintmq.plugins.cli.output import print_json


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one broker, or two in turn. Returns the exit code."""
    words = parser().parse_args(arguments)
    return finished(lambda: latency(words))


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    made = argparse.ArgumentParser("bench_latency.py", description=(__doc__ or "").partition("\n")[0])
    made.add_argument("-n", "--namesrv", metavar="HOST:PORT", help="of the broker to measure; else one is started")
    made.add_argument("--rate", type=float, default=200.0, metavar="R", help="messages per second")
    made.add_argument("--seconds", type=float, default=5.0, metavar="S", help="how long is measured")
    made.add_argument("--warmup", type=float, default=1.0, metavar="S", help="messages before any counts")
    made.add_argument("--size", type=int, default=128, metavar="BYTES", help="of a body")
    made.add_argument("--topic", default="FlintLatency", help="created where it is missing")
    made.add_argument("--queues", type=int, default=4, metavar="N", help="of a topic that is created")
    made.add_argument("--pid", type=int, help="the broker's process: its processor time is measured")
    made.add_argument("--against", metavar="HOST:PORT", help="also measure the broker of this name server")
    made.add_argument("--against-pid", type=int, metavar="PID", help="the other broker's process")
    made.add_argument("--rounds", type=int, default=3, metavar="N", help="with --against: runs of each, in turn")
    made.add_argument(
        "--set", action="append", dest="settings", metavar="KEY=VALUE", help="of the FlintMQ started here"
    )
    made.add_argument("--loop", default="auto", metavar="NAME", help="auto, asyncio or uvloop")
    return made


def latency(words: argparse.Namespace) -> None:
    """Measure and print every run."""
    settings = words.settings or ()
    bench = BenchSettings(
        bench="send",
        topic=words.topic,
        seconds=words.seconds,
        warmup_s=words.warmup,
        size_bytes=words.size,
        queues=words.queues,
        access=access_to_measure(words.namesrv, settings),
    )
    other_bench = attrs.evolve(bench, access=access())
    run = runner(words.loop)
    with broker_to_measure(words.namesrv, words.pid, settings) as target:
        if words.against is None:
            print_json(run(run_latency(bench, words.rate, *target)).as_json())
            return
        other = (checked_name_servers(words.against), words.against_pid)
        ours, theirs = [], []
        for _ in range(words.rounds):
            ours.append(run(run_latency(bench, words.rate, *target)))
            print_json(ours[-1].as_json())
            theirs.append(run(run_latency(other_bench, words.rate, *other)))
            print_json(theirs[-1].as_json())
        print_json(ratios(ours, theirs))


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compares FlintMQ's client with RocketMQ's Java client: both put the same load on one broker in turn, round after round.

    tools/bench_client.py --client ../shared/peer/bench.sh [--rounds 3] [--rows send-8,consume-lists] [-n HOST:PORT] [--json]

Without ``-n`` a FlintMQ is started as the broker. The result of a row is the median of the rounds' ratios. The measured
processor time is that of the client's process. FlintMQ's client measures its processor time after a warm-up. The Java client's
processor time is the difference between a long run and a short run, which leaves out the start of the virtual machine and most
of its compiling.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from against_java.outside import fresh_topic

from flintmq.programs.cli.bench_target import broker_to_measure
from flintmq.programs.cli.exits import CommandError, ExitCode, finished, warn

LOAD: Final = Path(__file__).with_name("client_load.py")
JAVA: Final[dict[str, tuple[str, ...]]] = {
    **{f"send-{count}": ("produce", "--mode", "sync", "--threads", str(count)) for count in (1, 8, 32, 64)},
    **{f"linger-{count}": ("produce", "--mode", "sync", "--threads", str(count)) for count in (8, 32, 64)},
    "oneway": ("produce", "--mode", "oneway", "--threads", "1"),
    "batch": ("produce", "--mode", "batch", "--batch", "32", "--threads", "1"),
    "consume": ("consume", "--threads", "4", "--batch", "1", "--from", "first"),
    "consume-lists": ("consume", "--threads", "4", "--batch", "32", "--from", "first"),
}
"""Arguments with which the Java client is started, keyed by the name of the measurement. A measurement is a row of the printed
comparison of the two clients. In the measurements ``linger-N``, FlintMQ's client waits a short time to join messages into
batches. The Java client cannot do this, so it sends single messages in these measurements."""
SIZE_BYTES: Final = 128
BACKLOG: Final = 400_000
TIMEOUT_S: Final = 300.0
Figures = dict[str, float]
"""Figures of a measured client. ``rate`` is in messages a second; ``cpu_us`` is the client's processor time for each message,
in µs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare FlintMQ's client with the Java client. Returns the exit code."""
    parser = argparse.ArgumentParser("bench_client.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--client", required=True, metavar="COMMAND", help="a Java client like the kit's bench.sh")
    parser.add_argument(
        "-n", "--namesrv", metavar="HOST:PORT", help="the broker's name server; else a FlintMQ is started"
    )
    parser.add_argument("--rows", default=",".join(JAVA), metavar="A,B,...", help=f"some of: {', '.join(JAVA)}")
    parser.add_argument("--rounds", type=int, default=3, metavar="R", help="rounds of each row, the clients in turn")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="length of one measurement")
    parser.add_argument(
        "--loop", default="auto", metavar="NAME", help="event loop of FlintMQ's client: auto, asyncio or uvloop"
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON for each row and no table")
    words = parser.parse_args(arguments)
    return finished(lambda: compare(words))


def compare(words: argparse.Namespace) -> None:
    """Run each measurement that ``--rows`` names with FlintMQ's client and with the Java client, and print both clients'
    figures and their ratios.

    The figures of a measurement are a row of the printed table, or a line of JSON. Raises CommandError if a measurement does
    not exist.
    """
    rows = [name.strip() for name in words.rows.split(",")]
    if unknown := [name for name in rows if name not in JAVA]:
        raise CommandError(
            f"--rows: there is no row '{', '.join(unknown)}'; the rows are {', '.join(JAVA)}", ExitCode.USAGE
        )
    with broker_to_measure(words.namesrv, None, ()) as (name_server, _pid):
        topic = fresh_topic("clients")
        if any(name.startswith("consume") for name in rows):
            fill = ("produce", "--mode", "batch", "--batch", "32", "--threads", "2", "--count", str(BACKLOG))
            java(words.client, (*fill, "--queues", "8", "--size", str(SIZE_BYTES)), name_server, topic)
        found = []
        for name in rows:
            found.append(compared(name, [one_round(words, name, name_server, topic, at) for at in range(words.rounds)]))
            print(json.dumps(found[-1]), flush=True) if words.json else warn(f"measured {name}")
    if not words.json:
        print(table(found))


def one_round(
    words: argparse.Namespace, name: str, name_server: str, topic: str, number: int
) -> tuple[Figures, Figures]:
    """Return the figures of FlintMQ's client and of the Java client in one round. Every second round measures the Java client
    first."""
    sides = [lambda: ours(words, name, name_server, topic), lambda: theirs(words, name, name_server, topic)]
    if number % 2:
        second, first = sides[1](), sides[0]()
        return first, second
    return sides[0](), sides[1]()


def ours(words: argparse.Namespace, name: str, name_server: str, topic: str) -> Figures:
    """Return the rate and the processor time per message of one run of FlintMQ's client."""
    target = topic if name.startswith("consume") else fresh_topic("clients")
    options = ("--namesrv", name_server, "--topic", target, "--seconds", str(words.seconds), "--count", str(BACKLOG))
    return said([sys.executable, str(LOAD), name, *options, "--size", str(SIZE_BYTES), "--loop", words.loop])


def theirs(words: argparse.Namespace, name: str, name_server: str, topic: str) -> Figures:
    """Return the figures of the Java client: the rate of a long run, and the processor time per message that a long run uses in
    addition to a short run."""
    is_consumer = name.startswith("consume")

    def run(share: float) -> dict[str, Any]:
        if is_consumer:
            more = ("--count", str(int(BACKLOG * share)), "--group", fresh_topic("group"))
            return java(words.client, (*JAVA[name], *more), name_server, topic)
        more = ("--size", str(SIZE_BYTES), "--seconds", str(words.seconds * share * 2), "--warmup", "1")
        return java(words.client, (*JAVA[name], *more), name_server, fresh_topic("clients"))

    short, long = run(0.25), run(1.0)
    messages = [one["messages"] + one.get("warmup_messages", 0) for one in (short, long)]
    spent_us = (long["client_cpu_s"] - short["client_cpu_s"]) * 1e6
    return {"rate": long["msgs_per_s"], "cpu_us": round(spent_us / max(1, messages[1] - messages[0]), 3)}


def java(command: str, options: Sequence[str], name_server: str, topic: str) -> dict[str, Any]:
    """Return the figures that one run of the Java client prints."""
    return said([*shlex.split(command), *options, "--namesrv", name_server, "--topic", topic])


def said(command: Sequence[str]) -> dict[str, Any]:
    """Return the last line of JSON that a command prints. Raises ``CommandError``."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing was said"]
        raise CommandError(f"'{' '.join(command)}' ended with {done.returncode}: {last[0]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def compared(name: str, rounds: Sequence[tuple[Figures, Figures]]) -> dict[str, Any]:
    """Return a row of the comparison between FlintMQ's client and the Java client.

    For the rate and for the processor time per message, the row contains three medians over all rounds: the figure of FlintMQ's
    client, the figure of the Java client, and the quotient of both figures in the same round.
    """
    row: dict[str, Any] = {"row": name, "rounds": len(rounds)}
    for figure in ("rate", "cpu_us"):
        row[figure] = {
            "ours": statistics.median(first[figure] for first, _ in rounds),
            "theirs": statistics.median(second[figure] for _, second in rounds),
            "ratio": round(statistics.median(first[figure] / second[figure] for first, second in rounds), 3),
        }
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows of the comparison as a table in Markdown."""
    lines = [
        "| row | FlintMQ, messages/s | Java | ratio | FlintMQ, CPU µs | Java | ratio |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        rate, cpu = row["rate"], row["cpu_us"]
        lines.append(
            f"| {row['row']} | {rate['ours']:,.0f} | {rate['theirs']:,.0f} | {rate['ratio']:.2f} "
            f"| {cpu['ours']:.1f} | {cpu['theirs']:.1f} | {cpu['ratio']:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Makes the table of numbers in README.md: medians over several comparisons with RocketMQ, and the intervals of the ratios.

    tools/readme_numbers.py [--runs 5] [--write]

A run is one comparison: it calls ``tools/against_java.sh``, which starts the brokers, once with ASYNC_FLUSH and once with
SYNC_FLUSH. Each run starts new brokers, because chance at the start of a broker affects all rounds of a run. A run takes some
ten minutes. It needs Java 17, a C compiler, and a machine without other work. It also needs the peer kit, the folder of scripts
and programs for tests with RocketMQ.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.programs.bench.figures import ratio

ROOT: Final = Path(__file__).resolve().parent.parent
HEADER: Final = "| row | figure | FlintMQ | RocketMQ | ratio | 95 % |"
IDLE_LOAD_MAX: Final = 0.3
"""Highest load average of the last minute at which the machine counts as idle, so that a measurement is valid."""

JAVA_ROWS: Final = (
    *(f"java-sync-{threads}-{size}" for size in (128, 1024, 4096) for threads in (1, 8, 32, 64)),
    "java-async", "java-oneway", "java-batch",
)  # fmt: skip
SYNC_ROWS: Final = tuple(f"java-sync-{threads}-{size}" for size in (128, 1024) for threads in (1, 8, 32))

Run = Mapping[str, Mapping[str, Any]]
"""The results of one run of measurements: documents that ``against_java.sh --json`` prints, keyed by flush mode and row, such
as ``async send-4x64``."""


@attrs.frozen
class Line:
    """A line of the table in README.md: one figure of one row of the comparison, or the mean of the ratios of several rows."""

    title: str
    figure: str
    key: str
    rows: tuple[str, ...]
    flush: str = "async"


LINES: Final = (
    Line("send, 4 connections × 64 in flight", "CPU µs", "broker_cpu_us", ("send-4x64",)),
    Line("", "messages/s", "rate", ("send-4x64",)),
    Line("send in batches of 32", "CPU µs", "broker_cpu_us", ("batch-32",)),
    Line("", "messages/s", "rate", ("batch-32",)),
    Line(f"Java client, mean of {len(JAVA_ROWS)} rows", "messages/s", "rate", JAVA_ROWS),
    Line(f"the same with SYNC_FLUSH, mean of {len(SYNC_ROWS)} rows", "messages/s", "rate", SYNC_ROWS, "sync"),
    Line("Java push consumer, backlog of 500,000", "messages/s", "rate", ("java-backlog",)),
    Line("send to listener, 2,000/s", "p99 ms", "p99_ms", ("latency-2000",)),
    Line("loaded", "resident MiB", "rss_mib", ("memory",)),
    Line("start to first acknowledged send", "ms", "start_ms", ("start",)),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and with ``--write`` put it into README.md. Returns the exit code."""
    parser = argparse.ArgumentParser("readme_numbers.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--runs", type=int, default=5, metavar="N", help="number of whole comparisons, 3 at least (default: 5)"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds of each row in a run (default: 3)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, metavar="S", help="length of one measurement (default: 2)"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="write what each run measured to FILE, a line of JSON each"
    )
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    parser.add_argument("--busy", action="store_true", help="measure although the machine does other work")
    words = parser.parse_args(arguments)
    if words.runs < 3:
        parser.error(f"--runs is 3 at least, for an interval, not {words.runs}")
    load = os.getloadavg()[0]
    if load > IDLE_LOAD_MAX and not words.busy:
        parser.error(
            f"the machine does other work: its load is {load:.2f}, above {IDLE_LOAD_MAX}; --busy measures all the same"
        )
    runs = []
    for number in range(words.runs):
        runs.append(measure(words.rounds, words.seconds))
        print(f"run {number + 1} of {words.runs} is done", file=sys.stderr)
        if words.keep is not None:
            with words.keep.open("a") as file:
                file.write(json.dumps(runs[-1]) + "\n")
    lines = table(runs)
    print("\n".join(lines))
    if words.write:
        readme = ROOT / "README.md"
        readme.write_text(with_table(readme.read_text(), lines))
    return 0


def measure(rounds: int, seconds: float) -> Run:
    """Compare FlintMQ with RocketMQ once, in all rows that the table in README.md needs. The rows are measured by
    ``tools/against_java.sh``, once with ASYNC_FLUSH and once with SYNC_FLUSH. Return the results, keyed by flush mode and name
    of the row, such as ``async send-4x64``.

    Args:
        rounds: the number of rounds of each row.
        seconds: the length of one measurement in seconds.

    Raises:
        CalledProcessError: the script failed.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for flush in ("async", "sync"):
        rows = sorted({row for line in LINES if line.flush == flush for row in line.rows})
        command = [str(ROOT / "tools" / "against_java.sh"), "--json", "--rows", ",".join(rows)]
        command += ["--rounds", str(rounds), "--seconds", str(seconds)]
        done = subprocess.run(command, env=os.environ | {"FLUSH": flush}, stdout=subprocess.PIPE, text=True, check=True)
        documents = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        found |= {f"{flush} {document['row']}": document for document in documents}
    return found


def table(runs: Sequence[Run]) -> list[str]:
    """Return the lines of the table in README.md: for each figure the medians over all runs, and the ratio with its 95 %
    interval.

    Raises:
        ValueError: a run did not measure a figure.
    """
    made = [HEADER, "|---|---|---|---|---|---|"]
    for line in LINES:
        pairs = [_pair(line, run) for run in runs]
        ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
        between = ratio([mine for mine, _ in pairs], [other for _, other in pairs])
        assert between is not None, line
        middle = statistics.median(mine / other for mine, other in pairs)
        shown = ("", "") if len(line.rows) > 1 else (_number(ours), _number(theirs))
        made.append(
            f"| {line.title} | {line.figure} | {shown[0]} | {shown[1]} | {_number(middle)} "
            f"| {_number(between.low)} to {_number(between.high)} |"
        )
    return made


def _pair(line: Line, run: Run) -> tuple[float, float]:
    """Return two figures from one run, FlintMQ's and RocketMQ's.

    The caller divides the first figure by the second. For a line of the table that combines several rows, the first figure is
    the geometric mean of the rows' ratios, and the second is 1.
    """
    found = []
    for row in line.rows:
        entry = run.get(f"{line.flush} {row}", {}).get(line.key, {})
        if not {"ours", "theirs"} <= entry.keys():
            raise ValueError(f"a run has no {line.key} of the row {row} ({line.flush})")
        found.append((float(entry["ours"]), float(entry["theirs"])))
    if len(found) == 1:
        return found[0]
    return statistics.geometric_mean([mine / other for mine, other in found]), 1.0


def _number(value: float) -> str:
    """Return a number as text with three significant digits; from 100 on as a whole number with commas."""
    return f"{value:,.0f}" if value >= 100 else f"{float(f'{value:.3g}'):g}" if value >= 10 else f"{value:.2f}"


def with_table(text: str, lines: Sequence[str]) -> str:
    """Return the text of README.md with new lines in its table of numbers. Raises ``ValueError`` if the text has no such
    table."""
    found = re.search(r"^\| row \| figure \| FlintMQ \|.*?(?=^\n)", text, re.M | re.S)
    if found is None:
        raise ValueError("README.md has no table that begins with '| row | figure | FlintMQ |'")
    return text[: found.start()] + "\n".join(lines) + "\n" + text[found.end() :]


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compares FlintMQ with other brokers of RocketMQ's protocol: all get the same load in turn, and each round gives ratios.

    tools/bench_compare.py --against HOST:9876 --against-pid PID [--rows send-4x8,consume] [--json]

Without ``--namesrv`` a FlintMQ is started for the comparison. ``tools/against_java.sh`` starts the Java broker as well.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from against_java.in_process import put_us
from against_java.versus import ROWS, Row, RowSpec, Setting, Side, compare_row, geometric_means, started_by

from flintmq.core.errors import FlintError
from flintmq.programs.cli.bench_target import broker_to_measure, runner
from flintmq.programs.cli.connect import checked_name_servers
from flintmq.programs.cli.exits import CommandError, ExitCode, finished, warn
from flintmq.programs.cli.output import print_json, print_table

ROW_NAMES = (
    "memory-idle, send-4x1, send-4x8, send-4x64, send-32x1, batch-32, consume, latency-200, latency-2000, memory, in-process, "
    "start; with --client java-sync-THREADS-BYTES, java-async, java-oneway, java-batch, java-backlog, java-latency-RATE"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the brokers that the command line names with FlintMQ. Returns the exit code."""
    words = parser().parse_args(arguments)
    return finished(lambda: compare(words))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; ``tools/against_java.sh`` passes its options on to this command."""
    made = argparse.ArgumentParser("bench_compare.py", description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--against", metavar="HOST:PORT", help="the name server of the other broker")
    made.add_argument("--against-pid", type=int, metavar="PID", help="the other broker's process")
    made.add_argument("--also", metavar="HOST:PORT", help="the name server of a third broker, such as a single FlintMQ")
    made.add_argument("--also-pid", type=int, metavar="PID", help="the third broker's process")
    made.add_argument(
        "-n", "--namesrv", metavar="HOST:PORT", help="the name server of the FlintMQ to measure; else one is started"
    )
    made.add_argument(
        "--pid", type=int, help="the process of the FlintMQ that -n names; its child processes count, too"
    )
    made.add_argument("--rows", metavar="A,B,...", help=f"some of: {ROW_NAMES}")
    made.add_argument("--seconds", type=float, default=3.0, metavar="S", help="length of one measurement")
    made.add_argument("--warmup", type=float, default=1.0, metavar="S", help="warm-up before each measurement")
    made.add_argument("--rounds", type=int, default=3, metavar="R", help="rounds of each row, the brokers in turn")
    made.add_argument("--against-start", default="", metavar="COMMAND", help="starts the other broker (row 'start')")
    made.add_argument(
        "--against-stop", default="", metavar="COMMAND", help="stops the other broker; also before its first start"
    )
    made.add_argument(
        "--client",
        default="",
        metavar="COMMAND",
        help="a Java client like the kit's bench.sh, for the rows that need one",
    )
    made.add_argument(
        "--generator", default="", metavar="COMMAND", help="a program like loadgen.c, for the rows of single sends"
    )
    made.add_argument(
        "--set", action="append", dest="settings", metavar="KEY=VALUE", help="a setting of the FlintMQ started here"
    )
    made.add_argument(
        "--generators", type=int, default=1, metavar="N", help="how many generators send at the same time"
    )
    made.add_argument("--json", action="store_true", help="one line per row and no table")
    made.add_argument("--loop", default="auto", metavar="NAME", help="the client's event loop: auto, asyncio or uvloop")
    return made


def compare(words: argparse.Namespace) -> None:
    """Measure every chosen row on FlintMQ and the other brokers, and print the ratios."""
    chosen = _rows(words.rows, bool(words.client))
    other = None
    if words.against is not None:
        other = Side("the other broker", checked_name_servers(words.against), words.against_pid)
    setting = _setting(words, other)
    compared = {} if other is None else {"theirs": other}
    if words.also is not None:
        compared["also"] = Side("the third broker", checked_name_servers(words.also), words.also_pid)
    found: list[Row] = []
    with broker_to_measure(words.namesrv, words.pid, words.settings or ()) as (name_server, own_pid):
        ours = Side("FlintMQ", name_server, own_pid)
        for spec in chosen:
            if spec.name == "start":
                _stop_other(other, words.against_stop)
            found.append(compare_row(spec, setting, {"ours": ours, **compared}, words.rounds))
            print_json(found[-1].as_json()) if words.json else warn(f"measured {spec.name}: {spec.title}")
    means = geometric_means(found)
    if not words.json:
        print_table(
            ("row", "figure", "FlintMQ#", "other#", "ratio#", "95 %#", *(_ALSO if "also" in compared else ())),
            [line for row in found for line in _lines(row, "also" in compared)] + _mean_lines(means),
            title=f"{words.rounds} rounds of {words.seconds:g} s, 128 bytes; medians; a ratio below 1: less than the other's",
        )
    elif means:
        print_json(means)
    for row in found:
        if row.why_not:
            warn(f"{row.spec.name}: {row.why_not}")


def _setting(words: argparse.Namespace, other: Side | None) -> Setting:
    run = runner(words.loop)
    starts: dict[str, Any] = {"FlintMQ": functools.partial(_own_start, words.settings or ())}
    if other is not None and words.against_start:
        starts[other.name] = functools.partial(started_by, words.against_start, words.against_stop, other.name_server)
    return Setting(
        run=run,
        seconds=words.seconds,
        warmup_s=words.warmup,
        starts=starts,
        in_process=lambda: {"put_us": round(run(put_us(words.seconds, 128)), 3)},
        client=words.client,
        generator=words.generator,
        generators=words.generators,
    )


def _rows(wanted: str | None, has_client: bool) -> tuple[RowSpec, ...]:
    if wanted is None:
        return tuple(spec for spec in ROWS if has_client or not spec.needs_client)
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    missing = [name for name in names if name not in {spec.name for spec in ROWS}]
    if missing or not names:
        raise CommandError(f"--rows: there is no row '{', '.join(missing)}'; the rows are {ROW_NAMES}", ExitCode.USAGE)
    chosen = tuple(spec for spec in ROWS if spec.name in names)
    if not has_client and any(spec.needs_client for spec in chosen):
        raise CommandError("rows of the Java client need --client COMMAND", ExitCode.USAGE)
    return chosen


@contextlib.contextmanager
def _own_start(settings: Sequence[str]) -> Iterator[str]:
    with broker_to_measure(None, None, settings) as (name_server, _pid):
        yield name_server


def _stop_other(other: Side | None, stop: str) -> None:
    """Stop the broker with which FlintMQ is compared, if the command line gives a command for it. The next measurement is the
    time of a broker's start, so the broker must not run. Errors of the command are ignored."""
    if other is not None and stop:
        with contextlib.suppress(FlintError), started_by("true", stop, other.name_server):
            pass


_ALSO = ("third#", "ratio to it#", "95 % of it#")


def _lines(row: Row, with_third: bool) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    document = row.as_json()
    for name in row.spec.figures:
        entry = document.get(name, {})
        if entry:
            cells = [_short(entry.get(which)) for which in ("ours", "theirs", "ratio")] + [_bounds(entry, "ratio_95")]
            if with_third:
                cells += [_short(entry.get(which)) for which in ("also", "ratio_also")]
                cells.append(_bounds(entry, "ratio_also_95"))
            found.append(("" if found else row.spec.title, name, *cells))
    return found or [(row.spec.title, "not measured", *["-"] * (7 if with_third else 4))]


def _bounds(entry: dict[str, Any], name: str) -> str:
    return "{:.3g} to {:.3g}".format(*entry[name]) if name in entry else "-"


def _mean_lines(means: dict[str, Any]) -> list[tuple[object, ...]]:
    title = f"geometric mean of {means.get('rows')} rows of the Java client"
    names = [name for name, value in means.items() if isinstance(value, dict)]
    return [("" if at else title, name, "-", "-", _short(means[name]["ratio"]), "-") for at, name in enumerate(names)]


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())

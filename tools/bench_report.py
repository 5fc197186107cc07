#!/usr/bin/env python3
"""Compares two reports that ``flintmq bench flush --report`` wrote: what was different, and the ratio of each figure.

tools/bench_report.py before.json after.json [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report_diff import ReportDiff, check_report, diff_reports

from flintmq.plugins.cli.exits import CommandError, ExitCode, finished, warn
from flintmq.plugins.cli.output import print_json, print_table


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two reports. Returns the exit code."""
    made = argparse.ArgumentParser("bench_report.py", description=(__doc__ or "").partition("\n")[0])
    made.add_argument("first", type=Path, metavar="A.json", help="the base")
    made.add_argument("second", type=Path, metavar="B.json", help="what is compared with it")
    made.add_argument("--json", action="store_true", help="print JSON instead of tables")
    words = made.parse_args(arguments)
    return finished(lambda: report(words.first, words.second, words.json))


def report(first: Path, second: Path, as_json: bool) -> None:
    """Print what differs between two reports. Raises ``CommandError`` for a file that holds no report."""
    try:
        found = diff_reports(check_report(_read(first), str(first)), check_report(_read(second), str(second)))
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{error}" if isinstance(error, ValueError) else f"not a whole report: {error!r}") from error
    if as_json:
        print_json(found.as_json())
        return
    _print_tables(found, first, second)
    if not found.same_machine:
        warn("these were not made on the same machine and disk: the ratios say little about the strategies")


def _print_tables(found: ReportDiff, first: Path, second: Path) -> None:
    if found.differences:
        print_table(
            ("different", str(first), str(second)),
            [(one.name, _shown(one.first), _shown(one.second)) for one in found.differences],
        )
    print_table(
        ("strategy", "figure", "A#", "B#", "B / A#", "certain"),
        [
            (one.strategy, one.figure, f"{one.first:.5g}", f"{one.second:.5g}", f"{one.ratio:.3f}", _yes(one.certain))
            for one in found.figures
        ],
        title="certain: the 95 % intervals of the two do not touch",
    )
    for which, labels in ((first, found.only_first), (second, found.only_second)):
        if labels:
            print(f"only in {which}: {', '.join(labels)}")


def _yes(certain: bool) -> str:
    return "yes" if certain else ""


def _shown(value: Any) -> str:
    return "-" if value is None else str(value)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", ExitCode.USAGE) from error
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}", ExitCode.USAGE) from error


if __name__ == "__main__":
    sys.exit(main())

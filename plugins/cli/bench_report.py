"""``flintmq bench report``: compare two reports of ``bench flush``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from flintmq.plugins.bench.report_diff import ReportDiff, check_report, diff_reports
from flintmq.plugins.cli import options
from flintmq.plugins.cli.exits import CommandError, ExitCode, warn
from flintmq.plugins.cli.output import print_json, print_table
from flintmq.plugins.cli.parser import Command


@click.command(cls=Command)
@click.argument("first", type=options.PATH, metavar="A.json", help="The base.")
@click.argument("second", type=options.PATH, metavar="B.json", help="What is compared with it.")
@options.as_json
def report(first: Path, second: Path, as_json: bool) -> None:
    """Compare two reports that 'bench flush --report' wrote: what was different, and the ratio of each figure."""
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

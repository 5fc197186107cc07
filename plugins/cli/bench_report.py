"""``flintmq bench report``: two reports of ``bench flush``, compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from flintmq.plugins.cli import options
from flintmq.plugins.cli.exits import CommandError, ExitCode


def report(
    first: Annotated[Path, typer.Argument(metavar="A.json", help="The base.")],
    second: Annotated[Path, typer.Argument(metavar="B.json", help="What is compared with it.")],
    as_json: options.AsJson = False,
) -> None:
    """Compare two reports that 'bench flush --report' wrote: what was different, and the ratio of each figure."""
    from flintmq.plugins.bench.report_diff import check_report, diff_reports
    from flintmq.plugins.cli.exits import warn
    from flintmq.plugins.cli.output import print_json, print_table

    try:
        found = diff_reports(check_report(_read(first), str(first)), check_report(_read(second), str(second)))
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{error}" if isinstance(error, ValueError) else f"not a whole report: {error!r}") from error
    if as_json:
        print_json(found.as_json())
        return
    if found.differences:
        print_table(
            ("different", str(first), str(second)),
            [(one.name, _shown(one.first), _shown(one.second)) for one in found.differences],
        )
    print_table(
        ("strategy", "figure", "A#", "B#", "B / A#", "certain"),
        [
            (
                one.strategy,
                one.figure,
                f"{one.first:.5g}",
                f"{one.second:.5g}",
                f"{one.ratio:.3f}",
                "yes" if one.certain else "",
            )
            for one in found.figures
        ],
        title="certain: the 95 % intervals of the two do not touch",
    )
    for which, labels in ((first, found.only_first), (second, found.only_second)):
        if labels:
            print(f"only in {which}: {', '.join(labels)}")
    if not found.same_machine:
        warn("these were not made on the same machine and disk: the ratios tell little about the strategies")


def _shown(value: Any) -> str:
    return "-" if value is None else str(value)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", ExitCode.USAGE) from error
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}", ExitCode.USAGE) from error

"""``flintmq bench flush`` compares flush strategies on a disk under a load; ``flintmq bench report`` compares two reports."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import click

from flintmq.programs.bench.figures import Estimate
from flintmq.programs.bench.flush_report import (
    INSTALL_MATPLOTLIB,
    PICTURE_FORMATS,
    FlushReport,
    FlushSummary,
    ReportDiff,
    bench_flush,
    check_report,
    diff_reports,
    draw_flush,
)
from flintmq.programs.bench.flush_round import FlushPlan, parse_contender
from flintmq.programs.cli import options
from flintmq.programs.cli.bench_target import loop_option, runner, seconds_option, size_option, warmup_option
from flintmq.programs.cli.exits import CommandError, ExitCode, warn
from flintmq.programs.cli.output import console, print_json, print_line, print_table
from flintmq.programs.cli.parser import Command

_COLUMNS: Final = {
    "messages/s#": "rate",
    "p50 ms#": "p50_ms",
    "p99 ms#": "p99_ms",
    "p99.9 ms#": "p999_ms",
    "syncs/s#": "syncs_per_s",
    "msgs/sync#": "messages_per_sync",
    "bytes/msg#": "written_bytes_per_message",
    "CPU µs/msg#": "cpu_us",
}
_RATIO_COLUMNS: Final = {
    "messages/s#": "rate",
    "p50#": "p50_ms",
    "p99#": "p99_ms",
    "CPU/msg#": "cpu_us",
    "bytes/msg#": "written_bytes_per_message",
}
DEFAULT_STRATEGIES = "group_commit,flush_real_time,commit_real_time"


@click.command(cls=Command)
@click.option(
    "--strategies",
    "-s",
    default=DEFAULT_STRATEGIES,
    metavar="A,B,...",
    help="Strategies, with settings if needed: group_commit:interval_ms=1",
)
@click.option(
    "--threads", type=click.IntRange(min=1, max=10000), default=32, metavar="N", help="Writers; each waits for its put."
)
@size_option(1024)
@click.option("--batch", type=click.IntRange(min=1, max=4096), default=1, metavar="K", help="Messages in one put.")
@seconds_option(2.0, "Measured time of a round.")
@warmup_option(0.5, "Seconds of load before the measured time, in each round.")
@click.option(
    "--rounds", type=click.IntRange(min=1), default=5, metavar="R", help="Rounds; each measures every strategy once."
)
@click.option(
    "--quiet",
    "quiet_s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="S",
    help="Wait up to S seconds for a quiet machine before each measurement.",
)
@click.option(
    "--dir", "directory", type=options.PATH, metavar="DIR", help="The folder for stores, on the disk to measure."
)
@click.option("--plugin", multiple=True, metavar="MODULE[:OBJECT]", help="A plugin that is not installed.")
@options.settings
@click.option(
    "--power-cut",
    "power_cut_s",
    type=click.FloatRange(min=0),
    default=1.0,
    metavar="S",
    help="Time on a simulated disk before its power is cut.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON per strategy, then a summary line.")
@click.option("--report", type=options.PATH, metavar="FILE", help="Write the full report to this file, as JSON.")
@click.option("--plot", type=options.PATH, metavar="FILE.svg", help="Draw the figures: .svg, .png or .pdf.")
@loop_option
def flush(
    strategies: str,
    directory: Path | None,
    plugin: tuple[str, ...],
    settings: tuple[str, ...],
    as_json: bool,
    report: Path | None,
    plot: Path | None,
    loop: str,
    **load: Any,
) -> None:
    _check_plot(plot)
    if plugin:
        settings = (f"plugins={','.join(map(_plugin, plugin))}", *settings)
    with _folder(directory) as folder:
        plan = FlushPlan(contenders=_contenders(strategies), folder=folder, settings=settings, **load)
        with _progress() as tell:
            made = bench_flush(plan, runner(loop), loop, progress=tell)
    document = made.as_json()
    if report is not None:
        with _written(report):
            report.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    if plot is not None:
        with _written(plot):
            draw_flush(document, plot)
    if as_json:
        _print_lines(made, document)
    else:
        _print_tables(made)


def _plugin(target: str) -> str:
    """Return the name of a plugin in the form of the configuration, ``package.module:object``.

    The name of a module, ``package.module``, becomes ``package:module``, because the module is an object of its package. The
    module is imported.
    """
    if ":" in target or "." not in target:
        return target
    try:
        importlib.import_module(target)
    except Exception as error:
        # Importing a plugin runs the plugin's code, which can raise any exception.
        raise CommandError(f"--plugin {target}: {type(error).__name__}: {error}", ExitCode.USAGE) from error
    return ":".join(target.rsplit(".", 1))


def _contenders(text: str) -> Any:
    try:
        found = tuple(parse_contender(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise CommandError(f"--strategies: {error}", ExitCode.USAGE) from error
    if not found:
        raise CommandError("--strategies names none", ExitCode.USAGE)
    if len({one.label for one in found}) < len(found):
        raise CommandError("--strategies names a strategy twice", ExitCode.USAGE)
    return found


@contextlib.contextmanager
def _folder(directory: Path | None) -> Iterator[Path]:
    """Yield the folder for the stores of a benchmark: the given folder, or a temporary folder that is removed at the end."""
    if directory is not None:
        if not directory.is_dir():
            raise CommandError(f"--dir: there is no folder {directory}; name an existing folder", ExitCode.USAGE)
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as made:
        yield Path(made)


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    """Yield a function that shows the current step on a terminal's last line. It does nothing if stderr is not a terminal."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda _text: None
        return
    with screen.status("starting") as status:
        yield lambda text: status.update(text)


def _check_plot(plot: Path | None) -> None:
    """Check, before anything is measured, that the picture of the results can be drawn. Raises CommandError if it cannot."""
    if plot is None:
        return

    if plot.suffix.lower() not in PICTURE_FORMATS:
        raise CommandError(f"--plot: '{plot.name}' ends with none of {', '.join(PICTURE_FORMATS)}", ExitCode.USAGE)
    if importlib.util.find_spec("matplotlib") is None:
        raise CommandError(INSTALL_MATPLOTLIB, ExitCode.USAGE)


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error


def _print_lines(made: FlushReport, document: dict[str, Any]) -> None:
    for one in made.strategies:
        print_json(one.as_json())
    keys = ("made", "seconds", "environment", "plan", "config", "doubts")
    print_json({"bench": "flush summary", **{key: document[key] for key in keys}})


def _print_tables(made: FlushReport) -> None:
    label = made.strategies[0].contender.label
    _print_estimates(_COLUMNS, {one.contender.label: one.figures for one in made.strategies}, _title(made.plan))
    print_table(
        (
            "strategy",
            "not on disk#",
            "= ms of load#",
            "kill -9#",
            "power cut, simulated#",
            "of acknowledged#",
            "refused#",
        ),
        [_losses(one) for one in made.strategies],
        title="Acknowledged messages at risk: the most at any acknowledgement, and what a power cut took",
    )
    if len(made.strategies) > 1:
        ratios = {one.contender.label: one.ratios for one in made.strategies[1:]}
        _print_estimates(_RATIO_COLUMNS, ratios, f"Ratio to {label}, round by round")
    disk = made.environment["disk"]
    print_line(
        f"{made.environment['cpu']}, {made.environment['cores']} cores, {made.environment['system']}, Python "
        f"{made.environment['python']}; {disk['filesystem']} on {disk['device']}; ± is the 95 % interval of the mean"
    )
    for one in made.strategies:
        if one.power_cut is not None and one.power_cut.why_not:
            warn(f"{one.contender.label}: no power cut could be tried: {one.power_cut.why_not}")
    for doubt in made.doubts:
        warn(doubt)


def _print_estimates(columns: Mapping[str, str], found: Mapping[str, Mapping[str, Estimate]], title: str) -> None:
    """Print a table with a row for each flush strategy. ``columns`` maps headings to names of figures."""
    rows = [
        (label, *(plus_minus(figures[name]) if name in figures else "-" for name in columns.values()))
        for label, figures in found.items()
    ]
    print_table(("strategy", *columns), rows, title=title)


def _title(plan: FlushPlan) -> str:
    put = f"{plan.size_bytes} bytes" if plan.batch == 1 else f"{plan.batch} × {plan.size_bytes} bytes"
    return f"{plan.threads} writers, {put} a put, {plan.rounds} interleaved rounds of {plan.seconds:g} s"


def _losses(one: FlushSummary) -> tuple[object, ...]:
    cut = one.power_cut
    tried = cut is not None and cut.lost_messages is not None
    return (
        one.contender.label,
        f"{one.worst['unsynced_messages']:,.0f}",
        f"{one.worst['unsynced_ms']:,.1f}",
        f"{one.worst['uncommitted_messages']:,.0f}",
        cut.lost_messages if tried and cut is not None else "-",
        cut.acknowledged_messages if tried and cut is not None else "-",
        one.errors,
    )


def plus_minus(value: Estimate) -> str:
    """Return a mean and half its confidence interval, rounded to significant digits."""
    if not math.isfinite(value.high):
        return _number(value.mean)
    return f"{_number(value.mean)} ±{_number(value.half_width)}"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


@click.command(cls=Command)
@click.argument("first", type=options.PATH, metavar="A.json", help="The report to compare with.")
@click.argument("second", type=options.PATH, metavar="B.json", help="The report to compare.")
@options.as_json
def report(first: Path, second: Path, as_json: bool) -> None:
    try:
        found = diff_reports(check_report(_read(first), str(first)), check_report(_read(second), str(second)))
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{error}" if isinstance(error, ValueError) else f"not a whole report: {error!r}") from error
    if as_json:
        print_json(attrs.asdict(found))
        return
    _print_diff(found, first, second)
    if not found.same_machine:
        warn("these were not made on the same machine and disk: the ratios say little about the strategies")


def _print_diff(found: ReportDiff, first: Path, second: Path) -> None:
    if found.differences:
        differing = [
            [one.name, *("-" if value is None else str(value) for value in (one.first, one.second))]
            for one in found.differences
        ]
        print_table(("different", str(first), str(second)), differing)
    figures = [
        [one.strategy, one.figure, f"{one.first:.5g}", f"{one.second:.5g}", f"{one.ratio:.3f}", "yes" * one.certain]
        for one in found.figures
    ]
    title = "certain: the 95 % intervals of the two do not touch"
    print_table(("strategy", "figure", "A#", "B#", "B / A#", "certain"), figures, title=title)
    for which, labels in ((first, found.only_first), (second, found.only_second)):
        if labels:
            print_line(f"only in {which}: {', '.join(labels)}")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", ExitCode.USAGE) from error
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}", ExitCode.USAGE) from error

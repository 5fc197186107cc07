"""Two reports of ``flintmq bench flush`` side by side: what differed besides the figures, and the figures' ratios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from flintmq.plugins.bench.flush_bench import FORMAT, KIND
from flintmq.plugins.bench.flush_summary import RATIOS

SAME_MACHINE: Final = ("cpu", "cores", "memory_mib", "system", "disk.filesystem", "disk.device", "disk.options")
"""When one of these differs, figures are of two machines."""


@attrs.frozen
class Difference:
    """One thing that was not the same."""

    name: str
    first: Any
    second: Any


@attrs.frozen
class Compared:
    """A figure of a strategy in both."""

    strategy: str
    figure: str
    first: float
    second: float
    ratio: float
    """The second over the first."""
    certain: bool
    """Whether the two 95 % intervals do not touch."""


@attrs.frozen
class ReportDiff:
    """Everything that a comparison tells."""

    same_machine: bool
    differences: tuple[Difference, ...]
    figures: tuple[Compared, ...]
    only_first: tuple[str, ...]
    """Strategies that only the first report has."""
    only_second: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return attrs.asdict(self)


def check_report(document: Any, name: str) -> Mapping[str, Any]:
    """Return a report that ``--report`` wrote. Raises ValueError for another document."""
    if not isinstance(document, dict) or document.get("report") != KIND:
        raise ValueError(f"{name} is not a report of '{KIND}'")
    if document.get("format") != FORMAT:
        raise ValueError(f"{name} has format {document.get('format')}, this program knows {FORMAT}")
    return document


def diff_reports(first: Mapping[str, Any], second: Mapping[str, Any]) -> ReportDiff:
    """Compares two reports, of which the first one is the base."""
    environments = dict(_flat(first["environment"], "")), dict(_flat(second["environment"], ""))
    differences = [
        *_differences("", _without_folder(environments[0]), _without_folder(environments[1])),
        *_differences("plan.", first["plan"], second["plan"]),
        *_differences("config.", _configs(first), _configs(second)),
    ]
    mine = {one["strategy"]: one for one in first["strategies"]}
    other = {one["strategy"]: one for one in second["strategies"]}
    figures = [
        _compared(label, name, mine[label][name], other[label][name])
        for label in mine
        if label in other
        for name in (*RATIOS, "p999_ms", "syncs_per_s")
        if mine[label][name]["mean"] > 0
    ]
    return ReportDiff(
        same_machine=all(environments[0].get(name) == environments[1].get(name) for name in SAME_MACHINE),
        differences=tuple(differences),
        figures=tuple(figures),
        only_first=tuple(label for label in mine if label not in other),
        only_second=tuple(label for label in other if label not in mine),
    )


def _compared(label: str, name: str, first: Mapping[str, float], second: Mapping[str, float]) -> Compared:
    bounded = first["high"] >= 0 and second["high"] >= 0  # -1 stands for infinity
    apart = first["high"] < second["low"] or second["high"] < first["low"]
    return Compared(
        label, name, first["mean"], second["mean"], round(second["mean"] / first["mean"], 4), bounded and apart
    )


def _configs(report: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by strategy and name; what stands in the plan's own settings is the same for all."""
    return {f"{label}.{name}": value for label, found in report["config"].items() for name, value in found.items()}


def _flat(tree: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def _without_folder(flat: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flat.items() if name != "disk.folder"}


def _differences(before: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Difference]:
    for name in dict.fromkeys((*first, *second)):
        if first.get(name) != second.get(name):
            yield Difference(before + name, first.get(name), second.get(name))

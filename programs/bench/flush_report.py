"""Runs the rounds of a flush benchmark, in which all flush strategies are measured. Makes a report of the results, compares two
reports, and draws a report as a picture."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.config import load_config
from flintmq.config.loading.show import rows
from flintmq.programs.bench.figures import Estimate, estimate, ratio
from flintmq.programs.bench.flush_round import Contender, FlushPlan, FlushRound, run_round
from flintmq.programs.bench.machine import MEMORY_FILE_SYSTEMS, environment, wait_until_quiet
from flintmq.programs.bench.power_cut import PowerCut, power_cut

KIND: Final = "flintmq bench flush"
FORMAT: Final = 1
"""The version of the format of a flush benchmark's report."""


@attrs.frozen
class FlushReport:
    """The result of a benchmark of all flush strategies."""

    plan: FlushPlan
    environment: dict[str, Any]
    rounds: tuple[FlushRound, ...]
    strategies: tuple[FlushSummary, ...]
    doubts: tuple[str, ...]
    config: dict[str, dict[str, str]]
    """Settings of each strategy's broker that differ from the defaults, keyed by strategy."""
    seconds: float
    """Duration of the whole benchmark in seconds."""

    def as_json(self) -> dict[str, Any]:
        """Return the document that ``--report`` writes and ``flintmq bench report`` compares."""
        return {
            "report": KIND,
            "format": FORMAT,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 1),
            "environment": self.environment,
            "plan": self.plan.as_json(),
            "config": self.config,
            "doubts": list(self.doubts),
            "strategies": [one.as_json() | {"latency_cdf_ms": [list(p) for p in one.cdf]} for one in self.strategies],
            "rounds": [one.as_json() for one in self.rounds],
        }


def bench_flush(
    plan: FlushPlan,
    run: Callable[[Coroutine[Any, Any, Any]], Any],
    loop: str,
    *,
    progress: Callable[[str], None] = lambda _text: None,
) -> FlushReport:
    """Run every strategy, and return the report. Takes slightly longer than strategies x rounds x (seconds + warm-up).

    Args:
        plan: the load and the rounds.
        run: runs coroutines on an event loop.
        loop: the name of the event loop.
        progress: called with the current step.

    Raises:
        ConfigError, PluginError: a strategy is unknown or a setting is not valid. Raised before anything is measured.
        StoreError: a store cannot be created.
    """
    begin_s = time.monotonic()
    config = {one.label: _changed(plan.overrides(one)) for one in plan.contenders}
    cuts: dict[str, PowerCut] = {}
    if plan.power_cut_s:
        for contender in plan.contenders:
            progress(f"cutting the power of {contender.label}")
            cuts[contender.label] = run(power_cut(plan, contender))
    rounds: list[FlushRound] = []
    for number in range(plan.rounds):
        for place, contender in enumerate(plan.order(number)):
            progress(f"round {number + 1} of {plan.rounds}: {contender.label}")
            wait_until_quiet(plan.quiet_s, NOISE_SHARE)
            rounds.append(run(run_round(plan, contender, number, place)))
    found = environment(plan.folder) | {"loop": loop}
    return FlushReport(
        plan=plan,
        environment=found,
        rounds=tuple(rounds),
        strategies=summarize(plan, rounds, cuts),
        doubts=tuple(doubts(plan, rounds, found)),
        config=config,
        seconds=time.monotonic() - begin_s,
    )


def _changed(overrides: Sequence[str]) -> dict[str, str]:
    """Return the benchmark's settings that are not defaults, in the form of ``flintmq config show``."""
    return {row.key: row.value for row in rows(load_config(None, overrides, {})) if row.origin != "default"}


FIGURES: Final = (
    "rate",
    "p50_ms",
    "p99_ms",
    "p999_ms",
    "syncs_per_s",
    "messages_per_sync",
    "written_mib_per_s",
    "written_bytes_per_message",
    "cpu_us",
)
"""Names of the figures of which a summary has the mean over all rounds, with a confidence interval."""
WORST: Final = ("unsynced_messages", "unsynced_ms", "uncommitted_messages")
"""Names of the figures of which a summary has the maximum of all rounds."""
RATIOS: Final = ("rate", "p50_ms", "p99_ms", "cpu_us", "written_bytes_per_message")
NOISE_SHARE: Final = 0.2
"""Maximum share of the machine's processors that other processes may use during a round. Beyond this share the round's figures
are in doubt."""
CDF_POINTS: Final = 400


@attrs.frozen
class FlushSummary:
    """The summary of one flush strategy over all rounds."""

    contender: Contender
    figures: Mapping[str, Estimate]
    worst: Mapping[str, float]
    ratios: Mapping[str, Estimate]
    """Ratios of this strategy's figures to those of the first strategy, keyed by figure; empty for the first strategy."""
    errors: int
    cdf: Sequence[tuple[float, float]]
    """Points of the latency distribution: (latency in ms, share of all puts that took at most that latency)."""
    power_cut: PowerCut | None

    def as_json(self) -> dict[str, Any]:
        """Return the summary of a flush strategy as JSON."""
        return {
            "bench": "flush",
            "strategy": self.contender.label,
            **{name: value.as_json() for name, value in self.figures.items()},
            **{name: round(value, 2) for name, value in self.worst.items()},
            "ratio_to_first": {name: value.as_json() for name, value in self.ratios.items()},
            "errors": self.errors,
            "power_cut": attrs.asdict(self.power_cut) if self.power_cut is not None else None,
        }


def summarize(plan: FlushPlan, rounds: Sequence[FlushRound], cuts: Mapping[str, PowerCut]) -> tuple[FlushSummary, ...]:
    """Return the summaries of the flush strategies, in the order of the strategies."""
    of = {c.label: [one for one in rounds if one.label == c.label] for c in plan.contenders}
    first = of[plan.contenders[0].label]
    found = []
    for contender in plan.contenders:
        mine = of[contender.label]
        figures = {name: estimate(_values(mine, name)) for name in FIGURES}
        ratios = {name: ratio(_values(mine, name), _values(first, name)) for name in RATIOS if mine is not first}
        found.append(
            FlushSummary(
                contender=contender,
                figures=figures,
                worst={name: max(_values(mine, name)) for name in WORST},
                ratios={name: value for name, value in ratios.items() if value is not None},
                errors=sum(one.errors for one in mine),
                cdf=_cdf([one.latencies_s for one in mine]),
                power_cut=cuts.get(contender.label),
            )
        )
    return tuple(found)


def _values(rounds: Sequence[FlushRound], figure: str) -> list[float]:
    return [getattr(one, figure) for one in rounds]


def _cdf(parts: Sequence[array[float]]) -> list[tuple[float, float]]:
    """Return points of the latency distribution as (ms, share of the acknowledgements). Half of the points lie in the slowest
    tenth of the acknowledgements."""
    together = sorted(latency for part in parts for latency in part)
    if not together:
        return []
    half = CDF_POINTS // 2
    shares = [0.9 * n / half for n in range(half)] + [1 - 0.1 * 10 ** (-4 * n / half) for n in range(half + 1)]
    last = len(together) - 1
    return [(round(together[min(last, int(share * len(together)))] * 1000, 5), round(share, 7)) for share in shares]


def doubts(plan: FlushPlan, rounds: Sequence[FlushRound], environment: Mapping[str, Any]) -> list[str]:
    """Return the reasons for which a benchmark's figures may mislead, as sentences for people."""
    found = []
    disk, cores = environment["disk"], environment["cores"] or 1
    if disk["filesystem"] in MEMORY_FILE_SYSTEMS:
        found.append(
            f"{disk['folder']} is {disk['filesystem']}: nothing is ever synced to a disk there; choose one with --dir"
        )
    noisy = sum(1 for one in rounds if one.other_cpu / cores > NOISE_SHARE)
    if noisy:
        most = max(one.other_cpu for one in rounds) / cores
        found.append(
            f"others used up to {most:.0%} of the processors, more than {NOISE_SHARE:.0%} in {noisy} of {len(rounds)} rounds"
        )
    if plan.rounds < 3:
        found.append(
            f"{plan.rounds} rounds tell little about chance: the intervals need three at least, five are better"
        )
    found += [
        f"{label} went a whole round without a sync: longer rounds (--seconds) put more at risk"
        for label in dict.fromkeys(one.label for one in rounds if one.unsynced_ms >= 900 * one.seconds)
    ]
    failed = sum(one.errors for one in rounds)
    if failed:
        found.append(f"{failed} puts were refused or timed out: they are in no figure")
    return found


SAME_MACHINE: Final = ("cpu", "cores", "memory_mib", "system", "disk.filesystem", "disk.device", "disk.options")
"""Names of the facts that are equal in two reports if the reports come from the same machine and disk."""


@attrs.frozen
class Difference:
    """A fact, such as a version or a setting, that differs between two reports of ``flintmq bench flush``."""

    name: str
    first: Any
    second: Any


@attrs.frozen
class Compared:
    """A figure of one flush strategy in two reports."""

    strategy: str
    figure: str
    first: float
    second: float
    ratio: float
    """The second report's value divided by the first report's value."""
    certain: bool
    """Whether the figure certainly differs between the two reports. This is true if the 95 % intervals of the figure in the two
    reports do not overlap."""


@attrs.frozen
class ReportDiff:
    """The comparison of two reports of ``flintmq bench flush``."""

    same_machine: bool
    differences: tuple[Difference, ...]
    figures: tuple[Compared, ...]
    only_first: tuple[str, ...]
    """Strategies that are only in the first report."""
    only_second: tuple[str, ...]


def check_report(document: Any, name: str) -> Mapping[str, Any]:
    """Return a report that ``flintmq bench flush --report`` wrote. Raises ValueError for another document."""
    if not isinstance(document, dict) or document.get("report") != KIND:
        raise ValueError(f"{name} is not a report of '{KIND}'")
    if document.get("format") != FORMAT:
        raise ValueError(f"{name} has format {document.get('format')}, this program knows {FORMAT}")
    return document


def diff_reports(first: Mapping[str, Any], second: Mapping[str, Any]) -> ReportDiff:
    """Compare two reports of ``flintmq bench flush``; the first one is the base of the comparison."""
    facts, other_facts = _facts(first), _facts(second)
    differences = [
        Difference(name, facts.get(name), other_facts.get(name))
        for name in dict.fromkeys((*facts, *other_facts))
        if name != "disk.folder" and facts.get(name) != other_facts.get(name)
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
        same_machine=all(facts.get(name) == other_facts.get(name) for name in SAME_MACHINE),
        differences=tuple(differences),
        figures=tuple(figures),
        only_first=tuple(label for label in mine if label not in other),
        only_second=tuple(label for label in other if label not in mine),
    )


def _compared(label: str, name: str, first: Mapping[str, float], second: Mapping[str, float]) -> Compared:
    # In a report, the upper bound -1 of a confidence interval stands for infinity.
    # If one of the confidence intervals is infinite, the difference between the two means is not certain.
    bounded = first["high"] >= 0 and second["high"] >= 0
    apart = first["high"] < second["low"] or second["high"] < first["low"]
    return Compared(
        label, name, first["mean"], second["mean"], round(second["mean"] / first["mean"], 4), bounded and apart
    )


def _facts(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report's facts by dotted names: the environment, ``plan.…`` and ``config.<strategy>.…``."""
    told = {"plan": report["plan"], "config": report["config"]}
    return {**dict(_flat(report["environment"], "")), **dict(_flat(told, ""))}


def _flat(tree: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


PICTURE_FORMATS: Final = (".svg", ".png", ".pdf")
INSTALL_MATPLOTLIB: Final = "matplotlib is not installed: pip install '.[bench]' in FlintMQ's folder"
_SHARES: Final = (0.5, 0.9, 0.99, 0.999, 0.9999)


def draw_flush(report: dict[str, Any], path: Path) -> None:
    """Draw the report of ``flintmq bench flush``.

    Args:
        report: the document of ``--report``.
        path: the picture's file; its suffix chooses the format.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the suffix is not a supported format.
        OSError: the file cannot be written.
    """
    if path.suffix.lower() not in PICTURE_FORMATS:
        raise ValueError(f"'{path.name}' ends with none of {', '.join(PICTURE_FORMATS)}")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    latency, bars = figure.subplots(1, 2, width_ratios=[3, 2])
    strategies = report["strategies"]
    colors = [f"C{n % 10}" for n in range(len(strategies))]
    for one, color in zip(strategies, colors, strict=True):
        points = [(value, share) for value, share in one["latency_cdf_ms"] if share < 1]
        if points:
            # The cumulative share of puts is plotted as 1 - share on a reversed logarithmic axis.
            # On a logarithmic axis of 1 - share, the ticks for 90 %, 99 % and 99.9 % have equal distances.
            latency.plot(
                [max(v, 1e-4) for v, _ in points], [1 - s for _, s in points], label=one["strategy"], color=color
            )
    latency.set_xscale("log")
    latency.set_yscale("log")
    latency.invert_yaxis()
    latency.set_yticks([1 - share for share in _SHARES], [f"p{share * 100:g}" for share in _SHARES])
    latency.minorticks_off()
    latency.set_xlabel("put to acknowledgement, ms")
    latency.set_title("Latency distribution", loc="left")
    latency.grid(alpha=0.3)
    latency.legend(frameon=False)
    names = [one["strategy"] for one in strategies]
    means = [one["rate"]["mean"] for one in strategies]
    down = [one["rate"]["mean"] - one["rate"]["low"] for one in strategies]
    up = [max(0.0, one["rate"]["high"] - one["rate"]["mean"]) for one in strategies]
    places = range(len(names))
    bars.barh(places, means, xerr=[down, up], color=colors, capsize=4, height=0.6)
    bars.set_yticks(places, names)
    bars.invert_yaxis()
    bars.set_xlim(left=0)
    bars.set_xlabel("messages/s, mean and 95 % interval")
    bars.set_title("Throughput", loc="left")
    bars.grid(alpha=0.3, axis="x")
    figure.suptitle(_caption(report), fontsize=9, x=0.01, ha="left")
    figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)


def _caption(report: dict[str, Any]) -> str:
    plan, made = report["plan"], report["environment"]
    return (
        f"{plan['threads']} writers, {plan['batch']} × {plan['size_bytes']} bytes a put, {plan['rounds']} rounds of "
        f"{plan['seconds']:g} s · {made['disk']['filesystem']} on {made['disk']['device']} · {made['cpu']}, "
        f"{made['cores']} cores · Python {made['python']}"
    )

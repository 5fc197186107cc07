"""Summarises rounds: estimates per strategy, ratios to the first, and doubts about the figures."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from flintmq.plugins.bench.flush_plan import Contender, FlushPlan
from flintmq.plugins.bench.flush_round import FlushRound
from flintmq.plugins.bench.interval import Estimate, estimate, ratio
from flintmq.plugins.bench.machine import MEMORY_FILE_SYSTEMS
from flintmq.plugins.bench.power_cut import PowerCut

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
"""Means over rounds, with intervals."""
WORST: Final = ("unsynced_messages", "unsynced_ms", "uncommitted_messages")
"""The largest of all rounds."""
RATIOS: Final = ("rate", "p50_ms", "p99_ms", "cpu_us", "written_bytes_per_message")
NOISE_SHARE: Final = 0.2
"""A round during which others used a larger share of the machine's processors is in doubt."""
CDF_POINTS: Final = 400


@attrs.frozen
class FlushSummary:
    """One strategy over all rounds."""

    contender: Contender
    figures: Mapping[str, Estimate]
    worst: Mapping[str, float]
    ratios: Mapping[str, Estimate]
    """To the first strategy, round by round; empty for the first."""
    errors: int
    cdf: Sequence[tuple[float, float]]
    """(latency in ms, share of the puts of all rounds that took no longer)."""
    power_cut: PowerCut | None

    def as_json(self) -> dict[str, Any]:
        """Return one line of JSON."""
        return {
            "bench": "flush",
            "strategy": self.contender.label,
            **{name: value.as_json() for name, value in self.figures.items()},
            **{name: round(value, 2) for name, value in self.worst.items()},
            "ratio_to_first": {name: value.as_json() for name, value in self.ratios.items()},
            "errors": self.errors,
            "power_cut": self.power_cut.as_json() if self.power_cut is not None else None,
        }


def summarize(plan: FlushPlan, rounds: Sequence[FlushRound], cuts: Mapping[str, PowerCut]) -> tuple[FlushSummary, ...]:
    """Return the summaries in the order in which the strategies were named."""
    of = {c.label: [one for one in rounds if one.label == c.label] for c in plan.contenders}
    first = of[plan.contenders[0].label]
    found = []
    for contender in plan.contenders:
        mine = of[contender.label]
        figures = {name: estimate([getattr(one, name) for one in mine]) for name in FIGURES}
        ratios: dict[str, Estimate] = {}
        if mine is not first:
            for name in RATIOS:
                compared = ratio([getattr(one, name) for one in mine], [getattr(one, name) for one in first])
                if compared is not None:
                    ratios[name] = compared
        found.append(
            FlushSummary(
                contender=contender,
                figures=figures,
                worst={name: max(getattr(one, name) for one in mine) for name in WORST},
                ratios=ratios,
                errors=sum(one.errors for one in mine),
                cdf=_cdf([one.latencies_s for one in mine]),
                power_cut=cuts.get(contender.label),
            )
        )
    return tuple(found)


def _cdf(parts: Sequence[array[float]]) -> list[tuple[float, float]]:
    """Return points of the distribution, half of them in its last tenth."""
    together = sorted(latency for part in parts for latency in part)
    if not together:
        return []
    half = CDF_POINTS // 2
    shares = [0.9 * n / half for n in range(half)] + [1 - 0.1 * 10 ** (-4 * n / half) for n in range(half + 1)]
    last = len(together) - 1
    return [(round(together[min(last, int(share * len(together)))] * 1000, 5), round(share, 7)) for share in shares]


def doubts(plan: FlushPlan, rounds: Sequence[FlushRound], environment: Mapping[str, Any]) -> list[str]:
    """Return why these figures may not be what they seem, for people."""
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

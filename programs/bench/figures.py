"""Statistics of runs: percentiles, ratios of medians, and confidence intervals by Student's t."""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Sequence
from typing import Any, Final, Protocol

import attrs

_T_975: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""The 97.5 % quantile of Student's t for 1 to 30 degrees of freedom."""
_T_975_MANY: Final = 1.96


@attrs.frozen
class Estimate:
    """A mean and its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the width of the confidence interval, which reports print after the sign ±. If the interval is asymmetric, this
        is the distance from the mean to the farther bound."""
        return max(self.high - self.mean, self.mean - self.low)

    def as_json(self) -> dict[str, float]:
        return {"mean": _short(self.mean), "low": _short(self.low), "high": _short(self.high)}


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of the figures of some rounds, with its confidence interval. For one round the interval has no upper
    bound."""
    mean, half = statistics.fmean(values), _half_width(values)
    return Estimate(mean, max(0.0, mean - half), mean + half)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Estimate | None:
    """Return the geometric mean of the ratios ``ours / theirs`` of all rounds, with a confidence interval that is computed from
    the ratios' logarithms. The result is None without rounds, or if a value is not positive.

    Args:
        ours, theirs: the values of the two compared programs, one value of each program per round. Only values of the same
            round are divided by each other, because the load of the machine by other programs is similar within a round.
    """
    pairs = list(zip(ours, theirs, strict=True))
    if not pairs or any(mine <= 0 or other <= 0 for mine, other in pairs):
        return None
    logs = [math.log(mine / other) for mine, other in pairs]
    mean, half = statistics.fmean(logs), _half_width(logs)
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def _half_width(values: Sequence[float]) -> float:
    """Return half of a confidence interval's width; infinity for one value."""
    if len(values) < 2:
        return math.inf
    freedom = len(values) - 1
    t = _T_975[freedom - 1] if freedom <= len(_T_975) else _T_975_MANY
    return t * statistics.stdev(values) / math.sqrt(len(values))


def _short(value: float) -> float:
    """Return a number rounded to five significant digits; -1 for infinity, which JSON cannot represent."""
    return float(f"{value:.5g}") if math.isfinite(value) else -1.0


def percentile_ms(sorted_latencies_s: Sequence[float] | array[float], share: float) -> float:
    """Return the latency in ms that a given share of the requests does not exceed; 0 if no request was made."""
    if not sorted_latencies_s:
        return 0.0
    return round(sorted_latencies_s[min(len(sorted_latencies_s) - 1, int(len(sorted_latencies_s) * share))] * 1000, 4)


class Measured(Protocol):
    """The result of a benchmark run, as :func:`ratios` reads it. A result also has an attribute for each figure that
    :func:`ratios` compares, such as ``rate`` or ``p50_ms``."""

    @property
    def bench(self) -> str: ...

    @property
    def target(self) -> str: ...


def ratios(ours: Sequence[Measured], theirs: Sequence[Measured]) -> dict[str, Any]:
    """Return the ratios of the medians of the rounds ``ours`` to the medians of the rounds ``theirs``, keyed by figure.
    ``ours`` is better if the ratio of a rate is above 1, or the ratio of a latency is below 1."""
    found: dict[str, Any] = {"bench": f"{ours[0].bench} ratio", "target": ours[0].target, "against": theirs[0].target}
    for name in ("rate", "p50_ms", "p99_ms", "p999_ms", "client_cpu_us", "broker_cpu_us"):
        mine = [value for result in ours if (value := getattr(result, name)) is not None]
        other = [value for result in theirs if (value := getattr(result, name)) is not None]
        if mine and other and statistics.median(other) > 0:
            found[name] = round(statistics.median(mine) / statistics.median(other), 4)
    return found | {"rounds": len(ours)}

"""Draws figures over time as SVG lines, in words and as a table. The functions are pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from flintmq.programs.cluster_view.history import SPAN_S, Sample
from flintmq.programs.console.texts import UNKNOWN, duration

WIDTH: Final = 300.0
HEIGHT: Final = 60.0
_SPANS_S: Final = (60.0, 120.0, 300.0, SPAN_S)
_GAP_S: Final = 150.0
"""Maximum number of seconds between two samples that a chart connects by a line. Even if nobody views the cluster, a sample is
taken once a minute. A longer time between two samples therefore means that no broker answered, and the chart shows a gap."""
ROWS_MAX: Final = 10
_ROUND: Final = (1.0, 2.0, 5.0, 10.0)

Value = Callable[[Sample], float | None]
Text = Callable[[float | None], str]


@attrs.frozen
class Line:
    """A figure of a chart: its label, its value in a sample, and its format."""

    label: str
    value: Value
    text: Text


@attrs.frozen
class Drawn:
    """A line of a chart as points to draw, with the texts of its figures."""

    label: str
    parts: tuple[str, ...]
    """The line's parts between gaps, each as the points ``x,y x,y …``."""
    now: str
    least: str
    most: str


@attrs.frozen
class Chart:
    """A chart of figures over time, with a text for people who cannot see it."""

    title: str
    unit: str
    lines: tuple[Drawn, ...]
    top: str
    """The value at the chart's upper edge, as text; the lower edge is 0."""
    since: str
    """The age of the chart's left edge, as text; the right edge is now."""

    @property
    def words(self) -> str:
        """The chart's content in words, for people who cannot see it."""
        told = (
            f"{one.label} {one.now} {self.unit} now, between {one.least} and {one.most}"
            for one in self.lines
            if one.parts
        )
        return (
            f"In the last {self.since}: {'; '.join(told)}." if any(one.parts for one in self.lines) else "Nothing yet."
        )


def span_of(samples: Sequence[Sample], now_s: float) -> float:
    """Return the number of seconds that a chart of the given samples covers: the smallest predefined span that contains
    them."""
    age_s = now_s - samples[0].at_s if samples else 0.0
    return next((span_s for span_s in _SPANS_S if age_s <= span_s), SPAN_S)


def draw(
    title: str,
    unit: str,
    lines: Sequence[Line],
    samples: Sequence[Sample],
    now_s: float,
    span_s: float | None = None,
) -> Chart:
    """Return a chart of figures with the same unit.

    Args:
        title: the chart's title.
        unit: the unit of the figures.
        lines: the figures.
        samples: the samples, oldest first.
        now_s: the time of the right edge.
        span_s: the seconds that the chart covers; None to cover all samples.
    """
    span_s = span_of(samples, now_s) if span_s is None else span_s
    top = _round_up(max((line.value(one) or 0.0 for line in lines for one in samples), default=0.0))
    return Chart(
        title=title,
        unit=unit,
        lines=tuple(_drawn(line, samples, now_s, span_s, top) for line in lines),
        top=lines[0].text(top),
        since=f"{span_s / 60:.0f} min" if span_s < 3600 else f"{span_s / 3600:.0f} h",
    )


def _drawn(line: Line, samples: Sequence[Sample], now_s: float, span_s: float, top: float) -> Drawn:
    parts: list[list[str]] = []
    last_s = float("-inf")
    known = [(one.at_s, value) for one in samples if (value := line.value(one)) is not None]
    for at_s, value in known:
        if at_s - last_s > _GAP_S:
            parts.append([])
        last_s = at_s
        x, y = WIDTH * (1 - (now_s - at_s) / span_s), HEIGHT * (1 - value / top)
        parts[-1].append(f"{max(0.0, min(x, WIDTH)):.1f},{y:.1f}")
    values = [value for _, value in known]
    return Drawn(
        label=line.label,
        parts=tuple(" ".join(part) for part in parts),
        now=line.text(values[-1] if values else None),
        least=line.text(min(values, default=None)),
        most=line.text(max(values, default=None)),
    )


def _round_up(value: float) -> float:
    """Return a round number that is at least as large as a value; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(power * step for step in _ROUND if power * step >= value)


@attrs.frozen
class Row:
    """A row of a chart's table: the means of a period."""

    ago: str
    cells: tuple[str, ...]


def table(
    lines: Sequence[Line], samples: Sequence[Sample], now_s: float, span_s: float | None = None
) -> tuple[Row, ...]:
    """Return a chart's data as at most ten rows, newest first. The time of the chart is divided into ten equal periods, and a
    row has the mean of each figure in one period. A period without samples has no row."""
    part_s = (span_of(samples, now_s) if span_s is None else span_s) / ROWS_MAX
    rows = []
    for number in range(ROWS_MAX):
        within = [one for one in samples if number * part_s <= now_s - one.at_s < (number + 1) * part_s]
        if within:
            rows.append(Row(duration(number * part_s), tuple(_mean(line, within) for line in lines)))
    return tuple(rows)


def _mean(line: Line, samples: Sequence[Sample]) -> str:
    values = [value for one in samples if (value := line.value(one)) is not None]
    return line.text(sum(values) / len(values)) if values else UNKNOWN

"""Formats of numbers, sizes, times and durations on pages; the templates' filters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from flintmq.config.units import size_text
from flintmq.core.client_log import printable

UNKNOWN: Final = "–"
ROWS_MAX: Final = 500
"""Maximum number of rows of a table that is not divided into pages. A table with this number of rows occupies the event loop
for some 15 ms."""
_SHOWN_MAX_CHARS: Final = 300
_TOLD_MAX_CHARS: Final = 4_000
T = TypeVar("T")
_YEAR_9999_MS: Final = 253_402_300_799_000


def count(value: float | None) -> str:
    """Return a number with commas between thousands; a dash for None."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def counted(value: int | None, noun: str) -> str:
    """Return a number with its noun: ``1 broker``, ``2 brokers``."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def rate(value: float | None) -> str:
    """Return a rate, without decimals from 100 on; a dash for None."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:,.1f}"


def size(value: float | None) -> str:
    """Return a size in bytes with a suitable unit; a dash for None."""
    return UNKNOWN if value is None else size_text(value)


def whole(value: float | None) -> str:
    """Return a number without decimals, with commas between thousands; a dash for None."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def millis(value: float | None) -> str:
    """Return milliseconds, with up to two decimals for small values; a dash for None."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def percent(value: float | None) -> str:
    """Return a ratio as a percentage; a dash for None."""
    return UNKNOWN if value is None else f"{value:.0%}"


def when(timestamp_ms: int | None) -> str:
    """Return a time in UTC as text; a dash for None or 0, and the milliseconds as a number for a time that is out of range."""
    if not timestamp_ms:
        return UNKNOWN
    if not 0 < timestamp_ms <= _YEAR_9999_MS:
        return str(timestamp_ms)
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units; a dash for None."""
    if seconds is None:
        return UNKNOWN
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    for length, unit, smaller, smaller_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // smaller} {smaller_unit}"
    return f"{whole} s"


def measured(value: float, unit: str) -> str:
    """Return the value that an alarm measured, with its unit."""
    if unit == "bytes":
        return size(value)
    if unit == "ratio":
        return percent(value)
    if unit == "ms":
        return duration(value / 1000) if value >= 10_000 else f"{value:,.0f} ms"
    return f"{value:,.6g} {unit}".strip()


def shown(text: object) -> str:
    """Return text from clients on one line. Unprintable characters become ``\\u....``, and long text is cut.

    Characters that change the direction of writing are escaped too, because they could make a name look like another.
    """
    plain = str(text)
    cut = plain[:_SHOWN_MAX_CHARS]
    safe = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in cut)
    return f"{safe}… ({len(plain):,} characters)" if len(plain) > _SHOWN_MAX_CHARS else safe


def told(text: object) -> str:
    """Return a sentence on one line, which may contain text from clients, with unprintable characters escaped."""
    return printable(str(text), _TOLD_MAX_CHARS)


def most(rows: Iterable[T], count: int = ROWS_MAX) -> list[T]:
    """Return only the first rows of a table, because clients of the cluster decide how many queues, members and names there
    are."""
    return list(itertools.islice(rows, count))


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "count": count,
    "counted": counted,
    "rate": rate,
    "size": size,
    "percent": percent,
    "millis": millis,
    "when": when,
    "duration": duration,
    "measured": measured,
    "shown": shown,
    "told": told,
    "most": most,
}
"""The functions that templates use as filters, keyed by the filter's name."""

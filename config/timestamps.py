"""Times as people write them and tools print them, to milliseconds since 1970."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, tzinfo
from typing import Final

from flintmq.config.errors import ConfigError

EARLIEST_MS: Final = 946_684_800_000
"""The year 2000: no message was stored before. A time before it is another number, or of another unit."""
AHEAD_MAX_MS: Final = 10 * 366 * 86_400_000
"""A time further ahead than ten years is another number, too."""
FORMS: Final = "2026-01-31, 2026-01-31T12:00:00, 20260131120000 or ms since 1970"
"""What fits, for errors."""

_TEXT_MAX: Final = 40
_MS: Final = re.compile(r"[0-9]{1,7}|[0-9]{9,13}|[0-9]{15,16}|[0-9]{18,}")
_PARTS: Final = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8})"
    r"(?:[Tt #]?(?P<time>[0-9]{2}:?[0-9]{2}(?::?(?P<seconds>[0-9]{2}))?)"
    r"(?(seconds)(?:[.,:](?P<fraction>[0-9]{1,9})|(?P<millis>[0-9]{3}))?)"
    r" ?(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)


def parse_timestamp(text: str, now_ms: int | None = None, zone: tzinfo | None = None) -> tuple[int, str]:
    """Return the time that a text names, in ms since 1970, and what its reader should be told; that is mostly nothing.

    It takes ms since 1970; dates and times of ISO 8601; and what RocketMQ's clients and tools write: ``yyyyMMddHHmmss``, with
    ``SSS`` behind it, and ``yyyy-MM-dd#HH:mm:ss:SSS``. A date is its first moment.

    Args:
        text: as written.
        now_ms: the time now; the system's when None.
        zone: of a text that names none; the system's when None.

    Raises:
        ConfigError: it names no time, one before 2000 or more than ten years ahead, or a local time that does not exist.
    """
    text = text.strip()
    found_ms, told = (int(text), "") if len(text) <= _TEXT_MAX and _MS.fullmatch(text) else _of_parts(text, zone)
    latest_ms = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) + AHEAD_MAX_MS
    if not EARLIEST_MS <= found_ms <= latest_ms:
        span = f"from {_shown(EARLIEST_MS)} to {_shown(latest_ms)}"
        raise ConfigError(f"must be a time {span}, not '{text[:80]}', which is {_shown(found_ms)}: {FORMS}")
    return found_ms, told


def _of_parts(text: str, zone: tzinfo | None) -> tuple[int, str]:
    found = _PARTS.fullmatch(text) if len(text) <= _TEXT_MAX else None
    try:
        named = datetime.fromisoformat(_in_iso(found) if found is not None else text if len(text) <= _TEXT_MAX else "")
    except ValueError as error:
        why = f": {error}" if found is not None else ""
        raise ConfigError(f"must be a time such as {FORMS}, not '{text[:80]}'{why}") from error
    return (_ms(named), "") if named.tzinfo is not None else _of_local(named, text, zone)


def _in_iso(found: re.Match[str]) -> str:
    """Return what was found in the basic form of ISO 8601, to the millisecond."""
    clock = (found["time"] or "").replace(":", "").ljust(6, "0")
    millis = (found["fraction"] or found["millis"] or "").ljust(3, "0")[:3]
    return f"{found['day'].replace('-', '')}T{clock}.{millis}{(found['zone'] or '').upper()}"


def _of_local(named: datetime, text: str, zone: tzinfo | None) -> tuple[int, str]:
    """Return when a clock of the zone shows a time; the first time, where it shows it twice, and that it does."""
    try:
        moments = [_ms(named.replace(tzinfo=zone, fold=fold)) for fold in (0, 1)]
        shown = [datetime.fromtimestamp(moment / 1000, zone).replace(tzinfo=None, fold=0) for moment in moments]
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(f"must be a time such as {FORMS}, not '{text[:80]}': {error}") from error
    first = [moment for moment, there in zip(moments, shown, strict=True) if there == named]
    if not first:
        raise ConfigError(
            f"must be a time that clocks show, not '{text[:80]}': here they go forward then. Name the offset, as in "
            f"{datetime.fromtimestamp(moments[0] / 1000, zone).astimezone(zone).isoformat()}"
        )
    if first[0] == first[-1]:
        return first[0], ""
    choices = " and ".join(datetime.fromtimestamp(moment / 1000, zone).astimezone(zone).isoformat() for moment in first)
    return first[0], f"'{text[:80]}' comes twice here, as clocks go back then: {choices}; the first is taken"


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _shown(moment_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return "beyond the calendar"

"""Converts the times that users write and tools print to milliseconds since 1970."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, tzinfo
from typing import Final

from flintmq.config.errors import ConfigError

EARLIEST_MS: Final = 946_684_800_000
"""Earliest time that is accepted as a time of messages: the year 2000, before which no message was stored. An earlier time is
probably a mistake."""
AHEAD_MAX_MS: Final = 10 * 366 * 86_400_000
"""Largest difference of an accepted time from now into the future, in ms: about ten years."""
FORMS: Final = "2026-01-31, 2026-01-31T12:00:00, 20260131120000 or ms since 1970"
"""Examples of the accepted forms of a time, for errors."""

_TEXT_MAX: Final = 40
_MS: Final = re.compile(r"[0-9]{1,7}|[0-9]{9,13}|[0-9]{15,16}|[0-9]{18,}")
_PARTS: Final = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8})"
    r"(?:[Tt #]?(?P<time>[0-9]{2}:?[0-9]{2}(?::?(?P<seconds>[0-9]{2}))?)"
    r"(?(seconds)(?:[.,:](?P<fraction>[0-9]{1,9})|(?P<millis>[0-9]{3}))?)"
    r" ?(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)


def parse_timestamp(text: str, now_ms: int | None = None, zone: tzinfo | None = None) -> tuple[int, str]:
    """Return the time that a text names, in ms since 1970, and a warning for the user; the warning is empty for most texts.

    Accepted are ms since 1970, dates and times of ISO 8601, and the forms of RocketMQ's clients and tools: ``yyyyMMddHHmmss``,
    optionally followed by ``SSS``, and ``yyyy-MM-dd#HH:mm:ss:SSS``. A date means its first moment.

    Args:
        text: the text.
        now_ms: the current time in ms since 1970; None for the system's.
        zone: the time zone of a text that names none; None for the system's.

    Raises:
        ConfigError: the text is not a time, the time is before 2000 or more than ten years ahead, or it is a local time that
            does not exist.
    """
    text = text.strip()
    found_ms, told = (int(text), "") if len(text) <= _TEXT_MAX and _MS.fullmatch(text) else _of_parts(text, zone)
    latest_ms = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) + AHEAD_MAX_MS
    if not EARLIEST_MS <= found_ms <= latest_ms:
        span = f"from {_shown(EARLIEST_MS)} to {_shown(latest_ms)}"
        raise ConfigError(
            f"must be a time {span}, not '{text[:80]}' (read as {_shown(found_ms)}). Accepted forms are {FORMS}"
        )
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
    """Return the time that a regular expression has matched, in the basic form of ISO 8601, with milliseconds."""
    clock = (found["time"] or "").replace(":", "").ljust(6, "0")
    millis = (found["fraction"] or found["millis"] or "").ljust(3, "0")[:3]
    return f"{found['day'].replace('-', '')}T{clock}.{millis}{(found['zone'] or '').upper()}"


def _of_local(named: datetime, text: str, zone: tzinfo | None) -> tuple[int, str]:
    """Convert a local time of a time zone to ms since 1970, and return the result and a warning text.

    The warning text is empty unless the local time occurs twice, because the clocks are set back. For a local time that occurs
    twice, the result is the first of the two times, and the warning names both.

    Raises:
        ConfigError: the local time does not exist, because the clocks are set forward, or is outside the calendar.
    """
    try:
        moments = [_ms(named.replace(tzinfo=zone, fold=fold)) for fold in (0, 1)]
        shown = [datetime.fromtimestamp(moment / 1000, zone).replace(tzinfo=None, fold=0) for moment in moments]
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(f"must be a time such as {FORMS}, not '{text[:80]}': {error}") from error
    first = [moment for moment, there in zip(moments, shown, strict=True) if there == named]
    if not first:
        raise ConfigError(
            f"must be a time that exists, not '{text[:80]}': the clocks of the time zone skip it when they are set forward. "
            "Add the offset from UTC, as in "
            f"{datetime.fromtimestamp(moments[0] / 1000, zone).astimezone(zone).isoformat()}"
        )
    if first[0] == first[-1]:
        return first[0], ""
    choices = " and ".join(datetime.fromtimestamp(moment / 1000, zone).astimezone(zone).isoformat() for moment in first)
    return first[0], f"'{text[:80]}' occurs twice here, because the clocks are set back: {choices}; the first is used"


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _shown(moment_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return "a time beyond the calendar"

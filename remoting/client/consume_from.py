"""Parses the position where a consumer group begins to consume. The client, the command line and the console accept the same
values.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from flintmq.config.errors import ConfigError
from flintmq.config.timestamps import parse_timestamp
from flintmq.core.errors import InvalidArgumentError

FROM_LAST: Final = "CONSUME_FROM_LAST_OFFSET"
FROM_FIRST: Final = "CONSUME_FROM_FIRST_OFFSET"
FROM_TIMESTAMP: Final = "CONSUME_FROM_TIMESTAMP"
Where = Literal["CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"]

ConsumeFrom = str | int | datetime
"""The position where consuming begins: ``"first"``, ``"last"``, or a time.

A time is a ``datetime``, a text such as ``"2026-01-31T12:00"``, or milliseconds since 1970. A time without a time zone is in
this machine's zone. RocketMQ's names are accepted too: ``CONSUME_FROM_FIRST_OFFSET``, ``CONSUME_FROM_LAST_OFFSET``, and
``CONSUME_FROM_TIMESTAMP``, for which the time is passed separately."""

NAMES: Final[dict[str, Where]] = {
    "first": FROM_FIRST,
    "last": FROM_LAST,
    FROM_FIRST: FROM_FIRST,
    FROM_LAST: FROM_LAST,
    FROM_TIMESTAMP: FROM_TIMESTAMP,
}
SECONDS_MAX: Final = 10_000_000_000
"""The number below which a time in milliseconds is refused. A smaller number would be a time in the first months of 1970, so
the caller probably passed seconds."""


def begin_of(value: ConsumeFrom, timestamp_ms: int = 0) -> tuple[Where, int]:
    """Return RocketMQ's name for the position where consuming begins, and the time in milliseconds since 1970 (0: none).

    Args:
        value: the user's value.
        timestamp_ms: the time to use if ``value`` is ``CONSUME_FROM_TIMESTAMP``.

    Raises:
        InvalidArgumentError: ``value`` is neither a known name nor a time.
    """
    if isinstance(value, str) and value in NAMES:
        where = NAMES[value]
        return where, timestamp_ms if where == FROM_TIMESTAMP else 0
    try:
        return FROM_TIMESTAMP, time_ms(value)
    except ValueError as error:
        raise InvalidArgumentError(
            f"consume_from is {value!r}, and must be first, last, a time such as 2026-01-31T12:00, or ms since 1970 "
            f"(RocketMQ's names: {FROM_FIRST}, {FROM_LAST}, {FROM_TIMESTAMP})"
        ) from error


def time_ms(value: ConsumeFrom) -> int:
    """Return a time in milliseconds since 1970. Raises ``ValueError`` if ``value`` is not a time."""
    if isinstance(value, str):
        try:
            return parse_timestamp(value)[0]
        except ConfigError as error:
            raise ValueError(error.message) from error
    if isinstance(value, datetime):
        try:
            return round(value.timestamp() * 1000)
        except OverflowError as error:
            raise ValueError(f"the time {value} is outside of the range of this machine") from error
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a time")
    if 0 < value < SECONDS_MAX:
        raise ValueError(f"{value} ms is a time in 1970: give the time in milliseconds, not in seconds")
    return value

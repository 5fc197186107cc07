"""Converts the delivery time of a delayed message to the message property that brokers read (docs/later.md)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from flintmq.config.errors import ConfigError
from flintmq.config.units import parse_duration
from flintmq.core.errors import InvalidArgumentError
from flintmq.core.record.properties import TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS
from flintmq.remoting.client.consume_from import time_ms

TIMERS: Final = frozenset({TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS})
"""Names of the message properties that set a delivery time."""


def with_timer(
    properties: Mapping[str, str], delay: str | timedelta | None, deliver_at: datetime | int | None, delay_level: int
) -> dict[str, str]:
    """Return a message's properties plus the property that makes the broker deliver the message later.

    Args:
        properties: the user's properties.
        delay: the time to wait, as text with its unit or as a ``timedelta``; None if ``deliver_at`` is given.
        deliver_at: the delivery time; a number is milliseconds since 1970. None if ``delay`` is given.
        delay_level: the message's delay level, which must be 0.

    Raises:
        InvalidArgumentError: a value is invalid, or the message has two delivery times.
    """
    if delay is not None and deliver_at is not None:
        raise InvalidArgumentError(
            f"delay is {delay!r} and deliver_at is {deliver_at!r}: a message can have only one of them"
        )
    if delay_level:
        raise InvalidArgumentError(
            f"delay_level is {delay_level}, and the message has delay or deliver_at, too: leave delay_level out"
        )
    name, value = (
        (TIMER_DELAY_MS, _delay_ms(delay)) if delay is not None else (TIMER_DELIVER_MS, _moment_ms(deliver_at))
    )
    for other in TIMERS & properties.keys():
        # If attrs.evolve() copied a message, ``properties`` already contains the property for the same time, which is allowed.
        if (other, properties[other]) != (name, str(value)):
            raise InvalidArgumentError(
                f"properties has {other}, and the message has delay or deliver_at, too: a message can have only one time"
            )
    return {**properties, name: str(value)}


def _moment_ms(deliver_at: datetime | int | None) -> int:
    try:
        if not isinstance(deliver_at, datetime | int):
            raise ValueError(f"found {type(deliver_at).__name__}")
        return time_ms(deliver_at)
    except ValueError as error:
        raise InvalidArgumentError(
            f"deliver_at is {deliver_at!r}, and must be a datetime, or a whole number of ms since 1970: {error}"
        ) from error


def _delay_ms(delay: str | timedelta) -> int:
    if isinstance(delay, timedelta) and delay >= timedelta(0):
        return round(delay / timedelta(milliseconds=1))
    if isinstance(delay, str) and not delay.strip().isdecimal():  # "5" is refused, because it has no unit.
        try:
            return parse_duration(delay.strip())
        except ConfigError:
            pass
    raise InvalidArgumentError(
        f"delay is {delay!r}, and must be a duration with its unit, such as 500ms, 5s, 10m, 2h or 1d, or a timedelta from 0 on"
    )

"""The alarms of a broker as a figure of request 28, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from flintmq.core.errors import FlintError
from flintmq.core.kernel.ports.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.core.broker.alarms import Alarms

ALARMS: Final = "alarms"
"""A JSON array of objects with the fields of :class:`~flintmq.core.kernel.ports.alarm.Alarm`."""


def alarm_figures(alarms: Alarms) -> dict[str, str]:
    """Return the figure for request 28. Loop thread."""
    return {ALARMS: msgspec.json.encode(alarms.current()).decode()}


def alarms_of(info: Mapping[str, str]) -> list[Alarm]:
    """Return a broker's alarms from its runtime figures; none for a RocketMQ broker, which does not tell any.

    Raises:
        FlintError: the figure is not what it must be.
    """
    try:
        return msgspec.json.decode(info.get(ALARMS, "[]"), type=list[Alarm])
    except (msgspec.DecodeError, ValueError) as error:
        raise FlintError(f"the broker's figure '{ALARMS}' cannot be read: {error}") from error

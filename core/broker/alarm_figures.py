"""Encodes the alarms of a broker as an entry in the answer to request 28 (GET_BROKER_RUNTIME_INFO), and decodes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from flintmq.core.errors import FlintError
from flintmq.core.kernel.ports.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.core.broker.alarms import Alarms

ALARMS: Final = "alarms"
"""Name of the entry of the answer to GET_BROKER_RUNTIME_INFO that describes a broker's alarms, as a JSON array of objects with
the fields of :class:`~flintmq.core.kernel.ports.alarm.Alarm`."""


def alarm_figures(alarms: Alarms) -> dict[str, str]:
    """Return the current alarms as an entry of the answer to GET_BROKER_RUNTIME_INFO, keyed by the entry's name. Loop
    thread."""
    return {ALARMS: msgspec.json.encode(alarms.current()).decode()}


def alarms_of(info: Mapping[str, str]) -> list[Alarm]:
    """Return the alarms in a broker's answer to GET_BROKER_RUNTIME_INFO; empty for a RocketMQ broker, which reports no alarms.

    Raises:
        FlintError: the entry with the alarms cannot be decoded.
    """
    try:
        return msgspec.json.decode(info.get(ALARMS, "[]"), type=list[Alarm])
    except (msgspec.DecodeError, ValueError) as error:
        raise FlintError(
            f"in the broker's runtime information, the entry '{ALARMS}' cannot be read: {error}"
        ) from error

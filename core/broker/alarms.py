"""What is told of everything that is wrong, as pure functions of values: the same for this broker and for others' figures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from flintmq.core.client_log import printable
from flintmq.core.kernel.ports.alarm import CRITICAL, Alarm

ALARMS_MAX: Final = 200
"""Alarms of one broker that are shown. They are part of an answer, and more help nobody."""
_NAME_MAX_CHARS: Final = 300
_MESSAGE_MAX_CHARS: Final = 1_000


def gathered(alarms: Iterable[Alarm]) -> list[Alarm]:
    """Return alarms as they are shown: critical ones first, else in their order, each id and subject once, cut and printable.

    Beyond :data:`ALARMS_MAX` the last one says how many are left out.
    """
    once = {(alarm.id, alarm.subject): alarm for alarm in alarms}
    found = sorted(once.values(), key=lambda alarm: alarm.level != CRITICAL)
    if len(found) > ALARMS_MAX:
        left_out = found[ALARMS_MAX - 1 :]
        text = f"{len(left_out)} more alarms are not shown: look at the first ones, which are the gravest"
        more = Alarm("alarms.more", left_out[0].level, "", text, len(found), "alarms", ALARMS_MAX)
        found = [*found[: ALARMS_MAX - 1], more]
    return [cleaned(alarm) for alarm in found]


def cleaned(alarm: Alarm) -> Alarm:
    """Return an alarm whose texts have one line each, and a bounded length, whatever clients called their groups."""
    names = {name: printable(getattr(alarm, name), _NAME_MAX_CHARS) for name in ("id", "subject", "unit", "key")}
    return attrs.evolve(alarm, message=printable(alarm.message, _MESSAGE_MAX_CHARS), **names)  # type: ignore[arg-type]


def fenced(reason: str) -> Alarm:
    """Return the alarm for a store that takes nothing any more."""
    text = (
        f"the store is fenced and takes nothing until the broker is restarted: {reason}; look at the disk, then restart"
    )
    return Alarm("store.fenced", CRITICAL, "", text, key="store.path")


def damaged(error: str) -> Alarm:
    """Return the alarm for a record of the log that cannot be read, so that dispatch stands still."""
    text = f"a record of the log cannot be read, and dispatch stands still; restart the broker to recover: {error}"
    return Alarm("store.damaged", CRITICAL, "", text, key="store.path")


def dispatch_stopped(error: str, behind_bytes: int) -> Alarm:
    """Return the alarm for dispatch that stands still, and is tried again."""
    text = f"dispatch stands still, so consumers get nothing new and sends are refused: {error}"
    return Alarm("dispatch.stopped", CRITICAL, "", text, behind_bytes, "bytes", key="dispatchers")

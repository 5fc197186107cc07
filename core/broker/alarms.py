"""Collects the alarms of a broker, and makes alarms from measured values.

Tools use this module to make alarms from the values that other brokers report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import attrs

from flintmq.core.client_log import printable
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm

ALARMS_MAX: Final = 200
"""Maximum number of alarms that a broker reports, because the size of a response is limited."""
_NAME_MAX_CHARS: Final = 300
_MESSAGE_MAX_CHARS: Final = 1_000


class Alarms:
    """The sources of a broker's alarms. Used only on the event loop's thread."""

    __slots__ = ("_sources",)

    def __init__(self) -> None:
        self._sources: list[Callable[[], Iterable[Alarm]]] = []

    def add(self, source: Callable[[], Iterable[Alarm]]) -> None:
        """Add a source of alarms, a function that returns its current alarms.

        The source is called for each request GET_BROKER_RUNTIME_INFO and each scrape of the metrics.
        """
        self._sources.append(source)

    def current(self) -> list[Alarm]:
        """Return all current alarms of the broker, critical alarms first, without repetition and at most :data:`ALARMS_MAX`."""
        return gathered(alarm for source in self._sources for alarm in source())


def gathered(alarms: Iterable[Alarm]) -> list[Alarm]:
    """Return alarms in the order and form in which tools show them.

    Critical alarms come first, each pair of id and subject occurs once, and texts are printable and of limited length. If there
    are more than :data:`ALARMS_MAX`, the last alarm reports the number that is left out.
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
    """Return an alarm with printable texts of one line and limited length, because names of groups come from clients."""
    names = {name: printable(getattr(alarm, name), _NAME_MAX_CHARS) for name in ("id", "subject", "unit", "key")}
    return attrs.evolve(alarm, message=printable(alarm.message, _MESSAGE_MAX_CHARS), **names)  # type: ignore[arg-type]


# disks


def disk_used(folder: str, used_ratio: float, *, nearly_full_ratio: float, full_ratio: float) -> Alarm | None:
    """Return the alarm for a disk, given its used share, which RocketMQ brokers report; None if the disk has room.

    Args:
        folder: the folder on the disk.
        used_ratio: used share of the disk, 0 to 1.
        nearly_full_ratio: the share above which a broker deletes messages that have not expired
            (RocketMQ: ``rocketmq.broker.diskSpaceCleanForciblyRatio``, 0.85).
        full_ratio: the share above which a broker refuses to write (``rocketmq.broker.diskSpaceWarningLevelRatio``, 0.9).
    """
    if used_ratio > full_ratio:
        return disk_full(folder, used_ratio, "ratio", full_ratio, "store.disk_full_ratio")
    if used_ratio > nearly_full_ratio:
        return disk_nearly_full(folder, used_ratio, nearly_full_ratio)
    return None


def disk_full(folder: str, value: float, unit: str, limit: float, key: str) -> Alarm:
    """Return the alarm for a disk to which the broker no longer writes messages.

    Args:
        folder: the folder on the disk.
        value: used share of the disk (0 to 1) or its free bytes, according to ``unit``.
        unit: ``ratio`` or ``bytes``.
        limit: the limit that ``value`` has passed, in the same unit.
        key: the setting with the limit.
    """
    used = f"{value:.1%} used" if unit == "ratio" else f"{value:,} bytes free"
    text = f"the disk of {folder} is full ({used}) and sends are refused: free some room there, or let messages expire sooner"
    return Alarm("disk.full", CRITICAL, folder, text, value, unit, limit, key)


def disk_nearly_full(folder: str, ratio: float, limit: float) -> Alarm:
    """Return the alarm for a disk on which messages are deleted before they expire; ratios are 0 to 1."""
    text = (
        f"the disk of {folder} is {ratio:.1%} used, and messages are deleted before they expire: free some room there, or "
        "keep messages for a shorter time (store.file_reserved_hours)"
    )
    return Alarm("disk.nearly_full", WARNING, folder, text, ratio, "ratio", limit, "store.disk_forcible_ratio")


# groups


def conflict(group: str, described: str, members: int = 0) -> Alarm:
    """Return the alarm for a group whose members contradict each other.

    Args:
        group: the consumer group.
        described: the result of :func:`~flintmq.core.broker.conflicts.describe_conflicts`.
        members: number of deviating members; 0 if it is unknown.
    """
    text = (
        f"members of group {group} contradict each other, so it may miss messages: {described}. Give all members the same "
        "topics, expressions and message model, or put them into different groups"
    )
    return Alarm("group.conflict", WARNING, group, text, members, "members" if members else "")

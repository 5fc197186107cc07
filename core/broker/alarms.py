"""What is told of everything that is wrong, as pure functions of values: the same for this broker and for others' figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import msgspec

from flintmq.core.client_log import printable
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm
from flintmq.core.retention.retention import DiskUsage, RetentionPolicy, judge_disk, judge_space

ALARMS_MAX: Final = 200
"""Alarms of one broker that are shown. They are part of an answer, and more help nobody."""
_NAME_MAX_CHARS: Final = 300
_MESSAGE_MAX_CHARS: Final = 1_000
_NAMED_MAX: Final = 10
_SAME_DISK: Final = 0.01
_RUNS_MAX: Final = 10


class Alarms:
    """The sources of a broker's alarms. Loop thread."""

    __slots__ = ("_sources",)

    def __init__(self) -> None:
        self._sources: list[Callable[[], Iterable[Alarm]]] = []

    def add(self, source: Callable[[], Iterable[Alarm]]) -> None:
        """Add a source, which returns the alarms of now; it is called with each request 28 and each scrape."""
        self._sources.append(source)

    def current(self) -> list[Alarm]:
        """Return what is wrong now, critical alarms first, each once, and at most :data:`ALARMS_MAX`."""
        return gathered(alarm for source in self._sources for alarm in source())


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


def mended(parts: Sequence[str]) -> Alarm:
    """Return the alarm for parts of the store that this start found lost or damaged."""
    text = (
        f"this start found parts of the store lost, damaged or not as they were noted: {', '.join(parts)}; the log says of "
        "each what was done; see what happened to the disk or the files, then restart"
    )
    return Alarm("store.mended", WARNING, "", text, len(parts), "parts", key="store.path")


def damaged(error: str) -> Alarm:
    """Return the alarm for a record of the log that cannot be read, so that dispatch stands still."""
    text = f"a record of the log cannot be read, and dispatch stands still; restart the broker to recover: {error}"
    return Alarm("store.damaged", CRITICAL, "", text, key="store.path")


def dispatch_stopped(error: str, behind_bytes: int) -> Alarm:
    """Return the alarm for dispatch that stands still, and is tried again."""
    text = f"dispatch stands still, so consumers get nothing new and sends are refused: {error}"
    return Alarm("dispatch.stopped", CRITICAL, "", text, behind_bytes, "bytes", key="dispatchers")


def retention_bound_won(group: str, messages: int, measured: str, key: str) -> Alarm:
    """Return the alarm for messages that were kept for a group, and are deleted unread.

    Args:
        group: the group.
        messages: how many of them.
        measured: which bound was passed, and by how much.
        key: the setting of the bound.
    """
    text = (
        f"{messages} messages that were kept for group {group} are deleted, and it has not consumed them: {measured}; "
        "start its consumers, or raise the bound"
    )
    return Alarm("retention.bound_won", WARNING, group, text, messages, "messages", key=key)


def deleted_unexpired(files: int, messages: int, age: str, groups: str) -> Alarm:
    """Return the alarm for messages that were deleted before they had expired, because the disk was nearly full.

    Args:
        files: how many files of the log.
        messages: how many messages were in them.
        age: how old the newest of them is, in words.
        groups: which groups lose how many, in words.
    """
    text = (
        f"the disk was nearly full, and {files} files of the log were deleted before they had expired: {messages:,} messages, "
        f"the newest is {age}; {groups}; free some room there, or keep messages for a shorter time (store.file_reserved_hours)"
    )
    return Alarm(
        "retention.deleted_unexpired", WARNING, "", text, messages, "messages", key="store.disk_forcible_ratio"
    )


# disks


def disk_used(folder: str, used_ratio: float, *, nearly_full_ratio: float, full_ratio: float) -> Alarm | None:
    """Return the alarm for a disk by its used share alone, as a RocketMQ broker tells it; None where there is room.

    Args:
        folder: what lies on the disk.
        used_ratio: its used share, 0 to 1.
        nearly_full_ratio: the share above which a broker deletes messages that have not expired
            (RocketMQ: ``rocketmq.broker.diskSpaceCleanForciblyRatio``, 0.85).
        full_ratio: the share above which it refuses to write (``rocketmq.broker.diskSpaceWarningLevelRatio``, 0.9).
    """
    if used_ratio > full_ratio:
        return _disk_full(folder, used_ratio, "ratio", full_ratio, "store.disk_full_ratio")
    if used_ratio > nearly_full_ratio:
        return _disk_nearly_full(folder, used_ratio, nearly_full_ratio)
    return None


def disks(log_disks: Sequence[DiskUsage], queue_disk: DiskUsage | None, policy: RetentionPolicy) -> list[Alarm]:
    """Return the alarms for the disks of a store, by the limits of retention, each disk once.

    Where the commit log lies on several disks, a full one is a warning while another one takes the files.
    """
    found: dict[Path, Alarm] = {}
    if queue_disk is not None and any(_is_same_disk(queue_disk, usage) for usage in log_disks):
        queue_disk = None
    strict = msgspec.structs.replace(policy, clean_forcibly=True)
    refuses = judge_space(log_disks, None, policy).full is not None
    for usage in [*log_disks, *([queue_disk] if queue_disk is not None else [])]:
        space = judge_disk(usage, strict)
        folder, ratio = str(usage.folder), usage.used_ratio
        if space.full is not None and (refuses or usage is queue_disk):
            if space.full.key == "store.disk_min_free_bytes":
                alarm = _disk_full(folder, usage.free_bytes, "bytes", policy.min_free_bytes, space.full.key)
            else:
                alarm = _disk_full(folder, ratio, "ratio", policy.full_ratio, space.full.key)
        elif space.forcibly:
            alarm = _disk_nearly_full(folder, ratio, policy.forcible_ratio)
        else:
            continue
        found.setdefault(usage.folder, alarm)
    return list(found.values())


def _is_same_disk(one: DiskUsage, other: DiskUsage) -> bool:
    """Return whether two folders seem to lie on one disk; they were measured one after the other."""
    return one.total_bytes == other.total_bytes and abs(one.used_ratio - other.used_ratio) < _SAME_DISK


def _disk_full(folder: str, value: float, unit: str, limit: float, key: str) -> Alarm:
    used = f"{value:.1%} used" if unit == "ratio" else f"{value:,} bytes free"
    text = f"the disk of {folder} is full ({used}) and sends are refused: free some room there, or let messages expire sooner"
    return Alarm("disk.full", CRITICAL, folder, text, value, unit, limit, key)


def _disk_nearly_full(folder: str, ratio: float, limit: float) -> Alarm:
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
        described: how, as :func:`~flintmq.core.broker.conflicts.describe_conflicts` says it.
        members: how many differ from most; 0 where that is not known.
    """
    text = (
        f"members of group {group} contradict each other, so it may miss messages: {described}. Give all members the same "
        "topics, expressions and message model, or groups of their own"
    )
    return Alarm("group.conflict", WARNING, group, text, members, "members" if members else "")


def client_id_shared(group: str, client_id: str, addresses: Sequence[str]) -> Alarm:
    """Return the alarm for members of a group that use one client id at the same time.

    Args:
        group: the consumer group.
        client_id: the id.
        addresses: of their connections.
    """
    text = (
        f"client id {client_id} is used by {len(addresses)} members of group {group}, which therefore get the same messages: "
        f"{', '.join(addresses[:_NAMED_MAX])}. Give each process an instance name or a client id of its own"
    )
    return Alarm("client.id_shared", WARNING, client_id, text, len(addresses), "members")


def unread_queues(topic: str, waiting: Mapping[int, int], group: str, *, read_queues: int) -> Alarm:
    """Return the alarm for messages that wait in queues beyond those that are read.

    Args:
        topic: where they wait.
        waiting: queue id → how many.
        group: the one that has most of them before it; empty where no group has ever read these queues.
        read_queues: how many queues of the topic are read.
    """
    messages = sum(waiting.values())
    whom = f"group {group} has not consumed them" if group else "no group has ever read them"
    text = (
        f"{messages:,} messages wait in queues of topic {topic} that nobody reads, {queue_list(waiting)}: it has {read_queues} "
        f"read queues, and {whom}. Let them be read until they are consumed (flintmq topics create {topic} --queues "
        f"{max(waiting) + 1})"
    )
    return Alarm("topic.unread_queues", WARNING, topic, text, messages, "messages")


def queue_list(queue_ids: Iterable[int]) -> str:
    """Return the ids of queues for people: ``4 to 7, 9``; at most ten runs."""
    runs: list[list[int]] = []
    for queue_id in sorted(queue_ids):
        if runs and queue_id == runs[-1][1] + 1:
            runs[-1][1] = queue_id
        else:
            runs.append([queue_id, queue_id])
    texts = [str(low) if low == high else f"{low} to {high}" for low, high in runs]
    return ", ".join(texts if len(texts) <= _RUNS_MAX else [*texts[:_RUNS_MAX], "…"])


def lag_growing(
    group: str, topic: str, lag: int, grown: int, *, within_s: float, limit: int, members: int | None = None
) -> Alarm:
    """Return the alarm for a group that falls further and further behind.

    Args:
        group: the consumer group.
        topic: where it is furthest behind.
        lag: how many messages it has not consumed there.
        grown: how many more that is than at the beginning of the window.
        within_s: how long the window is.
        limit: the lag from which on this is told.
        members: how many members are connected; None when that is unknown.
    """
    if members == 0:
        advice = f"it has no members: start them, or delete the group (flintmq groups delete {group})"
    else:
        some = f"its {members} members" if members is not None else "its members"
        advice = f"{some} do not keep up: add some, or look what slows them down (flintmq groups show {group})"
    ago = f"{within_s / 60:.0f} minutes" if within_s >= 120 else f"{within_s:.0f} seconds"
    text = f"group {group} is {lag:,} messages behind in topic {topic}, {grown:,} more than {ago} ago; {advice}"
    return Alarm("consumer.lag_growing", WARNING, group, text, lag, "messages", limit, "alarms.lag_messages")

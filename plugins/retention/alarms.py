"""Makes the alarms of retention: full disks, and messages that are deleted before groups read them or before they expire."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from flintmq.core.broker.alarms import disk_full, disk_nearly_full
from flintmq.core.kernel.ports.alarm import WARNING, Alarm
from flintmq.core.retention.retention import DiskUsage, RetentionPolicy, judge_disk, judge_space

_SAME_DISK: Final = 0.01


def retention_bound_won(group: str, messages: int, measured: str, key: str) -> Alarm:
    """Return the alarm for messages that were kept for a group and are deleted before the group has consumed them.

    Args:
        group: the group.
        messages: number of these messages.
        measured: the limit that was exceeded and the measured value, as a text.
        key: the setting with the limit.
    """
    text = (
        f"{messages} messages that were kept for group {group} are deleted, and it has not consumed them: {measured}; "
        "start its consumers, or raise the bound"
    )
    return Alarm("retention.bound_won", WARNING, group, text, messages, "messages", key=key)


def deleted_unexpired(files: int, messages: int, age: str, groups: str) -> Alarm:
    """Return the alarm for messages that were deleted before they had expired, because the disk was nearly full.

    Args:
        files: number of deleted files of the log.
        messages: number of messages in these files.
        age: age of the newest of these messages, as a text.
        groups: the groups that lose messages, with the numbers, as a text.
    """
    text = (
        f"the disk was nearly full, and {files} files of the log were deleted before they had expired: {messages:,} messages, "
        f"the newest is {age}; {groups}; free some room there, or keep messages for a shorter time (store.file_reserved_hours)"
    )
    return Alarm(
        "retention.deleted_unexpired", WARNING, "", text, messages, "messages", key="store.disk_forcible_ratio"
    )


def disks(log_disks: Sequence[DiskUsage], queue_disk: DiskUsage | None, policy: RetentionPolicy) -> list[Alarm]:
    """Return the alarms for the disks of a store according to the limits of retention, at most one for each disk.

    If the commit log uses several disks, a full disk raises only a warning as long as another of these disks has room.

    Args:
        log_disks: usage of the disks with files of the commit log.
        queue_disk: usage of the disk with the consume queues; None if it was not measured.
        policy: the limits of retention.
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
                alarm = disk_full(folder, usage.free_bytes, "bytes", policy.min_free_bytes, space.full.key)
            else:
                alarm = disk_full(folder, ratio, "ratio", policy.full_ratio, space.full.key)
        elif space.forcibly:
            alarm = disk_nearly_full(folder, ratio, policy.forcible_ratio)
        else:
            continue
        found.setdefault(usage.folder, alarm)
    return list(found.values())


def _is_same_disk(one: DiskUsage, other: DiskUsage) -> bool:
    """Return whether two measurements are of the same disk: equal size and nearly equal use. The use may differ because the
    measurements were not simultaneous."""
    return one.total_bytes == other.total_bytes and abs(one.used_ratio - other.used_ratio) < _SAME_DISK

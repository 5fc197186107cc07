"""The alarms of retention: disks without room, and messages that are deleted unread or before they expired."""

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
    """Return whether two folders seem to lie on one disk; they were measured one after the other."""
    return one.total_bytes == other.total_bytes and abs(one.used_ratio - other.used_ratio) < _SAME_DISK

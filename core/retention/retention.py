"""Decides which files are deleted and whether a disk is full (docs/internals/algorithms.md, Retention).

All functions here are pure. :mod:`flintmq.plugins.retention.cleaner` measures the disks and deletes the files.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from flintmq.config.sections.store import StoreSection

DELETE_FILES_MAX: Final = 10
"""Maximum number of commit log files that one round of retention deletes. Deleting a file takes the disk some time, and rounds
are frequent."""
_HOUR_MS: Final = 3_600_000


class RetentionPolicy(msgspec.Struct, frozen=True):
    """The settings of retention, which deletes files of the store. Times and sizes are in ms and bytes."""

    reserved_ms: int
    """Time for which retention keeps messages, in ms."""
    delete_hours: frozenset[int]
    """Hours of the day, in local time, at which expired files are deleted even if the disk has space."""
    max_used_ratio: float
    """Used share of the disk (0 to 1) above which expired files are deleted at any hour."""
    forcible_ratio: float
    """Used share of the disk above which even files that have not expired are deleted."""
    full_ratio: float
    """Used share of the disk above which writes are refused."""
    min_free_bytes: int
    """Free space of the disk in bytes below which writes are refused, whatever share of the disk is used; 0 switches this limit
    off."""
    enough_free_bytes: int
    """Amount of free space in bytes. A disk with at least this free space does not count as full or nearly full, whatever share
    of the disk is used. With 0, only the used share decides whether a disk counts as full or nearly full."""
    clean_forcibly: bool
    """Whether files that have not expired may be deleted if the disk is nearly full."""
    retention_bytes: int
    """Size of the log in bytes above which its oldest files are deleted; 0 switches this limit off."""
    hold_until_consumed: bool
    """Whether a file of the log is kept as long as at least one group has not consumed all messages of the file."""
    hold_max_bytes: int
    """Maximum size in bytes of the newest part of the log in which :attr:`hold_until_consumed` keeps files. Older files are
    deleted even if a group has not consumed all messages of these files."""
    keep_for_groups: frozenset[str] = frozenset()
    """Names of groups for which files are kept: a file of the log is kept as long as one of these groups has not consumed all
    messages of the file."""
    keep_at_most_ms: int = 0
    """Maximum age, in ms, of a file that is kept for the groups in :attr:`keep_for_groups`. The age of a file is the age of the
    file's newest message."""

    @classmethod
    def of(cls, section: StoreSection) -> RetentionPolicy:
        """Return the retention policy with the settings of the section ``store``."""
        strict = section.compat == "strict"
        return cls(
            reserved_ms=section.file_reserved_hours * _HOUR_MS,
            delete_hours=frozenset(int(hour) for hour in section.delete_when.split(";")),
            max_used_ratio=section.disk_max_used_ratio / 100,
            forcible_ratio=section.disk_forcible_ratio / 100,
            full_ratio=section.disk_full_ratio / 100,
            min_free_bytes=section.disk_min_free_bytes,
            enough_free_bytes=0 if strict else section.disk_enough_free_bytes,
            clean_forcibly=section.clean_forcibly,
            retention_bytes=section.retention_bytes,
            hold_until_consumed=section.hold_until_consumed,
            hold_max_bytes=section.hold_max_bytes,
            keep_for_groups=frozenset(section.keep_for_groups),
            keep_at_most_ms=section.keep_at_most_hours * _HOUR_MS,
        )


# space


class DiskUsage(msgspec.Struct, frozen=True):
    """Size and free space of the disk that contains a folder."""

    folder: Path
    total_bytes: int
    used_bytes: int
    free_bytes: int
    """Number of bytes that the broker may still write to the disk. The number is less than ``total - used`` if blocks are
    reserved for root."""

    @property
    def used_ratio(self) -> float:
        """Return the used share of the disk as ``df`` computes it, from 0 to 1."""
        usable = self.used_bytes + self.free_bytes
        return self.used_bytes / usable if usable > 0 else 1.0

    def __str__(self) -> str:
        return f"{self.used_ratio:.1%} used, {self.free_bytes} bytes free at {self.folder}"


class DiskFull(msgspec.Struct, frozen=True):
    """The reason why writes are refused: the measured usage, and the setting that limits it."""

    measured: str
    key: str


class Space(msgspec.Struct, frozen=True):
    """The measures that the usage of disks requires: deletion of files, and refusal of writes."""

    delete: bool = False
    """Whether expired files are deleted at any hour of the day."""
    forcibly: bool = False
    """Whether the oldest files of the log are deleted even if these files have not expired."""
    full: DiskFull | None = None
    """The reason why writes are refused; None if writes are accepted."""

    def __or__(self, other: Space) -> Space:
        """Combine the measures that two disks require, and return the result: files are deleted, or writes are refused, if at
        least one of the two disks requires it."""
        return Space(self.delete or other.delete, self.forcibly or other.forcibly, self.full or other.full)


def judge_disk(usage: DiskUsage, policy: RetentionPolicy) -> Space:
    """Return the measures that the usage of one disk requires."""
    ratio, free = usage.used_ratio, usage.free_bytes
    if policy.min_free_bytes and free < policy.min_free_bytes:
        return Space(True, policy.clean_forcibly, DiskFull(str(usage), "store.disk_min_free_bytes"))
    delete = ratio > policy.max_used_ratio
    if policy.enough_free_bytes and free >= policy.enough_free_bytes:
        return Space(delete)
    forcibly = policy.clean_forcibly and (ratio > policy.forcible_ratio or ratio > policy.full_ratio)
    full = DiskFull(str(usage), "store.disk_full_ratio") if ratio > policy.full_ratio else None
    return Space(delete, forcibly, full)


def judge_space(log_disks: Sequence[DiskUsage], queue_disk: DiskUsage | None, policy: RetentionPolicy) -> Space:
    """Return the measures that the usage of all disks requires.

    The commit log can use its least used disk, so only the least used disk of the log counts. The caller leaves out disks that
    could not be measured, so these disks require no measures. RocketMQ, in contrast, deletes files if it cannot measure a disk.
    """
    found = Space()
    if log_disks:
        found = judge_disk(min(log_disks, key=lambda usage: usage.used_ratio), policy)
    return found | judge_disk(queue_disk, policy) if queue_disk is not None else found


def full_folders(log_disks: Sequence[DiskUsage], policy: RetentionPolicy) -> frozenset[Path]:
    """Return the commit log folders on nearly full disks. No file is created there while another folder is available."""
    judged = ((usage, judge_disk(usage, msgspec.structs.replace(policy, clean_forcibly=True))) for usage in log_disks)
    return frozenset(usage.folder for usage, space in judged if space.forcibly)


# files


class LogFile(msgspec.Struct, frozen=True):
    """A file of the commit log, with the data that decides whether retention deletes it."""

    start_offset_bytes: int
    size_bytes: int
    newest_ms: int | None
    """Store timestamp of the file's newest message, in ms since 1970. If the timestamp is unknown, the value is None and the
    file does not expire."""

    @property
    def end_offset_bytes(self) -> int:
        return self.start_offset_bytes + self.size_bytes


class Moment(msgspec.Struct, frozen=True):
    """The time, the log and the disks at the beginning of a round of retention."""

    now_ms: int
    hour: int
    """Hour of the day in local time, 0 to 23."""
    log_end_offset_bytes: int
    deletable_until_bytes: int
    """Physical offset up to which the log is synced and dispatched. A file that ends after this offset is still needed."""
    space: Space = Space()
    manual: bool = False
    """Whether an administrator requested this round of retention (request code 329)."""


class Reason(enum.Enum):
    """The reason for which a file of the commit log is deleted."""

    EXPIRED = "its messages are older than store.file_reserved_hours"
    BYTES = "the log is longer than store.retention_bytes"
    FORCIBLY = "the disk is nearly full"


class Deletion(msgspec.Struct, frozen=True):
    """A file of the commit log to delete, with the reason for the deletion."""

    file: LogFile
    reason: Reason

    def is_unexpired(self, now_ms: int, policy: RetentionPolicy) -> bool:
        """Return whether the file is deleted although its messages may not have expired, because the disk is nearly full."""
        newest_ms = self.file.newest_ms
        return self.reason is Reason.FORCIBLY and (newest_ms is None or now_ms - newest_ms < policy.reserved_ms)


def plan_deletions(files: Sequence[LogFile], moment: Moment, policy: RetentionPolicy) -> Iterator[Deletion]:
    """Return the files of the commit log to delete: at most ten, the oldest first, and never the log's last file.

    Args:
        files: all files of the log, in order.
        moment: the state at the beginning of the round.
        policy: the settings.
    """
    by_time = moment.hour in policy.delete_hours or moment.space.delete or moment.manual
    for file in files[:-1][:DELETE_FILES_MAX]:
        if file.end_offset_bytes > moment.deletable_until_bytes:
            return
        if by_time and moment.space.forcibly:
            reason = Reason.FORCIBLY
        elif by_time and file.newest_ms is not None and moment.now_ms - file.newest_ms >= policy.reserved_ms:
            reason = Reason.EXPIRED
        elif policy.retention_bytes and (moment.log_end_offset_bytes - file.end_offset_bytes >= policy.retention_bytes):
            reason = Reason.BYTES
        else:
            return
        yield Deletion(file, reason)


def is_held(file: LogFile, log_end_offset_bytes: int, policy: RetentionPolicy) -> bool:
    """Return whether a file with unread messages is kept instead of deleted, even on a nearly full disk."""
    return policy.hold_until_consumed and log_end_offset_bytes - file.start_offset_bytes <= policy.hold_max_bytes


class Bound(msgspec.Struct, frozen=True):
    """The reason why a file of the commit log is deleted although a consumer group has not consumed it."""

    measured: str
    key: str
    """Key of the setting that limits how long the file is kept for consumer groups."""


def bound_for_groups(deletion: Deletion, now_ms: int, policy: RetentionPolicy) -> Bound | None:
    """Return the reason why a commit log file is deleted although a consumer group has not read all messages in it.

    The group is named in the settings, so that files are kept for it. Return None if the file is kept for the group.

    Args:
        deletion: the planned deletion of the file.
        now_ms: the time in ms since 1970.
        policy: the settings, with the groups and the time for which files are kept for them.
    """
    if deletion.reason is Reason.FORCIBLY:
        return Bound(deletion.reason.value, "store.disk_forcible_ratio")
    newest_ms = deletion.file.newest_ms
    if newest_ms is not None and now_ms - newest_ms >= policy.keep_at_most_ms:
        hours = (now_ms - newest_ms) / _HOUR_MS
        return Bound(
            f"its newest message is {hours:.1f} hours old, {policy.keep_at_most_ms // _HOUR_MS} may be",
            "store.keep_at_most_hours",
        )
    return None

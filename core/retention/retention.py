"""Decides what may be deleted, and when the disk is full, without touching a disk (docs/internals/algorithms.md, Retention).

Everything here is a function of values. :mod:`flintmq.plugins.retention.cleaner` measures, asks, and does what is decided here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from flintmq.config.sections.store import StoreSection

DELETE_FILES_MAX: Final = 10
"""Commit log files deleted in one round: each costs the disk a moment, and rounds follow one another quickly."""
_HOUR_MS: Final = 3_600_000


class RetentionPolicy(msgspec.Struct, frozen=True):
    """The settings of retention."""

    reserved_ms: int
    """How long messages are kept."""
    delete_hours: frozenset[int]
    """Hours of the day at which expired files are deleted though there is room."""
    max_used_ratio: float
    """Used share of the disk (0 to 1) above which expired files are deleted at any hour."""
    forcible_ratio: float
    """Used share above which files that have not expired are deleted, too."""
    full_ratio: float
    """Used share above which writes are refused."""
    min_free_bytes: int
    """Free space below which writes are refused, whatever the ratios say; 0 is off."""
    enough_free_bytes: int
    """Free space from which on the disk is neither full nor nearly full; 0 is off."""
    clean_forcibly: bool
    """Whether ``forcible_ratio`` deletes at all."""
    retention_bytes: int
    """How much of the log is kept; what is older is deleted. 0 is off."""
    hold_until_consumed: bool
    """Whether files with unread messages are kept."""
    hold_max_bytes: int
    """How much of the log may be kept for that reason."""
    keep_for_groups: frozenset[str] = frozenset()
    """Groups for which files with messages that they have not read are kept."""
    keep_at_most_ms: int = 0
    """The age of its newest message, in ms, at which a file that is kept for groups is deleted all the same."""

    @classmethod
    def of(cls, section: StoreSection) -> RetentionPolicy:
        """Return the policy that a configuration asks for."""
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
    """The disk a folder lies on."""

    folder: Path
    total_bytes: int
    used_bytes: int
    free_bytes: int
    """What the broker may still write; less than ``total - used`` where blocks are reserved for root."""

    @property
    def used_ratio(self) -> float:
        """Return the used share as ``df`` shows it, 0 to 1."""
        usable = self.used_bytes + self.free_bytes
        return self.used_bytes / usable if usable > 0 else 1.0

    def __str__(self) -> str:
        return f"{self.used_ratio:.1%} used, {self.free_bytes} bytes free at {self.folder}"


class DiskFull(msgspec.Struct, frozen=True):
    """The reason why writes are refused."""

    measured: str
    key: str


class Space(msgspec.Struct, frozen=True):
    """What the disks ask for."""

    delete: bool = False
    """Whether expired files are deleted at any hour."""
    forcibly: bool = False
    """Whether the oldest files are deleted though they have not expired."""
    full: DiskFull | None = None
    """Why writes are refused; None where they are not."""

    def __or__(self, other: Space) -> Space:
        """Return what either of two asks for."""
        return Space(self.delete or other.delete, self.forcibly or other.forcibly, self.full or other.full)


def judge_disk(usage: DiskUsage, policy: RetentionPolicy) -> Space:
    """Return what one disk asks for."""
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
    """Return what the disks ask for together. Of the commit log's disks the least used one counts, as files can be made there.

    A disk that could not be measured is not among them, and asks for nothing (RocketMQ takes it for one to delete on).
    """
    found = Space()
    if log_disks:
        found = judge_disk(min(log_disks, key=lambda usage: usage.used_ratio), policy)
    return found | judge_disk(queue_disk, policy) if queue_disk is not None else found


def full_folders(log_disks: Sequence[DiskUsage], policy: RetentionPolicy) -> frozenset[Path]:
    """Return the folders of the commit log in which no file is made while another has room."""
    judged = ((usage, judge_disk(usage, msgspec.structs.replace(policy, clean_forcibly=True))) for usage in log_disks)
    return frozenset(usage.folder for usage, space in judged if space.forcibly)


# files


class LogFile(msgspec.Struct, frozen=True):
    """A file of the commit log."""

    start_offset_bytes: int
    size_bytes: int
    newest_ms: int | None
    """When its newest message was stored; None when that is unknown, and then it does not expire."""

    @property
    def end_offset_bytes(self) -> int:
        return self.start_offset_bytes + self.size_bytes


class Moment(msgspec.Struct, frozen=True):
    """The circumstances of one round."""

    now_ms: int
    hour: int
    """Hour of the day, local time."""
    log_end_offset_bytes: int
    deletable_until_bytes: int
    """The position up to which everything is synced and dispatched: a file behind it is still needed."""
    space: Space = Space()
    manual: bool = False
    """Whether a tool asked for this round (code 329)."""


class Reason(enum.Enum):
    """Why a file is deleted."""

    EXPIRED = "its messages are older than store.file_reserved_hours"
    BYTES = "the log is longer than store.retention_bytes"
    FORCIBLY = "the disk is nearly full"


class Deletion(msgspec.Struct, frozen=True):
    """One file to delete."""

    file: LogFile
    reason: Reason

    def is_unexpired(self, now_ms: int, policy: RetentionPolicy) -> bool:
        """Return whether messages go that have not expired, because the disk is nearly full."""
        newest_ms = self.file.newest_ms
        return self.reason is Reason.FORCIBLY and (newest_ms is None or now_ms - newest_ms < policy.reserved_ms)


def plan_deletions(files: Sequence[LogFile], moment: Moment, policy: RetentionPolicy) -> Iterator[Deletion]:
    """Return the files to delete, oldest first: from the first one on, never the last one, at most ten.

    Args:
        files: all of the log's, in order.
        moment: the circumstances.
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
    """Return whether a file with unread messages is kept although it should be deleted, also on a nearly full disk."""
    return policy.hold_until_consumed and log_end_offset_bytes - file.start_offset_bytes <= policy.hold_max_bytes


class Bound(msgspec.Struct, frozen=True):
    """Why a file goes that is kept for a group."""

    measured: str
    key: str
    """The setting to change."""


def bound_for_groups(deletion: Deletion, now_ms: int, policy: RetentionPolicy) -> Bound | None:
    """Return why a file that a named group has not consumed goes all the same; None where it is kept.

    Args:
        deletion: what would be done without such groups.
        now_ms: the time in ms since 1970.
        policy: names the groups, and how long files are kept for them.
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

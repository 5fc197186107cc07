"""The task of a lander, which copies the log to a landing zone; the task's result and errors."""

from __future__ import annotations

import attrs
import msgspec

from flintmq.core.errors import FlintError


@attrs.frozen
class LogSource:
    """The log to copy to a landing zone. A zone accepts only one log, and only while the log still contains all messages that
    have landed."""

    store_id: str
    """Id of the store, from the file ``flint/epochs``."""
    broker_name: str
    """Value of the column ``brokerName`` in all rows of the landing zone."""
    epochs: tuple[tuple[int, int], ...]
    """Number and start offset of each epoch of the log, oldest first. An epoch is a part of the log in which each physical
    offset was used only once."""

    @property
    def epoch(self) -> int:
        """The number of the log's current epoch; 0 if the log has no epochs."""
        return self.epochs[-1][0] if self.epochs else 0

    def cut_below(self, epoch: int, end_offset_bytes: int) -> int | None:
        """Return the lowest physical offset at which the log was truncated since a given epoch. The result is None if the log
        was not truncated below ``end_offset_bytes``."""
        starts = [start for number, start in self.epochs if number > epoch and start < end_offset_bytes]
        return min(starts) if starts else None


@attrs.frozen(kw_only=True)
class LandingTask:
    """The settings of a lander: the log, the landing zone, and the topics to copy. The settings are sent to the lander's
    process as JSON."""

    path: str
    """Path of the landing zone's folder."""
    format: str
    """Format of the landing zone: ``parquet`` or ``delta``."""
    compression: str
    topics: tuple[str, ...]
    """The topics to copy to the landing zone; empty to copy all topics."""
    include_system_topics: bool
    log_folders: tuple[str, ...]
    """Folders that contain the files of the commit log."""
    source: LogSource

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> LandingTask:
        return msgspec.json.decode(text, type=cls)


@attrs.frozen(kw_only=True)
class Landed:
    """The result of copying one part of the log to a landing zone."""

    committed_bytes: int
    """Physical offset up to which all messages are durably copied to the landing zone."""
    read_to_bytes: int
    """Physical offset up to which the log was read. This offset is larger than ``committed_bytes`` if the bytes from
    ``committed_bytes`` to this offset have no row."""
    rows: int = 0
    files: int = 0
    file_bytes: int = 0
    lost_bytes: int = 0
    """Number of bytes of the log that were deleted before the lander could copy the bytes to the landing zone."""


class LandingError(FlintError):
    """The landing zone cannot be used, and a retry does not help. The error's text says what to change."""


class LandingLossError(LandingError):
    """Retention deleted messages before they were copied to the landing zone.

    Args:
        message: which messages are gone, and the settings to change.
        lost_from_bytes: the physical offset up to which the log had landed.
        lost_to_bytes: the physical offset at which the log begins now.
    """

    def __init__(self, message: str, lost_from_bytes: int, lost_to_bytes: int) -> None:
        super().__init__(message)
        self.lost_from_bytes = lost_from_bytes
        self.lost_to_bytes = lost_to_bytes


class LandingTroubleError(FlintError):
    """A failure to copy messages to the landing zone that a retry may fix, such as a full disk or a dead process."""

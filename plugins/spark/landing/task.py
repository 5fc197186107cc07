"""What a lander is asked to do, what it answers, and what stops it."""

from __future__ import annotations

import attrs
import msgspec

from flintmq.core.errors import FlintError


@attrs.frozen
class LogSource:
    """Which log lands: one landing zone never mixes two histories."""

    store_id: str
    """The store's id (``flint/epochs``)."""
    broker_name: str
    """For the column ``brokerName``."""
    epochs: tuple[tuple[int, int], ...]
    """Number and start of each epoch of the log, oldest first."""

    @property
    def epoch(self) -> int:
        """The current epoch's number."""
        return self.epochs[-1][0] if self.epochs else 0

    def cut_below(self, epoch: int, end_offset_bytes: int) -> int | None:
        """Return where the log was cut since an epoch, if that is below a position: what lay behind it is no longer in
        the log."""
        starts = [start for number, start in self.epochs if number > epoch and start < end_offset_bytes]
        return min(starts) if starts else None


@attrs.frozen(kw_only=True)
class LandingTask:
    """A log, a landing zone, and what of the one is put into the other how. It crosses to the lander's process as JSON."""

    path: str
    """The landing zone's folder."""
    format: str
    """``parquet`` or ``delta``."""
    compression: str
    topics: tuple[str, ...]
    """Empty for all."""
    include_system_topics: bool
    log_folders: tuple[str, ...]
    """Where the commit log's files lie."""
    source: LogSource

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> LandingTask:
        return msgspec.json.decode(text, type=cls)


@attrs.frozen(kw_only=True)
class Landed:
    """What one step of landing did."""

    committed_bytes: int
    """Everything below this physical offset has landed for good."""
    read_to_bytes: int
    """How far the log was read: behind ``committed_bytes`` where nothing that lands was found."""
    rows: int = 0
    files: int = 0
    file_bytes: int = 0
    lost_bytes: int = 0
    """So much of the log was deleted before it could land."""


class LandingError(FlintError):
    """The landing zone cannot be used as it is; trying again does not help. Says what to change."""


class LandingLossError(LandingError):
    """Retention has deleted messages that had not landed.

    Args:
        message: what is gone, and the keys to change.
        lost_from_bytes: the physical offset where landing stood.
        lost_to_bytes: where the log begins now.
    """

    def __init__(self, message: str, lost_from_bytes: int, lost_to_bytes: int) -> None:
        super().__init__(message)
        self.lost_from_bytes = lost_from_bytes
        self.lost_to_bytes = lost_to_bytes


class LandingTroubleError(FlintError):
    """Something failed that may work later: a full disk, a process that died."""

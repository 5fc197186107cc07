"""What stops a landing zone. Each says what to change."""

from __future__ import annotations

from flintmq.core.errors import FlintError


class LandingError(FlintError):
    """The landing zone cannot be used as it is; trying again does not help."""


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

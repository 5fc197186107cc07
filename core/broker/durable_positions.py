"""Positions that are written once what they stand for is on disk."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class LogEnds(Protocol):
    """Where the log ends, in memory and on disk."""

    @property
    def wrote_offset_bytes(self) -> int:
        """End of the log."""
        ...

    @property
    def flushed_offset_bytes(self) -> int:
        """End of what is on disk."""
        ...


class DurablePositions(Generic[T]):
    """Holds positions back until the log is on disk as far as it went when they were taken. Loop thread.

    A position says that messages before it were delivered. On disk before their copies it loses them in a power cut: the
    copies are gone, and are not delivered again.

    Args:
        log: the log that holds the copies.
    """

    def __init__(self, log: LogEnds) -> None:
        self._log = log
        self._waiting: tuple[int, T] | None = None
        self.saved: T | None = None
        """What is written; the owner sets it when it has written."""

    def ready(self, current: T) -> T | None:
        """Return the positions to write now: the current ones, or those of an earlier call; None while there are none.

        Args:
            current: as they are; not changed later.
        """
        wrote, flushed = self._log.wrote_offset_bytes, self._log.flushed_offset_bytes
        if flushed >= wrote:
            self._waiting = None
            return current if current != self.saved else None
        if self._waiting is None and current != self.saved:
            self._waiting = (wrote, current)
        if self._waiting is None or self._waiting[0] > flushed:
            return None
        positions, self._waiting = self._waiting[1], None
        return positions

"""Determines when the positions up to which messages were delivered may be written to disk."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class LogEnds(Protocol):
    """A log whose end in memory may be after its end on disk."""

    @property
    def wrote_offset_bytes(self) -> int:
        """Physical offset up to which records have been appended to the log. The last of these records may be only in
        memory."""
        ...

    @property
    def flushed_offset_bytes(self) -> int:
        """Physical offset up to which the log is on disk."""
        ...


class DurablePositions(Generic[T]):
    """Determines when delivery positions may be written: not before the delivered messages are on disk. Used only on the event
    loop's thread.

    A delivery position means that all earlier messages were delivered, which means that copies of these messages were appended
    to the log. If the position were on disk before the copies, a power failure would lose the copies, and the messages would
    not be delivered again. Positions may therefore be written only when the part of the log that existed when they were passed
    to :meth:`ready` is on disk.

    Args:
        log: the log that contains the copies.
    """

    def __init__(self, log: LogEnds) -> None:
        self._log = log
        self._waiting: tuple[int, T] | None = None
        self.saved: T | None = None
        """Positions up to which a feature, such as delayed delivery, has delivered the messages of its queues, as last written
        to the feature's file. The feature sets this attribute at its start and after each write of the file."""

    def ready(self, current: T) -> T | None:
        """Return the delivery positions to write now; None if there is nothing to write, or if the delivered messages are not
        yet on disk. The returned positions are ``current``, or the positions that were passed to an earlier call.

        Args:
            current: the current positions. The caller must not change the object later.
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

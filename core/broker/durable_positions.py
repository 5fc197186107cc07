"""Delays the write of delivery positions until the delivered messages are on disk."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class LogEnds(Protocol):
    """A log with two ends, the end in memory and the end on disk."""

    @property
    def wrote_offset_bytes(self) -> int:
        """Physical offset of the log's end in memory."""
        ...

    @property
    def flushed_offset_bytes(self) -> int:
        """Physical offset up to which the log is on disk."""
        ...


class DurablePositions(Generic[T]):
    """Delays the write of delivery positions until the delivered messages are on disk. Loop thread.

    A position means that earlier messages were delivered: copies of them were appended to the log. If the position were on disk
    before the copies, a power failure would lose the copies, and the messages would not be delivered again. Positions may
    therefore be written when the log is on disk up to the end that the log had when the positions were passed to :meth:`ready`.

    Args:
        log: the log that contains the copies.
    """

    def __init__(self, log: LogEnds) -> None:
        self._log = log
        self._waiting: tuple[int, T] | None = None
        self.saved: T | None = None
        """Delivery positions of messages, as last written to their file. The user of this object sets the attribute after each
        write."""

    def ready(self, current: T) -> T | None:
        """Return delivery positions that may be written now; None if no positions may be written. They are the current
        positions, or the positions of an earlier call.

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

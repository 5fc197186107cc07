"""The positions (watermarks) up to which the commit log is written, committed, flushed, replicated and dispatched.

::

    min ≤ dispatched ≤ readable ≤ wrote          readable = committed, or flushed (and replicated) in synchronous modes

A position moves only forward, after the operation that it describes is done. The loop thread sets ``wrote`` and ``dispatched``;
the flush service's threads set ``committed`` and ``flushed``. Any thread can read a position.
"""

from __future__ import annotations


class Watermarks:
    """The physical offsets, in bytes, up to which a commit log has been written, committed, flushed, replicated and dispatched.
    After a failed sync, :attr:`fence_reason` has the reason why the store acknowledges no more records."""

    __slots__ = ("committed", "dispatched", "fence_reason", "flushed", "replicated", "synchronous", "tail", "wrote")

    def __init__(self, *, synchronous: bool) -> None:
        self.wrote = 0
        self.tail: tuple[int, int] = (0, 0)
        """The physical offset of the log's written end, and the store time of the record that ends there. Both values are in
        one tuple, so that the flush service's thread reads consistent values."""
        self.committed = 0
        self.flushed = 0
        self.replicated: int | None = None
        """The physical offset up to which slaves have acknowledged the log; None if reads do not wait for slaves."""
        self.dispatched = 0
        self.synchronous = synchronous
        """Whether only synced records are acknowledged and readable. If so, a crash cannot lose a record that was read."""
        self.fence_reason: str | None = None
        """Reason why the store acknowledges no more records (the fence); None if the store is not fenced."""

    @property
    def readable(self) -> int:
        """The physical offset up to which records of the log can be dispatched and read."""
        ceiling = self.flushed if self.synchronous else self.committed
        if self.replicated is not None and self.replicated < ceiling:
            ceiling = self.replicated
        return ceiling

    def set_all(self, offset_bytes: int) -> None:
        """Set all watermarks of the log after a recovery. The log is on disk up to the given physical offset."""
        self.wrote = self.committed = self.flushed = offset_bytes

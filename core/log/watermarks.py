"""Every position of the commit log in one object.

::

    min ≤ dispatched ≤ readable ≤ wrote          readable = committed, or flushed (and replicated) in synchronous modes

A position moves only after what it stands for has happened, and only forward. ``wrote`` and ``dispatched`` belong to the
loop thread, ``committed`` and ``flushed`` to the flush service's. Reading a position from any thread is safe.
"""

from __future__ import annotations


class Watermarks:
    """The positions, in bytes from the log's beginning, and the fence."""

    __slots__ = ("committed", "dispatched", "fence_reason", "flushed", "replicated", "synchronous", "tail", "wrote")

    def __init__(self, *, synchronous: bool) -> None:
        self.wrote = 0
        self.tail: tuple[int, int] = (0, 0)
        """``wrote`` and the store time of the record that ends there, of one moment: for the flush service's thread."""
        self.committed = 0
        self.flushed = 0
        self.replicated: int | None = None
        """None when nothing waits for a slave."""
        self.dispatched = 0
        self.synchronous = synchronous
        """Whether an acknowledgement stands for a sync: then nothing is read that a crash could still take back."""
        self.fence_reason: str | None = None
        """Why nothing is acknowledged any more; None while all is well."""

    @property
    def readable(self) -> int:
        """The ceiling for dispatch and reads."""
        ceiling = self.flushed if self.synchronous else self.committed
        if self.replicated is not None and self.replicated < ceiling:
            ceiling = self.replicated
        return ceiling

    def set_all(self, offset_bytes: int) -> None:
        """After recovery: everything up to here is on disk."""
        self.wrote = self.committed = self.flushed = offset_bytes

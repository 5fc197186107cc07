"""One file of a log, mapped, with the positions up to which it was written, committed and flushed.

See docs/internals/algorithms.md, Mapped files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.core.io.disk import MappedRegion

if TYPE_CHECKING:
    from flintmq.core.kernel.ports import FileWriter

OS_PAGE_BYTES = 4096
HEAD_BYTES = 8
"""Of several records the first one's size and magic are written last, see :meth:`MappedFile.append`."""
IN_ORDER_BYTES = 8 * 1024
"""From this size on a system call, which writes in order, costs less than a copy through the map."""


class MappedFile:
    """One file of a log. ``wrote``, ``committed`` and ``flushed`` are positions within it."""

    __slots__ = (
        "_step",
        "buffer",
        "committed",
        "flushed",
        "grown",
        "named",
        "path",
        "region",
        "size",
        "start",
        "unsynced",
        "view",
        "wrote",
    )

    def __init__(self, path: Path, start: int, size: int, region: MappedRegion, step: int) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.region = region
        self.view = region.view
        self.buffer: memoryview | None = None
        """The transient pool's buffer that appends go to, if any."""
        self._step = step
        self.grown = 0
        """How far the file is backed by disk, as far as this object made sure."""
        self.named = False
        """Whether a sync has made its name durable, too."""
        self.wrote = 0
        self.committed = 0
        self.flushed = 0
        self.unsynced = False
        """Whether there may be more to sync than positions tell: what a crashed process wrote, or what was cut."""

    def grow(self, end: int) -> None:
        """Back the file by disk up to a position, in steps. Raises StoreFullError, and then nothing has changed."""
        if end > self.grown:
            grown = min(self.size, -(-end // self._step) * self._step)
            self.region.allocate(grown)
            self.grown = grown

    def append(self, data: bytes, *, head_last: bool = False) -> None:
        """Write behind what was written; the caller has made it grow so far.

        ``head_last`` is for several records at once. A copy need not go in order, and a kill in the middle of one could leave
        whole records behind one that is torn. So the first 8 bytes come when the rest is there: while they are zeros nothing
        behind them was acknowledged, or seen by anybody. Many bytes are written in order instead.
        """
        wrote = self.wrote
        if self.buffer is None:
            if not head_last:
                self.region.write(wrote, data)
            elif len(data) >= IN_ORDER_BYTES:
                self.region.write_in_order(wrote, data)
            else:
                self.region.write(wrote + HEAD_BYTES, memoryview(data)[HEAD_BYTES:])
                self.region.write(wrote, data[:HEAD_BYTES])
        else:
            self.buffer[wrote : wrote + len(data)] = data
        self.wrote = wrote + len(data)

    def append_in_order(self, data: bytes) -> None:
        """Write records of many appends, which were not stored at one time, from the first byte to the last. Raises OSError."""
        wrote = self.wrote
        if self.buffer is None:
            self.region.write_in_order(wrote, data)
        else:
            self.buffer[wrote : wrote + len(data)] = data
        self.wrote = wrote + len(data)

    @property
    def readable(self) -> int:
        """How far the mapped pages hold what was appended."""
        return self.wrote if self.buffer is None else self.committed

    def commit(self, write: FileWriter | None = None) -> None:
        """Copy what waits in the pool's buffer into the file's pages, or have it written."""
        wrote = self.wrote
        # Behind a BLANK nothing was written, and behind ``grown`` the disk may have no room: a write there is fatal.
        end = min(wrote, self.grown)
        if self.buffer is None or end <= self.committed:
            self.committed = wrote
            return
        if write is not None:
            write(self.path, self.buffer, self.committed, end)
        else:
            # Many appends: a kill in the middle must not leave later ones behind one that is torn.
            self.region.write_in_order(self.committed, self.buffer[self.committed : end])
        self.committed = wrote

    def flush(self, *, written_through: bool = False) -> int:
        """Sync the file; returns the position that is now durable. Raises OSError, and then nothing has moved.

        ``written_through``: what was committed from a buffer is durable already.
        """
        end = self.readable
        if not (written_through and self.buffer is not None and self.named and not self.unsynced):
            self.unsynced = False  # first: what is cut meanwhile must be synced once more
            try:
                self.region.sync()
            except OSError:
                self.unsynced = True
                raise
            self.named = True
        if end == self.size:
            self.region.let_go()  # first: a file that is full and synced may be deleted by another thread
        self.flushed = end
        return end

    def next_data(self, position: int) -> int:
        """Return a place at or behind another before which there are only zeros; the file's size where nothing follows."""
        return self.region.next_data(position)

    def set_positions(self, position: int) -> None:
        """Note, after a recovery, that everything up to a position is on disk, and that nothing behind it counts."""
        self.wrote = self.committed = self.flushed = position

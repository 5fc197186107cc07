"""Writes a buffer's new bytes to a file, durably and in whole pages. The last page is written repeatedly until it is full.

The new bytes are those from position ``begin`` to position ``end`` of the buffer. A byte has the same position in the file and
in the buffer.

::

    file     |■■■■■■■■|■■■■■■■■|■■■     |        |        one page each
    buffer   |■■■■■■■■|■■■■■■■■|■■■●●●●●|●●      |        ● = new, from ``begin`` to ``end``
    written                    [────────|────────]        all pages that contain new bytes

Bytes before ``begin`` are already in the file and are written unchanged, so a power cut during the write cannot damage them.
Bytes after ``end`` are zeros or the beginning of records that nobody waits for yet. Recovery treats an incomplete record as the
end of the log.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Final, Literal

log = logging.getLogger("flintmq.direct_flush")

PAGE_BYTES: Final = 4096
"""Size of a memory page, and the largest alignment that a file system requires for direct writes."""

Mode = Literal["direct", "dsync"]


class SyncedWriter:
    """A :class:`flintmq.core.kernel.ports.FileWriter` that opens each file itself. Used on the flush thread.

    Args:
        mode: ``direct`` writes past the page cache (O_DIRECT and O_DSYNC) if the file system supports it; ``dsync`` writes
            through the page cache (O_DSYNC), so that reads soon afterwards find the pages in memory.
    """

    def __init__(self, mode: Mode) -> None:
        self._direct = mode == "direct"
        self._path: Path | None = None
        self._fd = -1
        self.writes = 0
        """Number of calls of ``pwrite`` that the writer has made."""

    def __call__(self, path: Path, buffer: memoryview, begin: int, end: int) -> None:
        # If the file's size is not a multiple of a page, writing whole pages would make the file longer.
        whole_pages = len(buffer) % PAGE_BYTES == 0
        if path != self._path:
            self.close()
            self._fd = self._open(path, direct=self._direct and whole_pages)
            self._path = path
        if whole_pages:
            begin -= begin % PAGE_BYTES
            end += -end % PAGE_BYTES
        while begin < end:
            # The with statement releases the slice, so that no traceback of a stored exception keeps the buffer's memory.
            with buffer[begin:end] as piece:
                written = os.pwrite(self._fd, piece, begin)
            self.writes += 1
            if written < min(PAGE_BYTES, end - begin):
                raise OSError(errno.EIO, f"only {written} bytes were written", str(path))
            begin += written - written % PAGE_BYTES if begin + written < end else written

    @staticmethod
    def _open(path: Path, *, direct: bool) -> int:
        flags = os.O_WRONLY | os.O_DSYNC | os.O_CLOEXEC
        if direct:
            try:
                return os.open(path, flags | os.O_DIRECT)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                log.warning("%s: its file system knows no direct writes: they go through the page cache", path)
        return os.open(path, flags)

    def close(self) -> None:
        """Close the file's descriptor. Idempotent; a later call of the writer opens a new descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._path = -1, None

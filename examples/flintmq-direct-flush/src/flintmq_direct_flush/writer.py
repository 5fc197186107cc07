"""Writes a buffer's new bytes to a file, durably, by whole pages: the tail's page is written again and again until it is full.

::

    file     |■■■■■■■■|■■■■■■■■|■■■     |        |        one page each
    buffer   |■■■■■■■■|■■■■■■■■|■■■●●●●●|●●      |        ● = new
    written                    [────────|────────]        from the page that ``begin`` lies in to the end of ``end``'s

What is written again is what the file holds already, so a sector that is torn there was torn before. Behind ``end`` lie zeros,
or the beginning of records without a waiter yet: recovery takes a record that is not whole for the end of the log.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Final, Literal

log = logging.getLogger("flintmq.direct_flush")

PAGE_BYTES: Final = 4096
"""No file system asks for a larger alignment of direct writes than a page."""

Mode = Literal["direct", "dsync"]


class SyncedWriter:
    """A :class:`flintmq.core.kernel.ports.FileWriter` with a descriptor of its own. Flush thread.

    Args:
        mode: ``direct`` writes past the page cache (O_DIRECT and O_DSYNC), where the file system can; ``dsync`` through it
            (O_DSYNC), which leaves the pages in memory for reads that come soon.
    """

    def __init__(self, mode: Mode) -> None:
        self._direct = mode == "direct"
        self._path: Path | None = None
        self._fd = -1
        self.writes = 0
        """Calls of pwrite so far."""

    def __call__(self, path: Path, buffer: memoryview, begin: int, end: int) -> None:
        whole_pages = len(buffer) % PAGE_BYTES == 0  # else the last page would make the file longer
        if path != self._path:
            self.close()
            self._fd = self._open(path, direct=self._direct and whole_pages)
            self._path = path
        if whole_pages:
            begin -= begin % PAGE_BYTES
            end += -end % PAGE_BYTES
        while begin < end:
            with buffer[begin:end] as piece:  # released at once: an error that is kept must not keep the pool's memory
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
        """Gives the descriptor back. Idempotent; another call of the writer opens a new one."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._path = -1, None

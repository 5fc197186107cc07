"""A log file that is opened again after somebody moved it away: logrotate(8) needs to signal nobody."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from pathlib import Path

from flintmq.programs.cli.log_lines import OwnOutput
from flintmq.programs.cli.output_thread import OutputThread, write_all

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class LogFile(OwnOutput):
    """Appends whole lines to a file, so that several processes may write to one. Any thread.

    Before each write it looks whether its path still names the file that it has open. A line that cannot be written, because
    the disk is full or the folder is gone, is reported on stderr, and the next one is tried again.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = self._path = file
        self.thread: OutputThread | None = None
        """Writes the lines; None where the thread that logs them does."""
        self._descriptor: int | None = None
        try:
            self._open(os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:  # a FIFO that nobody reads yet: to open it would wait for a reader
                raise

    def _open(self, more_flags: int = 0) -> int:
        opened = os.open(self._path, _FLAGS | more_flags, 0o666)
        os.set_blocking(opened, True)
        self._descriptor = opened
        return opened

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
            if self.thread is not None:
                self.thread.put(line)
            else:
                self.write(line)
        except Exception:
            self.handleError(record)

    def write(self, lines: bytes) -> None:
        """Append lines; open the file again before where its path names another one. Raises ``OSError``."""
        descriptor = self._descriptor
        if descriptor is not None and self._is_moved(descriptor):
            self._descriptor = None
            os.close(descriptor)
            descriptor = None
        write_all(self._open() if descriptor is None else descriptor, lines)

    def _is_moved(self, descriptor: int) -> bool:
        try:
            named, opened = os.stat(self._path), os.fstat(descriptor)  # noqa: PTH116 - as cheap as can be
        except FileNotFoundError:
            return True
        return (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino)

    def close(self) -> None:
        """Close the file, unless a thread may be writing to it. Idempotent."""
        descriptor = self._descriptor
        if self.thread is None and descriptor is not None:
            self._descriptor = None
            with contextlib.suppress(OSError):
                os.close(descriptor)
        super().close()

"""A log file that is reopened after it was moved, so that logrotate(8) need not send a signal."""

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
    """Appends whole lines to a file, so that several processes may write to one file. Can be used from any thread.

    Before each write, the log handler checks whether its path still names the open file. If a line cannot be written, because
    the disk is full or the folder is gone, the handler reports the error on stderr, and tries again with the next line.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = self._path = file
        self.thread: OutputThread | None = None
        """The thread that writes the log file's lines; None if each thread that logs writes its own lines."""
        self._descriptor: int | None = None
        try:
            self._open(os.O_NONBLOCK)
        except OSError as error:
            # ENXIO means that the log file is a FIFO without a reader.
            # ENXIO is ignored, because write() opens the FIFO again, and waits for a reader.
            # O_NONBLOCK is set, because os.open() without O_NONBLOCK would wait for a reader of the FIFO.
            if error.errno != errno.ENXIO:
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
        """Append lines, after reopening the file if its path names another file. Raises OSError."""
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

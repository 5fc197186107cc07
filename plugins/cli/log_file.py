"""A log file that is opened again after somebody moved it away: logrotate(8) needs to signal nobody."""

from __future__ import annotations

import logging
from logging.handlers import WatchedFileHandler
from pathlib import Path

from flintmq.plugins.cli.log_lines import OwnOutput


class LogFile(OwnOutput, WatchedFileHandler):
    """Appends whole lines to a file, so that several processes may write to one. Any thread.

    Before each line it looks whether its path still names the file that it has open. A line that cannot be written, because the
    disk is full or the folder is gone, is reported on stderr, and the next one is tried again.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, file: Path) -> None:
        WatchedFileHandler.__init__(self, file, encoding="utf-8")
        self.file = file

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # of looking or opening: what fails while writing has been reported by then
            self.handleError(record)

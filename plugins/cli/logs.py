"""Logging of the command line: to stderr, so that stdout carries results only."""

from __future__ import annotations

import enum
import logging
import sys
from typing import TextIO

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogLevel(enum.StrEnum):
    """What is logged, and everything more important."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(level: LogLevel) -> None:
    """Have FlintMQ's and asyncio's loggers write to stderr; the level of the last call counts."""
    flintmq = logging.getLogger("flintmq")
    flintmq.setLevel(level.upper())
    for logger in (flintmq, logging.getLogger("asyncio")):
        for handler in [handler for handler in logger.handlers if isinstance(handler, _StderrHandler)]:
            logger.removeHandler(handler)
        logger.addHandler(_StderrHandler())


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what stderr is at the time. The class tells FlintMQ's handlers from others."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(logging.Formatter(FORMAT))

    @property
    def stream(self) -> TextIO:
        return sys.stderr

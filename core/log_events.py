"""Writes lines of the log that programs can read: each has a stable id, a text, and named values.

Each call contains all three, so that a text may change while its id stays. docs/log-events.md is derived from the calls, and a
test checks them. Lines that other code writes to FlintMQ's loggers are written unchanged, without an id.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from flintmq.core.client_log import ESCAPE, Gate, printable

ExcInfo: TypeAlias = bool | BaseException | None


class EventLog:
    """A logger whose methods take the id of an event, a text, and the values in the text as keywords. Can be used from any
    thread.

    ``log.warning("acl.not_read_again", "the accounts stay as they are: %(error)s", error=error)`` writes the text with its
    values. The record has the attributes ``event``, which is the id, and ``fields``, which has the values keyed by name. Ids
    and texts must be literals. The names in a text must be the keywords in the same order; tests/core/test_log_events.py checks
    that. ``exc_info`` is an exception to write with its traceback, or whether to write the current exception.

    Args:
        logger: the logger that writes the lines, with its level, filters and handlers.
    """

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line at the level DEBUG, for developers."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, event, text, exc_info, fields)

    def info(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line at the level INFO, about a normal event."""
        if self._logger.isEnabledFor(logging.INFO):
            self._write(logging.INFO, event, text, exc_info, fields)

    def warning(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line at the level WARNING, about an event that an operator may have to check."""
        if self._logger.isEnabledFor(logging.WARNING):
            self._write(logging.WARNING, event, text, exc_info, fields)

    def error(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line at the level ERROR, about a failure."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._write(logging.ERROR, event, text, exc_info, fields)

    def exception(self, event: str, text: str, /, *, exc_info: ExcInfo = True, **fields: object) -> None:
        """Write a line at the level ERROR, about a failure, with the traceback of the current exception."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._write(logging.ERROR, event, text, exc_info, fields)

    def critical(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line at the level CRITICAL, about an event that keeps the server from working."""
        if self._logger.isEnabledFor(logging.CRITICAL):
            self._write(logging.CRITICAL, event, text, exc_info, fields)

    def log(self, level: int, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line at a numeric level of :mod:`logging`."""
        if self._logger.isEnabledFor(level):
            self._write(level, event, text, exc_info, fields)

    def _write(self, level: int, event: str, text: str, exc_info: ExcInfo, fields: Mapping[str, object]) -> None:
        extra = {"event": event, "fields": fields}
        values = (fields,) if fields else ()
        # With stacklevel 3, the log record gets the file and line of the code that called the logger's public method.
        self._logger.log(level, text, *values, exc_info=exc_info, extra=extra, stacklevel=3)


def event_log(name: str) -> EventLog:
    """Return the logger with a name, as a log of events. Control characters in its lines and tracebacks are escaped."""
    logger = logging.getLogger(name)
    if ESCAPE not in logger.filters:
        logger.addFilter(ESCAPE)
    return EventLog(logger)


def client_log(name: str) -> EventLog:
    """Return the logger with a name, for lines that clients cause.

    The lines are escaped and truncated. Below ERROR, lines with the same text are limited to
    :data:`~flintmq.core.client_log.LINES_PER_S` per second. The next such line contains the number of suppressed lines.
    """
    logger = logging.getLogger(name)
    if not any(isinstance(known, Gate) for known in logger.filters):
        # The filter ``Gate`` must run before the filter ``ESCAPE``, because Gate counts log lines by their templates.
        # The filter ``ESCAPE`` replaces the template of a log record with the final text.
        logger.filters.insert(0, Gate())
    return EventLog(logger)


class JsonFormatter(logging.Formatter):
    """Formats each record as a line of JSON with time, level, logger, event, message, fields and error. Can be used from any
    thread.

    Args:
        broker: name of the broker to add to each line, if several processes write to one log; empty for none.
    """

    def __init__(self, broker: str = "") -> None:
        super().__init__()
        self._broker = broker

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line of JSON, without a line break at its end."""
        fields: Mapping[str, object] = getattr(record, "fields", {})
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "event": getattr(record, "event", ""),
            "message": record.getMessage(),
            "fields": {name: _plain(value) for name, value in fields.items()},
        }
        if self._broker:
            told["broker"] = self._broker
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told)


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, (bool, int, float)) else printable(str(value))

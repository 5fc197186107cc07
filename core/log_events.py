"""Lines of the log that programs can read: each has a stable id, and names for the values in its text.

A call says all three, so that a text may change and its id stay. docs/log-events.md is derived from the calls, and a test
refuses one that says less. Lines that others write to FlintMQ's loggers pass as they are, without an id.
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
    """A logger whose calls say what their lines are about: an id, a text, and the values of the text as keywords. Any thread.

    ``log.warning("acl.not_read_again", "the accounts stay as they are: %(error)s", error=error)`` writes the text with its
    values. The record has the attributes ``event``, the id, and ``fields``, the values by name. Ids and texts are literals, and
    the names in a text are the keywords, in the same order: tests/core/test_log_events.py holds that. ``exc_info`` is an
    exception to write with its traceback, or whether to write the one that is handled.

    Args:
        logger: what the lines go to; its level, filters and handlers hold.
    """

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line for developers."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, event, text, exc_info, fields)

    def info(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line about what happens as it should."""
        if self._logger.isEnabledFor(logging.INFO):
            self._write(logging.INFO, event, text, exc_info, fields)

    def warning(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line about what somebody may have to look at."""
        if self._logger.isEnabledFor(logging.WARNING):
            self._write(logging.WARNING, event, text, exc_info, fields)

    def error(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line about what has failed."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._write(logging.ERROR, event, text, exc_info, fields)

    def exception(self, event: str, text: str, /, *, exc_info: ExcInfo = True, **fields: object) -> None:
        """Write a line about what has failed, with the traceback of the exception that is handled."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._write(logging.ERROR, event, text, exc_info, fields)

    def critical(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line about what keeps the server from its work."""
        if self._logger.isEnabledFor(logging.CRITICAL):
            self._write(logging.CRITICAL, event, text, exc_info, fields)

    def log(self, level: int, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line of a level of :mod:`logging`."""
        if self._logger.isEnabledFor(level):
            self._write(level, event, text, exc_info, fields)

    def _write(self, level: int, event: str, text: str, exc_info: ExcInfo, fields: Mapping[str, object]) -> None:
        extra = {"event": event, "fields": fields}
        values = (fields,) if fields else ()
        # The third frame is the caller's: its file and line are those of the record.
        self._logger.log(level, text, *values, exc_info=exc_info, extra=extra, stacklevel=3)


def event_log(name: str) -> EventLog:
    """Return the log of that name. The control characters of its lines are escaped, also in a traceback."""
    logger = logging.getLogger(name)
    if ESCAPE not in logger.filters:
        logger.addFilter(ESCAPE)
    return EventLog(logger)


def client_log(name: str) -> EventLog:
    """Return the log of that name, for lines that strangers cause: they are escaped and cut, and below ERROR a kind of line
    comes at most :data:`~flintmq.core.client_log.LINES_PER_S` times a second, the next one saying how many were left out."""
    logger = logging.getLogger(name)
    if not any(isinstance(known, Gate) for known in logger.filters):
        logger.filters.insert(0, Gate())  # it tells lines apart by their texts, and ESCAPE leaves nothing of a text
    return EventLog(logger)


class JsonFormatter(logging.Formatter):
    """Writes each record as a line of JSON: time, level, logger, event, message, fields, error. Any thread.

    Args:
        broker: written with each line, where several processes write to one log; empty for none.
    """

    def __init__(self, broker: str = "") -> None:
        super().__init__()
        self._broker = broker

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
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

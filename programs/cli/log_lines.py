"""The format of log lines, for log outputs of every kind."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

from flintmq.core.client_log import escape_all, traceback_lines

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class OwnOutput(logging.Handler):
    """Base class of the log handlers that a command sets up. The class distinguishes them from log handlers of other code."""

    is_json = False
    file: Path | None = None
    """Absolute path of the file that the log handler writes; None if the handler writes to stderr."""

    def name_lines(self, name: str) -> None:
        """Add a process's name to each log line; an empty name is left out."""
        if self.is_json:
            from flintmq.core.log_events import JsonFormatter

            self.setFormatter(JsonFormatter(name))
        else:
            self.setFormatter(_Lines(_FORMAT.replace("%(name)s", f"{name} %(name)s") if name else _FORMAT))


class _Lines(logging.Formatter):
    """Formats log lines and escapes control characters in lines of libraries, whose loggers do not escape them. A peer may
    influence the text of asyncio's errors."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        return escape_all(super().formatMessage(record), "" if record.name.startswith("flintmq") else "\n").replace(
            "\n", "\n  "
        )

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base class's name
        return traceback_lines(super().formatException(ei))

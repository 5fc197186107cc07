"""Loggers for lines that strangers provoke: a stranger chooses neither where a line ends nor how many there are."""

from __future__ import annotations

import logging
import re
import time
from typing import Final

LINES_PER_S: Final = 20
"""Lines of one kind (one template) a second. More tell nothing new, and would fill a disk."""
LINE_MAX_CHARS: Final = 2_000
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def client_log(name: str) -> logging.Logger:
    """Return the logger of that name. What is logged through it is cut, its control characters are escaped, and below
    ERROR a kind of line comes at most :data:`LINES_PER_S` times a second, the next one saying how many were left
    out."""
    logger = logging.getLogger(name)
    if not any(isinstance(known, _Gate) for known in logger.filters):
        logger.addFilter(_Gate())
    return logger


def printable(text: str, max_chars: int = LINE_MAX_CHARS) -> str:
    """Text on one line, cut, with control characters as ``\\xNN``."""
    if len(text) > max_chars:
        text = f"{text[:max_chars]}..."
    return _UNPRINTABLE.sub(lambda match: ascii(match.group())[1:-1], text)


class _Gate(logging.Filter):
    """Counts lines by template. Thread-safe enough: a race may let a line too many pass."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[int, int]] = {}
        """Template → (second, lines in it). Templates are literals of this code, so they are few."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.levelno < logging.ERROR:
            template, second = str(record.msg), int(time.monotonic())
            last, lines = self._seen.get(template, (second, 0))
            left_out = max(0, lines - LINES_PER_S) if last != second else 0
            lines = lines + 1 if last == second else 1
            self._seen[template] = (second, lines)
            if lines > LINES_PER_S:
                return False
            if left_out:
                text = f"{text} ({left_out} more like it were left out)"
        record.msg, record.args = printable(text), ()
        return True

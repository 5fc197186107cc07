"""Lines of a log, and of a terminal, with text of somebody else in them: that text chooses neither where a line ends nor what a
terminal does, and strangers do not choose how many lines there are."""

from __future__ import annotations

import logging
import re
import time
from typing import Final

LINES_PER_S: Final = 20
"""Lines of one kind (one template) a second. More tell nothing new, and would fill a disk."""
LINE_MAX_CHARS: Final = 2_000
_ESCAPED_MAX_CHARS: Final = 20_000
"""Of a line that nobody provokes at will; some of them list much."""
UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1 controls
    "\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # direction, lines, no width
    "\ud800-\udfff\U000e0000-\U000e007f]"  # halves of characters, invisible tags
)
"""What ends a line, steers a terminal, turns the direction of writing, or cannot be written or seen."""


def printable(text: str, max_chars: int = LINE_MAX_CHARS) -> str:
    """Return text on one line, cut, with what ends a line, steers a terminal or turns the direction of writing as ``\\xNN``."""
    if len(text) > max_chars:
        text = f"{text[:max_chars]}..."
    return UNPRINTABLE.sub(lambda match: ascii(match.group())[1:-1], text)


def escape_all(text: str, keep: str = "") -> str:
    """Return text of any length as :func:`printable` does, but for the characters to keep."""
    return UNPRINTABLE.sub(lambda match: match.group() if match.group() in keep else ascii(match.group())[1:-1], text)


def traceback_lines(text: str) -> str:
    """Return a traceback with its control characters escaped, and indented: no line of it looks like one of the log."""
    return "\n".join(f"  {escape_all(line)}" for line in text.split("\n"))


class _Escape(logging.Filter):
    """Puts lines together, escaped, and lets all of them pass. Any thread."""

    def filter(self, record: logging.LogRecord) -> bool:
        self._write(record, record.getMessage(), _ESCAPED_MAX_CHARS)
        return True

    def _write(self, record: logging.LogRecord, text: str, max_chars: int) -> None:
        record.msg, record.args = printable(text, max_chars), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = traceback_lines(_TRACEBACKS.formatException(record.exc_info))


ESCAPE: Final = _Escape()
_TRACEBACKS: Final = logging.Formatter()


class Gate(_Escape):
    """Puts lines together, escaped and cut, and below ERROR lets at most :data:`LINES_PER_S` of a template pass in a second.

    Thread-safe enough: a race may let a line too many pass.
    """

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
        self._write(record, text, LINE_MAX_CHARS)
        return True

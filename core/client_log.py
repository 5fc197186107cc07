"""Safe logging of text from clients. The logged text cannot break lines, control a terminal, or flood the log."""

from __future__ import annotations

import logging
import re
from typing import Final

from flintmq.core.io.clock import SYSTEM_CLOCK

LINES_PER_S: Final = 20
"""Maximum number of lines per second that the log contains for one template of a log message; more lines would only fill the
disk."""
LINE_MAX_CHARS: Final = 2_000
_ESCAPED_MAX_CHARS: Final = 20_000
"""Maximum length of a line in the log that no client can cause, for example a line that lists many items."""
UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # The first ranges of the pattern match the control characters C0 and C1.
    # The ranges from \xad to \ufffb match the soft hyphen, marks of direction, line separators and zero-width characters.
    "\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"  # The ranges from \ud800 to \U000e007f match surrogates and tag characters.
)
"""Pattern of characters that end a line, control a terminal, change the writing direction, or are invisible."""


def printable(text: str, max_chars: int = LINE_MAX_CHARS) -> str:
    """Return text on one line, cut to ``max_chars``, with the characters of :data:`UNPRINTABLE` escaped as ``\\xNN``."""
    if len(text) > max_chars:
        text = f"{text[:max_chars]}..."
    return escape_all(text)


def escape_all(text: str, keep: str = "") -> str:
    """Return text escaped like :func:`printable`, but not cut, and without escaping the characters in ``keep``."""
    # translate() with a table is used, because a function called for each character takes 40 ms for 64 KiB of zeros.
    found = set(UNPRINTABLE.findall(text)).difference(keep)
    return text.translate({ord(character): ascii(character)[1:-1] for character in found}) if found else text


def traceback_lines(text: str) -> str:
    """Return a traceback with control characters escaped and all lines indented, so that no line of it looks like a log
    line."""
    return "\n".join(f"  {escape_all(line)}" for line in text.split("\n"))


class _Escape(logging.Filter):
    """A logging filter that formats and escapes every record, and drops none. Can be used from any thread."""

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
    """A logging filter that formats, escapes and cuts log records, and limits the number of records below ERROR.

    Per second the filter passes at most :data:`LINES_PER_S` records with the same template. Any thread; a race can let an extra
    line pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[int, int]] = {}
        """Second in which log records with a template were last logged, and number of log lines in that second; keyed by
        template. A template is the text of a log record before its arguments are inserted (``LogRecord.msg``). Templates are
        literals in the source, so their number is small."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.levelno < logging.ERROR:
            template, second = str(record.msg), int(SYSTEM_CLOCK.monotonic_s())
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

"""What counts as a fault of a server that is fuzzed, as far as its log tells."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Faults(logging.Handler):
    """Keeps what a log must not have: an exception nobody foresaw, and a line that a stranger's bytes broke or coloured."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []
        self.lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += 1
        if record.levelno < logging.INFO:
            return
        text = record.getMessage()
        if (record.exc_info and record.exc_info[0] is not None) or record.name == "asyncio":
            self.found.append(logging.Formatter("%(name)s %(message)s").format(record)[-3000:])
        elif _CONTROL.search(text):
            self.found.append(f"control characters in a line of {record.name}: {text[:300]!r}")
        elif len(text) > 4_000:
            self.found.append(f"a line of {len(text)} characters of {record.name}: {text[:300]!r}")


@contextlib.contextmanager
def watched_log() -> Iterator[Faults]:
    """Sees everything that is logged meanwhile, instead of pytest, which would keep it all. Fails when a fault was seen."""
    handler = Faults()
    loggers = [logging.getLogger(name) for name in ("flintmq", "asyncio")]
    before = [(logger, logger.level, logger.propagate, logger.handlers) for logger in loggers]
    for logger in loggers:
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False
    try:
        yield handler
    finally:
        for logger, level, propagate, handlers in before:
            logger.handlers = handlers
            logger.setLevel(level)
            logger.propagate = propagate
    assert not handler.found, f"{len(handler.found)} faults\n" + "\n\n".join(handler.found[:40])

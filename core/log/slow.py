"""Logs slow operations of the store: a warning for an append, flush or commit that takes more than half a second.

The text and the limit are RocketMQ's (CommitLog, DefaultMessageStore, FlushRealTimeService, CommitRealTimeService), so that log
monitors for RocketMQ find these lines. A stalled disk makes many operations slow at once, so at most one line per second and
kind is written, with the number of operations since the last line.
"""

from __future__ import annotations

from typing import Final

import msgspec

from flintmq.core.io.clock import Clock
from flintmq.core.log_events import event_log

SLOW_S: Final = 0.5
"""Duration in seconds above which an operation is logged as slow."""
_PAUSE_S: Final = 1.0
"""Minimum time in seconds between two log lines about slow operations of the same kind."""

log = event_log("flintmq.store")


class SlowOperation(msgspec.Struct, frozen=True):
    """The time and duration of a slow operation of the store."""

    at_s: float
    """The time at which the operation ended, on the monotonic clock, in seconds."""
    took_ms: int


class SlowLog:
    """Logs the store's slow operations of one kind. One thread; :attr:`last` can be read by any thread.

    Args:
        clock: the source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_s: float | None = None
        self._untold = 0
        self.last: SlowOperation | None = None
        """The last slow operation; None if no operation was slow."""

    def warn(self, took_s: float, text: str) -> None:
        """Log a slow operation of the store, or count it for the next log line if the last line is less than a second old."""
        now_s = self._clock.monotonic_s()
        self.last = SlowOperation(now_s, round(took_s * 1000))
        if self._told_s is not None and now_s - self._told_s < _PAUSE_S:
            self._untold += 1
            return
        more = f"; {self._untold} more since the last line" if self._untold else ""
        self._told_s, self._untold = now_s, 0
        log.warning("store.slow", "%(what)s%(more)s", what=text, more=more)

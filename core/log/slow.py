"""Logs that the store was slow: one warning for an append, a flush or a commit that took more than half a second.

The words and the bound are RocketMQ's (CommitLog, DefaultMessageStore, FlushRealTimeService, CommitRealTimeService), so that
what watches its logs finds them here. A disk that stands still makes everybody slow at once: of each kind one line a second is
written, and it says how many it stands for.
"""

from __future__ import annotations

from typing import Final

import msgspec

from flintmq.core.io.clock import Clock
from flintmq.core.log_events import event_log

SLOW_S: Final = 0.5
"""An operation that takes longer is logged."""
_PAUSE_S: Final = 1.0
"""Between two lines of one kind."""

log = event_log("flintmq.store")


class SlowOperation(msgspec.Struct, frozen=True):
    """An operation that took too long."""

    at_s: float
    """When it ended, by the clock that never moves back."""
    took_ms: int


class SlowLog:
    """The lines of one kind of operation. One thread; :attr:`last` may be read by any.

    Args:
        clock: time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_s: float | None = None
        self._untold = 0
        self.last: SlowOperation | None = None
        """The last operation that was slow; None where none was."""

    def warn(self, took_s: float, text: str) -> None:
        """Write a line about an operation that took so long, or count it towards the next one."""
        now_s = self._clock.monotonic_s()
        self.last = SlowOperation(now_s, round(took_s * 1000))
        if self._told_s is not None and now_s - self._told_s < _PAUSE_S:
            self._untold += 1
            return
        more = f"; {self._untold} more since the last line" if self._untold else ""
        self._told_s, self._untold = now_s, 0
        log.warning("store.slow", "%(what)s%(more)s", what=text, more=more)

"""A flush strategy that delays a sync so that more waiters share it; the delay depends on the duration of earlier syncs."""

from __future__ import annotations

from typing import Final

import attrs

from flintmq import GroupCommit
from flintmq.core.kernel.ports import FlushContext

_WEIGHT: Final = 0.2
"""Weight of the newest sync in the moving average of the syncs' durations. The average follows a change of the disk's speed
within about five syncs."""


@attrs.frozen(kw_only=True)
class AdaptiveGroupCommitSection:
    """The section ``flush.adaptive_group_commit`` of the configuration."""

    sync_flush_timeout_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
    """Longest time in ms that a send's acknowledgment waits for the sync of the sent message."""
    interval_ms: int = attrs.field(default=10, validator=attrs.validators.ge(1))
    """Interval in ms between two syncs of the log while no acknowledgment waits for a sync."""
    linger_percent: int = attrs.field(
        default=20, validator=attrs.validators.and_(attrs.validators.ge(0), attrs.validators.le(100))
    )
    """Delay before a sync of the log, in percent of the usual duration of a sync."""
    max_linger_ms: int = attrs.field(default=4, validator=attrs.validators.ge(0))
    """Longest delay in ms before a sync of the log, however long a sync usually takes."""


class AdaptiveGroupCommit(GroupCommit):
    """Group commit that delays a sync if more than one waiter shared the previous sync."""

    def __init__(self, context: FlushContext[AdaptiveGroupCommitSection]) -> None:
        super().__init__(context)
        settings = context.settings
        self._linger_ratio = settings.linger_percent / 100
        self._max_linger_s = settings.max_linger_ms / 1000
        self._usual_sync_s = 0.0
        self._had_company = False

    def linger_s(self) -> float:
        """Return the delay before the next sync of the log, in seconds. Called on the flush thread."""
        if not self._had_company:
            return 0.0
        return min(self._usual_sync_s * self._linger_ratio, self._max_linger_s)

    def gather(self) -> None:
        self._usual_sync_s += _WEIGHT * (self.last_sync_s - self._usual_sync_s)
        linger_s = self.linger_s()
        if linger_s:
            self.pause(linger_s)
        self._had_company = self.waiting > 1

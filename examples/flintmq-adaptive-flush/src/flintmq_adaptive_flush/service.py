"""The strategy: how long a sync may wait for company, from what syncs have been taking."""

from __future__ import annotations

from typing import Final

import attrs

from flintmq import GroupCommit
from flintmq.core.kernel.ports import FlushContext

_WEIGHT: Final = 0.2
"""Of the newest sync in the moving average: some five syncs until a disk's new pace is known."""


@attrs.frozen(kw_only=True)
class AdaptiveGroupCommitSection:
    """``flush.adaptive_group_commit:`` of the configuration."""

    sync_flush_timeout_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
    """How long an acknowledgement waits for its sync."""
    interval_ms: int = attrs.field(default=10, validator=attrs.validators.ge(1))
    """How often bytes without a waiter are synced."""
    linger_percent: int = attrs.field(
        default=20, validator=attrs.validators.and_(attrs.validators.ge(0), attrs.validators.le(100))
    )
    """Percent of a sync's usual time to wait for company."""
    max_linger_ms: int = attrs.field(default=4, validator=attrs.validators.ge(0))
    """Never wait longer than this."""


class AdaptiveGroupCommit(GroupCommit):
    """Group commit that lets waiters gather when the sync before had more than one."""

    def __init__(self, context: FlushContext[AdaptiveGroupCommitSection]) -> None:
        super().__init__(context)
        settings = context.settings
        self._linger_ratio = settings.linger_percent / 100
        self._max_linger_s = settings.max_linger_ms / 1000
        self._usual_sync_s = 0.0
        self._had_company = False

    def linger_s(self) -> float:
        """How long the next sync would wait, in seconds. Flush thread."""
        if not self._had_company:
            return 0.0
        return min(self._usual_sync_s * self._linger_ratio, self._max_linger_s)

    def gather(self) -> None:
        self._usual_sync_s += _WEIGHT * (self.last_sync_s - self._usual_sync_s)
        linger_s = self.linger_s()
        if linger_s:
            self.pause(linger_s)
        self._had_company = self.waiting > 1

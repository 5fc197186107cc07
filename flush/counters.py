"""Counters of a flush service."""

from __future__ import annotations

from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import FlushableLog, FlushStatistics


class SyncCounter:
    """Calls ``log.flush`` and counts what it did. Flush thread only; reading the counters is safe from any thread."""

    def __init__(self, log: FlushableLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._syncs = 0
        self._synced_bytes = 0
        self._sync_time_s = 0.0
        self.last_sync_s = 0.0
        """How long the newest sync that moved the position took."""

    def flush(self, least_pages: int) -> int:
        """Call ``log.flush``, measure it, and return the flushed position."""
        before_bytes = self._log.flushed_offset_bytes
        began_s = self._clock.monotonic_s()
        flushed_bytes = self._log.flush(least_pages)
        if flushed_bytes > before_bytes:
            self.last_sync_s = self._clock.monotonic_s() - began_s
            self._syncs += 1
            self._synced_bytes += flushed_bytes - before_bytes
            self._sync_time_s += self.last_sync_s
        return flushed_bytes

    def flush_to(self, target_bytes: int, least_pages: int = 0) -> int:
        """Flush until the target is reached or a call makes no progress: a call handles one file.

        The target is fixed beforehand: chasing the written position would never end under load.
        """
        flushed_bytes = self._log.flushed_offset_bytes
        while flushed_bytes < target_bytes:
            before_bytes = flushed_bytes
            flushed_bytes = self.flush(least_pages)
            if flushed_bytes <= before_bytes:
                break
        return flushed_bytes

    def statistics(self, waiters: int, timeouts: int) -> FlushStatistics:
        return FlushStatistics(
            syncs=self._syncs,
            synced_bytes=self._synced_bytes,
            waiters=waiters,
            timeouts=timeouts,
            sync_time_s=self._sync_time_s,
        )

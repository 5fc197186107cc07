"""The pending waiters of one sync, between ``submit``, the flush thread and the deadline watcher."""

from __future__ import annotations

import threading

from flintmq.core.kernel.ports import FlushStatus
from flintmq.core.waiters import FENCED, CompletedWaiter, PendingWaiter


class PendingWaiters:
    """Waiters in the order they were submitted. Thread-safe; callbacks always run outside its lock.

    One lock, held for a list operation, is cheaper here than anything cleverer: the common case (one sync covers all)
    swaps the whole list. Once closed it hands out :data:`~flintmq.core.waiters.FENCED`, so no waiter can be left behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiter_lock = threading.Lock()
        self._pending: list[PendingWaiter] = []
        self._newest_end_bytes = 0
        self._closed = False
        self._completed = 0
        self._timeouts = 0

    @property
    def newest_end_bytes(self) -> int:
        """Return the furthest position that is waited for; 0 without a waiter."""
        return self._newest_end_bytes

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def completed(self) -> int:
        """Return how many waiters have been completed, with any status."""
        return self._completed

    @property
    def timeouts(self) -> int:
        """Return how many waiters ended with TIMEOUT."""
        return self._timeouts

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, end_offset_bytes: int, deadline_s: float) -> PendingWaiter | CompletedWaiter:
        """Return a new pending waiter; FENCED once closed."""
        waiter = PendingWaiter(end_offset_bytes, deadline_s, self._waiter_lock)
        with self._lock:
            if self._closed:
                self._completed += 1
                return FENCED
            self._pending.append(waiter)
            if end_offset_bytes > self._newest_end_bytes:
                self._newest_end_bytes = end_offset_bytes
        return waiter

    def count_completed(self) -> None:
        """Count a waiter that was complete when it was made."""
        with self._lock:
            self._completed += 1

    def complete_flushed(self, flushed_offset_bytes: int) -> int:
        """Complete the waiters up to this position with FLUSHED. Return how many."""
        with self._lock:
            if self._newest_end_bytes <= flushed_offset_bytes:
                done, self._pending = self._pending, []
            else:
                done = [w for w in self._pending if w.end_offset_bytes <= flushed_offset_bytes]
                self._keep([w for w in self._pending if w.end_offset_bytes > flushed_offset_bytes])
            if not self._pending:
                self._newest_end_bytes = 0
            self._completed += len(done)
        for waiter in done:
            waiter.complete(FlushStatus.FLUSHED)
        return len(done)

    def complete_expired(self, now_s: float) -> float | None:
        """Complete the waiters whose deadline has passed with TIMEOUT. Return the next deadline, None without a waiter."""
        with self._lock:
            expired = [w for w in self._pending if w.deadline_s <= now_s]
            if expired:
                self._keep([w for w in self._pending if w.deadline_s > now_s])
            self._completed += len(expired)
            self._timeouts += len(expired)
            next_deadline_s = min((w.deadline_s for w in self._pending), default=None)
        for waiter in expired:
            waiter.complete(FlushStatus.TIMEOUT)
        return next_deadline_s

    def close(self) -> int:
        """Complete all pending waiters with FENCED, and every later one. Return how many were pending."""
        with self._lock:
            self._closed = True
            left, self._pending = self._pending, []
            self._newest_end_bytes = 0
            self._completed += len(left)
        for waiter in left:
            waiter.complete(FlushStatus.FENCED)
        return len(left)

    def _keep(self, waiters: list[PendingWaiter]) -> None:
        self._pending = waiters
        self._newest_end_bytes = max((w.end_offset_bytes for w in waiters), default=0)

"""Gives promises that a slave holds what was appended: the second half of an acknowledgement under ``sync_master``.

A flush service gives a promise for the disk, this service one for the slaves: it is kept when any slave holds the position.
Without a slave in reach, or when all are too far behind, it ends at once. Each append has one promise, for all its messages.

See docs/internals/algorithms.md, Replication.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import FlushStatus, FlushWaiter
from flintmq.core.log.watermarks import Watermarks
from flintmq.core.waiters import DONE, CompletedWaiter, PendingWaiter, both

_TICK_S: Final = 1.0
_NOT_AVAILABLE: Final = CompletedWaiter(FlushStatus.SLAVE_NOT_AVAILABLE)
"""No slave is in reach."""


class GroupTransferService:
    """Knows how far each slave holds the log, and ends the promises that depend on it. Loop thread.

    Args:
        watermarks: the log's; ``replicated`` is moved here, and nothing behind it is read.
        clock: time.
        timeout_ms: how long a promise stays open before it ends with SLAVE_TIMEOUT.
        fallbehind_max_bytes: a slave that is further behind is none.
    """

    def __init__(self, watermarks: Watermarks, clock: Clock, *, timeout_ms: int, fallbehind_max_bytes: int) -> None:
        self._watermarks = watermarks
        self._clock = clock
        self._timeout_s = timeout_ms / 1000
        self._fallbehind_max_bytes = fallbehind_max_bytes
        self._slaves: dict[object, int] = {}
        self._waiting: deque[PendingWaiter] = deque()
        self._lock = threading.Lock()
        self._closed = False
        watermarks.replicated = watermarks.wrote

    def joined(self, slave: object, held_offset_bytes: int) -> None:
        """Take note of a slave that follows and holds the log up to a position."""
        self._slaves[slave] = held_offset_bytes
        self.holds(slave, held_offset_bytes)

    def left(self, slave: object) -> None:
        """Take note that a slave follows no longer. What it holds still counts."""
        self._slaves.pop(slave, None)

    def holds(self, slave: object, held_offset_bytes: int) -> bool:
        """Take a slave's report of how far it holds the log; return whether any slave holds more than before."""
        self._slaves[slave] = held_offset_bytes
        replicated = self._watermarks.replicated
        if replicated is None or held_offset_bytes <= replicated:
            return False
        self._watermarks.replicated = held_offset_bytes
        waiting = self._waiting
        while waiting and waiting[0].end_offset_bytes <= held_offset_bytes:
            waiting.popleft().complete(FlushStatus.FLUSHED)
        return True

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        """Return a promise that a slave will hold the log up to a position. Positions only grow from call to call."""
        replicated = self._watermarks.replicated or 0
        if end_offset_bytes <= replicated:
            return DONE
        newest = max(self._slaves.values(), default=None)
        if self._closed or newest is None or end_offset_bytes - newest >= self._fallbehind_max_bytes:
            return _NOT_AVAILABLE
        waiter = PendingWaiter(end_offset_bytes, self._clock.monotonic_s() + self._timeout_s, self._lock)
        self._waiting.append(waiter)
        return waiter

    def promise(self, end_offset_bytes: int, flushed: FlushWaiter) -> FlushWaiter:
        """See :class:`~flintmq.core.kernel.ports.ReplicationGate`."""
        return both(flushed, self.submit(end_offset_bytes))

    def expire(self) -> float:
        """End the promises whose time is up; return after how many seconds to call again."""
        now_s = self._clock.monotonic_s()
        waiting = self._waiting
        while waiting and waiting[0].deadline_s <= now_s:
            waiting.popleft().complete(FlushStatus.SLAVE_TIMEOUT)
        return min(_TICK_S, self._timeout_s, waiting[0].deadline_s - now_s if waiting else _TICK_S)

    def close(self) -> None:
        """End every promise; from now on no slave counts. Messages that no slave holds stay invisible."""
        self._closed = True
        self._slaves.clear()
        while self._waiting:
            self._waiting.popleft().complete(FlushStatus.SLAVE_TIMEOUT)

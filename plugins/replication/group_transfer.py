"""Delays the acknowledgements of a sync master until a slave has received the messages.

Each append gets a *waiter*, an object that completes when any slave has the log up to the end of the append. If no slave is
connected, or if all slaves are too far behind the master, the waiter completes at once.

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
"""Completed waiter for an append, with the status SLAVE_NOT_AVAILABLE. It is used if no slave is connected, or if all slaves
are too far behind the master."""


class GroupTransferService:
    """Records how much of the log each slave has, and completes the waiters of appends that a slave has received; RocketMQ's
    GroupTransferService. Used only on the event loop's thread.

    Args:
        watermarks: the positions of the log. This service sets the position ``replicated``. Consumers cannot read records after
            this position.
        clock: the clock of the broker.
        timeout_ms: time after which a waiter ends with SLAVE_TIMEOUT.
        fallbehind_max_bytes: a slave that is at least this number of bytes behind the log's end is not waited for.
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
        """Add a connected slave that has the log up to a physical offset."""
        self._slaves[slave] = held_offset_bytes
        self.holds(slave, held_offset_bytes)

    def left(self, slave: object) -> None:
        """Remove a slave that has disconnected. Consumers can still read all records that the slave has reported as
        received."""
        self._slaves.pop(slave, None)

    def holds(self, slave: object, held_offset_bytes: int) -> bool:
        """Process a slave's report of its physical offset, and complete the waiters up to this offset.

        Args:
            slave: the slave.
            held_offset_bytes: physical offset up to which the slave has the log.

        Returns:
            Whether the offset is greater than that of all earlier reports.
        """
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
        """Return a waiter that is done when a slave has the log up to a physical offset.

        Offsets must not decrease from call to call.
        """
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
        """Return a waiter that is done when a flush is done and a slave has the log up to a physical offset, see
        :class:`~flintmq.core.kernel.ports.ReplicationGate`."""
        return both(flushed, self.submit(end_offset_bytes))

    def expire(self) -> float:
        """Complete, with SLAVE_TIMEOUT, the waiters whose timeout has passed. Return the seconds until the next call is due."""
        now_s = self._clock.monotonic_s()
        waiting = self._waiting
        while waiting and waiting[0].deadline_s <= now_s:
            waiting.popleft().complete(FlushStatus.SLAVE_TIMEOUT)
        return min(_TICK_S, self._timeout_s, waiting[0].deadline_s - now_s if waiting else _TICK_S)

    def close(self) -> None:
        """Complete all waiters with SLAVE_TIMEOUT. Later appends do not wait for slaves. Consumers still cannot read messages
        that no slave has received."""
        self._closed = True
        self._slaves.clear()
        while self._waiting:
            self._waiting.popleft().complete(FlushStatus.SLAVE_TIMEOUT)

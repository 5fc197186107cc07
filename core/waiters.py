"""Waiters for durability: objects that complete when records are flushed to the local disk, or replicated to a slave.

They implement the interface :class:`flintmq.core.kernel.ports.FlushWaiter`. Flush services return waiters for the disk.
Objects of :class:`flintmq.core.kernel.ports.ReplicationGate` return waiters for a slave.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final

from flintmq.core.kernel.ports import FlushStatus, FlushWaiter
from flintmq.core.log_events import event_log

_LOG = event_log("flintmq.flush")


class CompletedWaiter:
    """A waiter for durability whose status is final from the start. Immutable, so one object serves every caller and thread."""

    __slots__ = ("_status",)

    def __init__(self, status: FlushStatus) -> None:
        self._status = status

    @property
    def status(self) -> FlushStatus:
        return self._status

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        """Call the callback immediately, because the waiter's status is final from the start."""
        callback(self._status)

    def __repr__(self) -> str:
        return f"<CompletedWaiter {self._status.value}>"


DONE: Final = CompletedWaiter(FlushStatus.FLUSHED)
"""Completed waiter for durability with the status FLUSHED. Asynchronous flush strategies return this waiter, because a sender
does not wait for their syncs. It is also returned for positions in the log that are already flushed or replicated."""

FENCED: Final = CompletedWaiter(FlushStatus.FENCED)
"""The waiter with status FENCED, for positions that must never be acknowledged: after a failed sync, or after a stop."""


class PendingWaiter:
    """A waiter for durability that is completed once, by the first thread that tries. Thread-safe.

    Args:
        end_offset_bytes: the physical offset up to which the log must be durable, or replicated to a slave.
        deadline_s: the time on the monotonic clock at which waiting ends with a timeout.
        lock: guards the change of status. The waiters of a service share one lock, because creating a lock costs more than
            acquiring one. The lock is never held during a callback.
    """

    __slots__ = ("_callbacks", "_lock", "_status", "deadline_s", "end_offset_bytes")

    def __init__(self, end_offset_bytes: int, deadline_s: float, lock: threading.Lock) -> None:
        self.end_offset_bytes = end_offset_bytes
        self.deadline_s = deadline_s
        self._status: FlushStatus | None = None
        self._callbacks: tuple[Callable[[FlushStatus], None], ...] = ()
        self._lock = lock

    @property
    def status(self) -> FlushStatus | None:
        return self._status

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        """Call the callback once with the waiter's final status: now if the waiter is complete, otherwise on the thread that
        completes it."""
        with self._lock:
            status = self._status
            if status is None:
                self._callbacks += (callback,)
                return
        callback(status)

    def complete(self, status: FlushStatus) -> bool:
        """Set the waiter's final status and call its callbacks. Return False, without effect, if the status was already final.

        An exception of a callback is logged, and the other callbacks, which belong to other requests, are still called.
        """
        with self._lock:
            if self._status is not None:
                return False
            self._status = status
            callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            try:
                callback(status)
            except Exception:
                _LOG.exception(
                    "flush.callback_failed", "a flush waiter's callback raised: %(callback)r", callback=callback
                )
        return True

    def __repr__(self) -> str:
        state = self._status.value if self._status else "pending"
        return f"<PendingWaiter to {self.end_offset_bytes} {state}>"


def both(flush: FlushWaiter, transfer: FlushWaiter) -> FlushWaiter:
    """Return a waiter that completes when two waiters are complete: the waiter for this broker's disk *and* the waiter for a
    slave.

    If the status of one waiter is already FLUSHED, the other waiter is returned. A failed sync completes the returned waiter at
    once. Otherwise the slave's status takes precedence over the disk's, as in RocketMQ: if both time out, the send is answered
    with FLUSH_SLAVE_TIMEOUT.
    """
    if transfer.status is FlushStatus.FLUSHED:
        return flush
    if flush.status is FlushStatus.FLUSHED:
        return transfer
    joined = PendingWaiter(0, math.inf, threading.Lock())
    done: dict[str, FlushStatus] = {}

    def one_done(which: str, status: FlushStatus) -> None:
        done[which] = status
        if FlushStatus.FENCED in done.values():
            joined.complete(FlushStatus.FENCED)
        elif len(done) == 2:
            joined.complete(done["transfer" if done["transfer"] is not FlushStatus.FLUSHED else "flush"])

    flush.add_done_callback(lambda status: one_done("flush", status))
    transfer.add_done_callback(lambda status: one_done("transfer", status))
    return joined

"""Promises of durability, which flush services and the replication gate return (``FlushWaiter`` of the ports)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final

from flintmq.core.kernel.ports import FlushStatus, FlushWaiter
from flintmq.core.log_events import event_log

_LOG = event_log("flintmq.flush")


class CompletedWaiter:
    """A waiter whose status is final from the start. Immutable, so one object serves every caller and thread."""

    __slots__ = ("_status",)

    def __init__(self, status: FlushStatus) -> None:
        self._status = status

    @property
    def status(self) -> FlushStatus:
        return self._status

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        """Call back at once."""
        callback(self._status)

    def __repr__(self) -> str:
        return f"<CompletedWaiter {self._status.value}>"


DONE: Final = CompletedWaiter(FlushStatus.FLUSHED)
"""The promise is kept already: every asynchronous ``submit``, and positions that are flushed or replicated."""

FENCED: Final = CompletedWaiter(FlushStatus.FENCED)
"""The position must never be acknowledged: after a failed sync, and after the service has stopped."""


class PendingWaiter:
    """A waiter that is completed once, by the first thread that tries. Thread-safe.

    Args:
        end_offset_bytes: the physical offset that must be durable, or held by a slave.
        deadline_s: on the clock's monotonic scale, when waiting ends with a timeout.
        lock: guards the change of status; waiters of one service share theirs, because making one costs more than
            taking it. Never held while something is called back.
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
        """Call back once: at once on this thread when done, else on the thread that completes the waiter."""
        with self._lock:
            status = self._status
            if status is None:
                self._callbacks += (callback,)
                return
        callback(status)

    def complete(self, status: FlushStatus) -> bool:
        """Make the status final and call back. Return False, and do nothing, when it was final already.

        A callback that raises is logged and does not keep the others from being called: they belong to other requests.
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
    """Return one promise of two: durable here *and* held by a slave. Where one is kept already, return the other.

    A failed sync ends it at once. Otherwise the status of the slave counts before the status of the disk, as in RocketMQ: a
    send for which both are late is answered FLUSH_SLAVE_TIMEOUT.
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

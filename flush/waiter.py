"""Promises of durability: what ``submit`` returns (see :class:`flintmq.core.kernel.ports.FlushWaiter`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from flintmq.core.kernel.ports import FlushStatus

_LOG = logging.getLogger("flintmq.flush")


class CompletedWaiter:
    """A waiter that was final from the start. Immutable, so one object serves every caller and thread."""

    __slots__ = ("_status",)

    def __init__(self, status: FlushStatus) -> None:
        self._status = status

    @property
    def status(self) -> FlushStatus:
        return self._status

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        callback(self._status)

    def __repr__(self) -> str:
        return f"<CompletedWaiter {self._status.value}>"


DONE: Final = CompletedWaiter(FlushStatus.FLUSHED)
"""For what is as durable as the strategy promises already: every asynchronous ``submit``, and flushed positions."""

FENCED: Final = CompletedWaiter(FlushStatus.FENCED)
"""For what must never be acknowledged: after a failed sync and after the service stopped."""


class PendingWaiter:
    """A waiter that is completed once, by whichever thread comes first. Thread-safe.

    Args:
        end_offset_bytes: physical offset that must be durable.
        deadline_s: on the clock's monotonic scale, when waiting ends with TIMEOUT.
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
        """Calls back once: at once on this thread when done, else on the thread that completes the waiter."""
        with self._lock:
            status = self._status
            if status is None:
                self._callbacks += (callback,)
                return
        callback(status)

    def complete(self, status: FlushStatus) -> bool:
        """Makes the status final and calls back. Returns False, and does nothing, when it was final already.

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
                _LOG.exception("a flush waiter's callback raised: %r", callback)
        return True

    def __repr__(self) -> str:
        state = self._status.value if self._status else "pending"
        return f"<PendingWaiter to {self.end_offset_bytes} {state}>"

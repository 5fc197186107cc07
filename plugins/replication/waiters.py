"""Promises that a slave holds a position, and those of disk and slave as one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from flintmq.core.kernel.ports import FlushStatus, FlushWaiter


class DoneTransfer:
    """A promise whose end is known."""

    def __init__(self, status: FlushStatus) -> None:
        self._status = status

    @property
    def status(self) -> FlushStatus:
        return self._status

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        callback(self._status)


HELD: Final = DoneTransfer(FlushStatus.FLUSHED)
"""A slave holds it already."""
NOT_AVAILABLE: Final = DoneTransfer(FlushStatus.SLAVE_NOT_AVAILABLE)
"""No slave is in reach."""


class TransferWaiter:
    """A promise that a slave will hold a position. Loop thread, but for ``status``."""

    __slots__ = ("_callbacks", "_status", "deadline_s", "end_offset_bytes")

    def __init__(self, end_offset_bytes: int, deadline_s: float) -> None:
        self.end_offset_bytes = end_offset_bytes
        self.deadline_s = deadline_s
        self._status: FlushStatus | None = None
        self._callbacks: list[Callable[[FlushStatus], None]] = []

    @property
    def status(self) -> FlushStatus | None:
        return self._status

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        """Calls back once, on the loop thread; at once when it is done."""
        if self._status is None:
            self._callbacks.append(callback)
        else:
            callback(self._status)

    def complete(self, status: FlushStatus) -> None:
        """Makes the status final and calls back."""
        if self._status is None:
            self._status = status
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                callback(status)


class BothWaiter:
    """Durable here *and* held by a slave. Thread-safe.

    A failed sync ends it at once. Otherwise what became of the slave counts before what became of the disk, as in
    RocketMQ: a send that neither did in time is answered FLUSH_SLAVE_TIMEOUT.
    """

    __slots__ = ("_callbacks", "_first", "_lock", "_status")

    def __init__(self, flush: FlushWaiter, transfer: FlushWaiter) -> None:
        self._lock = threading.Lock()
        self._status: FlushStatus | None = None
        self._callbacks: list[Callable[[FlushStatus], None]] = []
        self._first: dict[str, FlushStatus] = {}
        flush.add_done_callback(lambda status: self._one_done("flush", status))
        transfer.add_done_callback(lambda status: self._one_done("transfer", status))

    @property
    def status(self) -> FlushStatus | None:
        return self._status

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        """Calls back once: at once when both are done, else on the thread of the last one."""
        with self._lock:
            if self._status is None:
                self._callbacks.append(callback)
                return
        callback(self._status)

    def _one_done(self, which: str, status: FlushStatus) -> None:
        with self._lock:
            self._first[which] = status
            if self._status is not None or (len(self._first) < 2 and status is not FlushStatus.FENCED):
                return
            flush, transfer = self._first.get("flush"), self._first.get("transfer")
            if FlushStatus.FENCED in (flush, transfer):
                self._status = FlushStatus.FENCED
            else:
                self._status = transfer if transfer is not FlushStatus.FLUSHED else flush
            final, callbacks = self._status, self._callbacks
            self._callbacks = []
        assert final is not None
        for callback in callbacks:
            callback(final)


def both(flush: FlushWaiter, transfer: FlushWaiter) -> FlushWaiter:
    """One promise of two: the one that is still open where the other is kept already."""
    if transfer.status is FlushStatus.FLUSHED:
        return flush
    if flush.status is FlushStatus.FLUSHED:
        return transfer
    return BothWaiter(flush, transfer)

"""The sends that wait for the end of the loop iteration in which they arrived, and are then stored with one append.

With ``admission.fast_failure`` those that have waited too long are refused (docs/internals/algorithms.md, Flow control)::

    read ──► waits for the end of the loop's turn ──► append ──► flush ──► answer
         └─ admission.send_wait_ms ─┘                └─ admission.page_cache_busy_ms ─┘

RocketMQ looks at its queue every 10 ms; here the time is known for each read when its turn comes. What one thread does, it
does in order: while an append takes long nothing is read, so the reads of the turn that follows have waited for it in the
sockets. Both are answered SYSTEM_BUSY, with a remark that says where the time was spent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from flintmq.config.sections.models import AdmissionSection
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.processor import Request
from flintmq.core.response_code import ResponseCode

SHARE_BYTES: Final = 4 * 1024 * 1024
"""Bodies taken in one iteration of the loop, as many as a largest batch has. What is left waits for the next iteration."""

StoreShare = Callable[[list[Request], int], "Iterator[None] | None"]
"""Stores sends, given the bytes of their bodies. Returns None when it is done, or, where that is too much for one iteration of
the loop, the steps that are left, one for each iteration."""


class SendQueue:
    """Gathers sends and hands them over in shares, one share at a time. Loop thread.

    Args:
        store: stores one share. What it raises costs the sends of that share their answers, and no others.
        loop: the broker's.
        at_turn_end: calls back at the end of an iteration of the loop, when every socket that was ready has been read.
    """

    def __init__(
        self,
        store: StoreShare,
        loop: Callable[[], asyncio.AbstractEventLoop],
        at_turn_end: Callable[[Callable[[], None]], None],
    ) -> None:
        self._store = store
        self._at_turn_end = at_turn_end
        self._loop = loop
        self._pending: list[Request] = []
        self._is_draining = False
        """Whether the pending sends will be taken without being asked for."""

    def __len__(self) -> int:
        """Return how many sends wait."""
        return len(self._pending)

    def add(self, batch: list[Request]) -> None:
        """Keep the sends of one read until every socket that is ready in this iteration has been read."""
        if not self._is_draining:
            self._is_draining = True
            self._at_turn_end(self._drain)
        self._pending += batch

    def _drain(self) -> None:
        steps = None
        try:
            steps = self._store(*self._take())
        finally:
            if steps is None:
                self._go_on()
        if steps is not None:
            self._loop().call_soon(self._step, steps)

    def _step(self, steps: Iterator[None]) -> None:
        """Do one step of a large share; what arrives meanwhile is stored after it."""
        is_done = True
        try:
            for _ in steps:
                is_done = False
                break
        finally:
            if is_done:
                self._go_on()
        if not is_done:
            self._loop().call_soon(self._step, steps)

    def _go_on(self) -> None:
        self._is_draining = bool(self._pending)
        if self._is_draining:
            self._loop().call_soon(self._drain)

    def _take(self) -> tuple[list[Request], int]:
        """Return the sends of the next share, and the bytes of their bodies."""
        pending, self._pending = self._pending, []
        sizes = [len(request.body) for request in pending]
        size_bytes = sum(sizes)
        if size_bytes > SHARE_BYTES:
            while len(sizes) > 1 and size_bytes > SHARE_BYTES:
                size_bytes -= sizes.pop()
            self._pending = pending[len(sizes) :]
            del pending[len(sizes) :]
        return pending, size_bytes


_SOON_S: Final = 0.1
"""What is read so soon after an append may have waited for its end."""
_TEXT: Final = "broker busy, start flow control for a while, period in queue: %.0fms, size of queue: %d"


class FastFailure:
    """Knows when the waiting sends were read, and how long the append before them took. Loop thread."""

    def __init__(self) -> None:
        self._reads: list[tuple[float, int, float]] = []
        """(when, sends in it, seconds of the append they have waited for)"""
        self._append_s = 0.0
        self._append_end_s = -_SOON_S

    def arrived(self, now_s: float, count: int) -> None:
        """Note a read with so many sends."""
        self._reads.append((now_s, count, self._append_s if now_s - self._append_end_s < _SOON_S else 0.0))

    def appended(self, end_s: float, took_s: float) -> None:
        """Note an append."""
        self._append_end_s, self._append_s = end_s, took_s

    def overdue(
        self, pending: list[Request], now_s: float, admission: AdmissionSection, left: int = 0
    ) -> list[tuple[Request, RefusedError]]:
        """Return the waiting sends to refuse, and why; the others may be appended. Each is judged once.

        Args:
            pending: the sends to be stored now, in the order of their arrival.
            left: how many came after them, and wait for the next iteration of the loop.
        """
        if sum(count for _, count, _ in self._reads) != len(pending) + left:
            self._reads.clear()  # switched on in between: of some it is not known when they were read
            return []
        found: list[tuple[Request, RefusedError]] = []
        at = 0
        while at < len(pending):
            read_s, count, append_s = self._reads[0]
            taken = min(count, len(pending) - at)
            error = self._why((now_s - read_s) * 1000, append_s * 1000, len(pending), admission)
            if error is not None:
                found += [(request, error) for request in pending[at : at + taken]]
            at += taken
            if taken == count:
                del self._reads[0]
            else:
                self._reads[0] = (read_s, count - taken, append_s)
        return found

    @staticmethod
    def _why(waited_ms: float, append_ms: float, size: int, admission: AdmissionSection) -> RefusedError | None:
        if append_ms > admission.page_cache_busy_ms:
            return RefusedError(
                ResponseCode.SYSTEM_BUSY,
                "[PCBUSY_CLEAN_QUEUE]" + _TEXT % (append_ms + waited_ms, size),
                reason="admission.page_cache_busy",
                measured=f"up to {append_ms:.0f} ms in its socket, as an append took so long, {waited_ms:.0f} ms in the "
                "event loop",
                key="admission.page_cache_busy_ms (osPageCacheBusyTimeOutMills)",
            )
        if waited_ms > admission.send_wait_ms:
            return RefusedError(
                ResponseCode.SYSTEM_BUSY,
                "[TIMEOUT_CLEAN_QUEUE]" + _TEXT % (waited_ms, size),
                reason="admission.send_wait",
                measured=f"{waited_ms:.0f} ms in the event loop between its read and its append, the append before took "
                f"{append_ms:.0f} ms",
                key="admission.send_wait_ms (waitTimeMillsInSendQueue)",
            )
        return None

"""The sends that wait for the end of the loop iteration in which they arrived, and are then stored with one append."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from flintmq.core.kernel.ports.processor import Request

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
        """The sends of the next share, and the bytes of their bodies."""
        pending, self._pending = self._pending, []
        sizes = [len(request.body) for request in pending]
        size_bytes = sum(sizes)
        if size_bytes > SHARE_BYTES:
            while len(sizes) > 1 and size_bytes > SHARE_BYTES:
                size_bytes -= sizes.pop()
            self._pending = pending[len(sizes) :]
            del pending[len(sizes) :]
        return pending, size_bytes

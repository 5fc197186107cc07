"""The figures of one moment as plain numbers, and how the loop gathers them without keeping clients waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NotInTime
from typing import Final

import attrs

from flintmq.plugins.metrics.samples import Samples

SLICE_S: Final = 0.001
"""How long the loop gathers at once; what is left comes with its next turn."""
APART_S: Final = 0.1
"""At least so long lies between the beginnings of two snapshots, however many ask: the loop is the clients'."""


class NoSnapshotError(Exception):
    """The loop has not answered; the text says why."""


@attrs.frozen
class Snapshot:
    """Figures of one moment. Safe to share between threads."""

    samples: Samples
    took_s: float
    """The loop's time that they took."""


class Snapshots:
    """Asks the loop for snapshots, one at a time. Any thread but the loop's.

    Args:
        loop: the broker's.
        gather: begins to gather; the iterator goes on a little with each step. Called and advanced on the loop's thread.
        timeout_s: how long to wait for the loop.
        series_max: how many series a snapshot has at most.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        gather: Callable[[Samples], Iterator[None]],
        timeout_s: float,
        series_max: int = 20_000,
    ) -> None:
        self._loop = loop
        self._gather = gather
        self._timeout_s = timeout_s
        self._series_max = series_max
        self._lock = threading.Lock()
        self._next_s = 0.0
        self._closed = threading.Event()
        self._asked: Future[Snapshot] | None = None

    def take(self) -> Snapshot:
        """Return a snapshot that was begun after the call.

        Raises:
            NoSnapshotError: the loop is blocked, or the broker stops.
            Exception: gathering failed.
        """
        until_s = self._loop.time() + self._timeout_s
        if not self._lock.acquire(timeout=self._timeout_s):
            raise NoSnapshotError(self._no_answer())
        try:
            if self._closed.wait(max(0.0, min(self._next_s, until_s) - self._loop.time())):
                raise NoSnapshotError("the broker stops")
            self._next_s = self._loop.time() + APART_S
            return self._ask(until_s)
        finally:
            self._lock.release()

    def close(self) -> None:
        """End all waiting; nothing is asked any more. Any thread."""
        self._closed.set()
        asked = self._asked
        if asked is not None:
            asked.cancel()

    def _ask(self, until_s: float) -> Snapshot:
        self._asked = future = Future[Snapshot]()
        try:
            self._loop.call_soon_threadsafe(
                _Gathering(self._loop, self._gather, future, Samples(self._series_max)).step
            )
            if self._closed.is_set():  # looked at after the future can be seen by close
                future.cancel()
            return future.result(max(0.0, until_s - self._loop.time()))
        except NotInTime:
            future.cancel()
            raise NoSnapshotError(self._no_answer()) from None
        except (CancelledError, RuntimeError):  # the latter: the loop is closed
            raise NoSnapshotError("the broker stops") from None
        finally:
            self._asked = None

    def _no_answer(self) -> str:
        return (
            f"the broker's event loop has not answered within {self._timeout_s:g} s: it is blocked or overloaded; "
            "the log names what blocks it (listen.loop_blocked_warn_ms)"
        )


class _Gathering:
    """One snapshot under way. Loop thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        gather: Callable[[Samples], Iterator[None]],
        future: Future[Snapshot],
        samples: Samples,
    ) -> None:
        self._loop = loop
        self._future = future
        self._samples = samples
        self._gather = gather
        self._steps: Iterator[None] | None = None
        self._took_s = 0.0

    def step(self) -> None:
        """Gather for a slice; the rest is done with the loop's next turn, unless nobody waits any more."""
        if self._future.cancelled():
            return
        began_s = self._loop.time()
        try:
            if self._steps is None:
                self._steps = self._gather(self._samples)
            for _ in self._steps:
                now_s = self._loop.time()
                if now_s - began_s >= SLICE_S:
                    self._took_s += now_s - began_s
                    self._loop.call_soon(self.step)
                    return
        except Exception as error:
            if self._future.set_running_or_notify_cancel():
                self._future.set_exception(error)
            return
        took_s = self._took_s + self._loop.time() - began_s
        if self._future.set_running_or_notify_cancel():
            self._future.set_result(Snapshot(self._samples, took_s))

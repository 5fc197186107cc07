"""Takes snapshots of figures on the event loop, in short slices so that clients need not wait."""

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
"""Time in seconds for which the event loop gathers figures without a pause. Gathering continues in the next iteration of the
event loop."""
APART_S: Final = 0.1
"""Minimum time in seconds between the starts of two snapshots. This minimum limits the event loop's work if many requests for
metrics arrive."""


class NoSnapshotError(Exception):
    """The event loop did not take a snapshot in time, or the broker is stopping. The error's text has the cause."""


@attrs.frozen
class Snapshot:
    """Figures that the event loop has gathered. Threads may share a snapshot."""

    samples: Samples
    took_s: float
    """Time, in seconds, that the event loop spent on gathering the figures of the snapshot."""


class Snapshots:
    """Asks the event loop for snapshots of figures, one at a time. Any thread but the loop's.

    Args:
        loop: the broker's event loop.
        gather: returns an iterator that gathers a few figures with each step. Called and advanced on the loop's thread.
        timeout_s: maximum time to wait for the loop, in seconds.
        series_max: maximum number of series in a snapshot.
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
        """Take a snapshot of figures that begins after this call, and return the snapshot. Blocks.

        Raises:
            NoSnapshotError: the loop did not answer in time, or the broker is stopping.
            Exception: ``gather`` raised this error.
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
        """Make all calls of :meth:`take`, waiting and future, raise ``NoSnapshotError``. Can be called from any thread."""
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
            if self._closed.is_set():
                # If :meth:`close` ran before the future was created, close() did not cancel the future, so it is canceled now.
                future.cancel()
            return future.result(max(0.0, until_s - self._loop.time()))
        except NotInTime:
            future.cancel()
            raise NoSnapshotError(self._no_answer()) from None
        except (CancelledError, RuntimeError):
            # CancelledError means that close() canceled the future; RuntimeError, that the broker's event loop is closed.
            raise NoSnapshotError("the broker stops") from None
        finally:
            self._asked = None

    def _no_answer(self) -> str:
        return (
            f"the broker's event loop has not answered within {self._timeout_s:g} s: it is blocked or overloaded; "
            "the log names what blocks it (listen.loop_blocked_warn_ms)"
        )


class _Gathering:
    """A snapshot of figures that the event loop is gathering. Used only on the event loop's thread."""

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
        """Gather figures for :data:`SLICE_S`, and schedule the next slice if figures are missing. Do nothing if the caller gave
        up."""
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

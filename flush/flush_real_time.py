"""Flush in real time: an acknowledgement means *in the page cache*; the sync follows.

Killed processes lose nothing; a power cut loses up to an interval when at least ``least_pages`` are dirty, else up to
the thorough interval.

See docs/internals/algorithms.md, Flush strategies; docs/internals/reliability.md, Acknowledgements.
"""

from __future__ import annotations

import logging
from typing import Protocol

from flintmq.core.errors import StoreExhaustedError, StoreFencedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import FlushableLog, FlushContext, FlushStatistics, FlushWaiter
from flintmq.core.waiters import DONE, FENCED
from flintmq.flush.counters import SyncCounter
from flintmq.flush.service_thread import ServiceThread

_LOG = logging.getLogger("flintmq.flush")

STOP_ROUNDS = 10
"""A stop tries this often to get everything to disk, as RocketMQ does; each round handles every file."""


class FlushRealTimeSettings(Protocol):
    """The part of ``flush.flush_real_time``."""

    @property
    def interval_ms(self) -> int: ...

    @property
    def least_pages(self) -> int: ...

    @property
    def thorough_interval_ms(self) -> int: ...

    @property
    def timed(self) -> bool: ...


class Flusher(ServiceThread):
    """Syncs every interval, or sooner when woken. A failed sync ends its work for good.

    Args:
        log: what is flushed.
        clock: for the thorough interval and the statistics.
        interval_ms: time between two rounds.
        least_pages: a round syncs when so many 4 KiB pages are dirty.
        thorough_interval_ms: after this long a round syncs whatever is dirty.
    """

    def __init__(
        self, log: FlushableLog, clock: Clock, *, interval_ms: int, least_pages: int, thorough_interval_ms: int
    ) -> None:
        super().__init__("flintmq-flush-real-time", clock)
        self._log = log
        self._interval_s = interval_ms / 1000
        self._least_pages = least_pages
        self._thorough_interval_s = thorough_interval_ms / 1000
        self._last_thorough_s: float | None = None
        self.counter = SyncCounter(log, clock)
        self.failure: Exception | None = None
        """Return why it has stopped working, None while it works."""

    def run_once(self, now_s: float) -> None:
        if self.failure is not None:
            return
        least_pages = self._least_pages
        if self._last_thorough_s is None or now_s - self._last_thorough_s >= self._thorough_interval_s:
            self._last_thorough_s = now_s
            least_pages = 0
        self._flush(least_pages)

    def wait_s(self, now_s: float) -> float | None:
        return None if self.failure is not None else self._interval_s

    def finish(self) -> None:
        for _ in range(STOP_ROUNDS):
            if self.failure is not None or self._log.flushed_offset_bytes >= self._log.committed_offset_bytes:
                return
            self._flush(0)

    def _flush(self, least_pages: int) -> None:
        try:
            self.counter.flush_to(self._log.committed_offset_bytes, least_pages)
            self.put_off(None)
        except StoreExhaustedError as error:
            self.put_off(error)
        except Exception as error:
            self.failure = error
            _LOG.critical(
                "flushing has ended, the store is fenced: %s", error, exc_info=not isinstance(error, StoreFencedError)
            )


class FlushRealTime:
    """A flush service that acknowledges before the sync.

    Args:
        context: the log, the clock and settings with ``interval_ms``, ``least_pages``, ``thorough_interval_ms`` and
            ``timed`` (True: strictly every interval; False: every append wakes the flush thread as well).
    """

    def __init__(self, context: FlushContext[FlushRealTimeSettings]) -> None:
        settings = context.settings
        self.flusher = Flusher(
            context.log,
            context.clock,
            interval_ms=settings.interval_ms,
            least_pages=settings.least_pages,
            thorough_interval_ms=settings.thorough_interval_ms,
        )
        self._timed = settings.timed
        self._submits = 0

    @property
    def failure(self) -> Exception | None:
        """Return why the service fenced itself, None while it has not. Any thread."""
        return self.flusher.failure

    def start(self) -> None:
        self.flusher.start()

    def stop(self) -> None:
        """Sync the rest in at most ten rounds, then end the thread. Idempotent."""
        self.flusher.end()

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        """Return a waiter that is done at once, with FENCED after a failed sync and after ``stop``. Loop thread."""
        self._submits += 1
        if self.flusher.failure is not None or self.flusher.stopping:
            return FENCED
        if not self._timed:
            self.flusher.wakeup()
        return DONE

    def statistics(self) -> FlushStatistics:
        return self.flusher.counter.statistics(self._submits, 0)

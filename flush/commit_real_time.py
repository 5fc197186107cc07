"""Commit in real time: appends go to the transient store pool, are committed to the files, then synced.

An acknowledgement means *in the broker's own memory*: a killed process loses up to the commit interval.
What is appended becomes readable when it is committed.

See docs/internals/algorithms.md, Flush strategies; docs/internals/reliability.md, Acknowledgements.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from flintmq.core.errors import StoreExhaustedError, StoreFencedError
from flintmq.core.kernel.ports import FlushContext, FlushStatistics, FlushWaiter
from flintmq.core.waiters import DONE, FENCED
from flintmq.flush.flush_real_time import STOP_ROUNDS, Flusher
from flintmq.flush.service_thread import ServiceThread

_LOG = logging.getLogger("flintmq.flush")

_PAGE_BYTES: Final = 4096


class CommitRealTimeSettings(Protocol):
    """The part of ``flush.commit_real_time``."""

    @property
    def interval_ms(self) -> int: ...

    @property
    def least_pages(self) -> int: ...

    @property
    def thorough_interval_ms(self) -> int: ...

    @property
    def flush_interval_ms(self) -> int: ...

    @property
    def flush_least_pages(self) -> int: ...

    @property
    def flush_thorough_interval_ms(self) -> int: ...


class CommitRealTime(ServiceThread):
    """A flush service for the transient store pool: one thread commits, a second one syncs what was committed.

    Args:
        context: the log, the clock and settings with ``interval_ms``, ``least_pages``, ``thorough_interval_ms`` for the
            commits and the same three with ``flush_`` before them for the syncs.
    """

    def __init__(self, context: FlushContext[CommitRealTimeSettings]) -> None:
        super().__init__("flintmq-commit-real-time", context.clock)
        settings = context.settings
        self._log = context.log
        self._interval_s = settings.interval_ms / 1000
        self._least_pages = settings.least_pages
        self._least_bytes = settings.least_pages * _PAGE_BYTES
        self._thorough_interval_s = settings.thorough_interval_ms / 1000
        self._last_thorough_s: float | None = None
        self._submits = 0
        self._failure: Exception | None = None
        self.flusher = Flusher(
            context.log,
            context.clock,
            interval_ms=settings.flush_interval_ms,
            least_pages=settings.flush_least_pages,
            thorough_interval_ms=settings.flush_thorough_interval_ms,
        )

    @property
    def failure(self) -> Exception | None:
        """Return why the service fenced itself, None while it has not. Any thread."""
        return self._failure or self.flusher.failure

    def start(self) -> None:
        self.flusher.start()
        super().start()

    def stop(self) -> None:
        """Commit the rest in at most ten rounds, sync it, and end both threads. Idempotent."""
        self.end()
        self.flusher.end()

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        """Return a waiter that is done at once, with FENCED after a failure and after ``stop``. Loop thread.

        Wakes the commit thread only when a round would commit anyway, so that small appends do not pay for a wake-up.
        """
        self._submits += 1
        if self.stopping or self.failure is not None:
            return FENCED
        if end_offset_bytes - self._log.committed_offset_bytes >= self._least_bytes:
            self.wakeup()
        return DONE

    def statistics(self) -> FlushStatistics:
        return self.flusher.counter.statistics(self._submits, 0)

    def run_once(self, now_s: float) -> None:
        least_pages = self._least_pages
        if self._last_thorough_s is None or now_s - self._last_thorough_s >= self._thorough_interval_s:
            self._last_thorough_s = now_s
            least_pages = 0
        self._commit(least_pages)

    def wait_s(self, now_s: float) -> float | None:
        return None if self.failure is not None else self._interval_s

    def finish(self) -> None:
        for _ in range(STOP_ROUNDS):
            if self.failure is not None or self._log.committed_offset_bytes >= self._log.wrote_offset_bytes:
                return
            self._commit(0)

    def _commit(self, least_pages: int) -> None:
        """Commit file after file up to what was written when the round began, then wake the flusher."""
        if self.failure is not None:
            return
        target_bytes = self._log.wrote_offset_bytes
        began_bytes = committed_bytes = self._log.committed_offset_bytes
        try:
            while committed_bytes < target_bytes:
                before_bytes = committed_bytes
                committed_bytes = self._log.commit(least_pages)
                if committed_bytes <= before_bytes:
                    break
            self.put_off(None)
        except StoreExhaustedError as error:
            self.put_off(error)
        except Exception as error:
            self._failure = error
            _LOG.critical(
                "committing has ended, the store is fenced: %s", error, exc_info=not isinstance(error, StoreFencedError)
            )
            return
        if committed_bytes > began_bytes:
            self.flusher.wakeup()

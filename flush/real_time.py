"""Flush strategies that acknowledge before the sync: ``FlushRealTimeService`` and ``CommitRealTimeService`` of RocketMQ.

======================  =============================  ================================================================
strategy                acknowledged messages are      possible loss
======================  =============================  ================================================================
``flush_real_time``     in the page cache              killed process: nothing; power failure: up to the interval if
                                                       ``least_pages`` are dirty, else up to the thorough interval
``commit_real_time``    in the broker's own memory     also if the process is killed: up to the commit interval
======================  =============================  ================================================================

Records appended to the pool become readable when they are committed to the files, about 10 ms later under load. The sync
follows later.

See docs/internals/algorithms.md, Flush strategies; docs/internals/reliability.md, Acknowledgements.
"""

from __future__ import annotations

from typing import Final

from flintmq.config.sections.models import CommitRealTimeSection, FlushRealTimeSection
from flintmq.core.errors import StoreExhaustedError, StoreFencedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import FlushableLog, FlushContext, FlushStatistics, FlushWaiter
from flintmq.core.log_events import event_log
from flintmq.core.waiters import DONE, FENCED
from flintmq.flush.service_thread import ServiceThread, SyncCounter

_LOG = event_log("flintmq.flush")

STOP_ROUNDS: Final = 10
"""Maximum number of rounds in which a stopping flush service tries to write everything to disk, as in RocketMQ. Each round
handles all files of the log."""
_PAGE_BYTES: Final = 4096


class PagedThread(ServiceThread):
    """A thread that commits or syncs at an interval, or sooner if woken; the base class of both strategies.

    An ordinary round commits or syncs only if enough pages are dirty; a thorough round always does. After a failure, rounds do
    nothing.

    Args:
        name: the name of the thread.
        doing: a description of the thread's work, for log lines.
        clock: the clock of the thorough interval and the statistics.
        interval_ms: the time between two rounds.
        least_pages: the least number of dirty 4 KiB pages with which an ordinary round commits or syncs.
        thorough_interval_ms: the time between two thorough rounds.
    """

    def __init__(
        self, name: str, doing: str, clock: Clock, *, interval_ms: int, least_pages: int, thorough_interval_ms: int
    ) -> None:
        super().__init__(name, clock)
        self._doing = doing
        self._interval_s = interval_ms / 1000
        self._least_pages = least_pages
        self._thorough_interval_s = thorough_interval_ms / 1000
        self._last_thorough_s: float | None = None
        self._failure: Exception | None = None

    @property
    def failure(self) -> Exception | None:
        """Return the error after which the flush service refuses all waiters; None if it has not failed. Can be called from any
        thread."""
        return self._failure

    @property
    def is_done(self) -> bool:
        """Whether the thread has nothing left to commit or to sync."""
        raise NotImplementedError

    def work(self, least_pages: int) -> None:
        """Commit or sync the bytes written before the call, file after file, if at least ``least_pages`` pages are dirty."""
        raise NotImplementedError

    def run_once(self, now_s: float) -> None:
        least_pages = self._least_pages
        if self._last_thorough_s is None or now_s - self._last_thorough_s >= self._thorough_interval_s:
            self._last_thorough_s = now_s
            least_pages = 0
        self._work(least_pages)

    def wait_s(self, now_s: float) -> float | None:
        return None if self.failure is not None else self._interval_s

    def flush_soon(self) -> None:
        """Start a thorough round now, which commits or syncs any number of dirty pages. Can be called from any thread."""
        self._last_thorough_s = None
        self.wakeup()

    def finish(self) -> None:
        for _ in range(STOP_ROUNDS):
            if self.failure is not None or self.is_done:
                return
            self._work(0)

    def _work(self, least_pages: int) -> None:
        if self.failure is not None:
            return
        try:
            self.work(least_pages)
            self.put_off(None)
        except StoreExhaustedError as error:
            self.put_off(error)
        except Exception as error:
            self._failure = error
            is_news = not isinstance(error, StoreFencedError)
            _LOG.critical(
                "flush.ended",
                "%(doing)s has ended, the store is fenced: %(error)s",
                doing=self._doing,
                error=error,
                exc_info=is_news,
            )


class Flusher(PagedThread):
    """A thread that syncs committed bytes; see :class:`PagedThread` for the arguments."""

    def __init__(
        self, log: FlushableLog, clock: Clock, *, interval_ms: int, least_pages: int, thorough_interval_ms: int
    ) -> None:
        super().__init__(
            "flintmq-flush-real-time",
            "flushing",
            clock,
            interval_ms=interval_ms,
            least_pages=least_pages,
            thorough_interval_ms=thorough_interval_ms,
        )
        self._log = log
        self.counter = SyncCounter(log, clock)

    @property
    def is_done(self) -> bool:
        return self._log.flushed_offset_bytes >= self._log.committed_offset_bytes

    def work(self, least_pages: int) -> None:
        self.counter.flush_to(self._log.committed_offset_bytes, least_pages)


class FlushRealTime(Flusher):
    """A flush service that acknowledges messages before the sync.

    Args:
        context: the log, the clock, and settings with ``interval_ms``, ``least_pages``, ``thorough_interval_ms`` and
            ``timed`` (True: rounds only at the interval; False: every append also wakes the flush thread).
    """

    def __init__(self, context: FlushContext[FlushRealTimeSection]) -> None:
        settings = context.settings
        super().__init__(
            context.log,
            context.clock,
            interval_ms=settings.interval_ms,
            least_pages=settings.least_pages,
            thorough_interval_ms=settings.thorough_interval_ms,
        )
        self._timed = settings.timed
        self._submits = 0

    def stop(self) -> None:
        """Sync the remaining bytes of the log in at most ten rounds, then end the flush thread. Idempotent."""
        self.end()

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        """Return a completed waiter: FLUSHED, or FENCED after a failed sync or a ``stop``. Called only on the event loop's
        thread."""
        self._submits += 1
        if self.failure is not None or self.stopping:
            return FENCED
        if not self._timed:
            self.wakeup()
        return DONE

    def statistics(self) -> FlushStatistics:
        return self.counter.statistics(self._submits, 0)


class CommitRealTime(PagedThread):
    """A flush service for the transient store pool: one thread commits, and a second thread syncs committed bytes.

    Args:
        context: the log, the clock, and settings with ``interval_ms``, ``least_pages`` and ``thorough_interval_ms`` for the
            commits, the same three with the prefix ``flush_`` for the syncs, and ``flush_timed`` (True: syncs only at the
            interval; False: every commit also wakes the flush thread).
    """

    rest_s = 0.01
    """Pause after each commit, in seconds, so that commits under load cover several appends.

    Two thousand commits a second would take a fifth of the event loop's time, because at each commit the event loop's thread
    passes the interpreter lock to the commit thread and back.
    """

    def __init__(self, context: FlushContext[CommitRealTimeSection]) -> None:
        settings = context.settings
        super().__init__(
            "flintmq-commit-real-time",
            "committing",
            context.clock,
            interval_ms=settings.interval_ms,
            least_pages=settings.least_pages,
            thorough_interval_ms=settings.thorough_interval_ms,
        )
        self._log = context.log
        self._pages = settings.least_pages
        self._flush_timed = settings.flush_timed
        self._submits = 0
        self._is_wanted = False
        """Whether :meth:`flush_soon` has requested a sync after the next commit."""
        self.flusher = Flusher(
            context.log,
            context.clock,
            interval_ms=settings.flush_interval_ms,
            least_pages=settings.flush_least_pages,
            thorough_interval_ms=settings.flush_thorough_interval_ms,
        )

    @property
    def failure(self) -> Exception | None:
        """Return the error after which the flush service refuses all waiters; None if it has not failed. Can be called from any
        thread."""
        return self._failure or self.flusher.failure

    @property
    def is_done(self) -> bool:
        return self._log.committed_offset_bytes >= self._log.wrote_offset_bytes

    def start(self) -> None:
        self.flusher.start()
        super().start()

    def stop(self) -> None:
        """Commit the remaining bytes of the pool in at most ten rounds, sync these bytes, and end the threads that commit and
        sync. Idempotent."""
        self.end()
        self.flusher.end()

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        """Return a completed waiter: FLUSHED, or FENCED after a failure or a ``stop``. Called only on the event loop's thread.

        The commit thread commits at intervals, and only if enough bytes are uncommitted. The method wakes the thread before the
        end of an interval only if enough bytes are uncommitted, because a wake-up costs time.
        """
        self._submits += 1
        if self.stopping or self.failure is not None:
            return FENCED
        committed_bytes = self._log.committed_offset_bytes
        if end_offset_bytes // _PAGE_BYTES - committed_bytes // _PAGE_BYTES >= self._pages:
            self.wakeup()
        return DONE

    def statistics(self) -> FlushStatistics:
        return self.flusher.counter.statistics(self._submits, 0)

    def work(self, least_pages: int) -> None:
        """Commit file after file, up to the bytes written when the round began. Then wake the thread that syncs, if the
        settings request that."""
        target_bytes = self._log.wrote_offset_bytes
        committed_bytes = self._log.committed_offset_bytes
        is_wanted, self._is_wanted = self._is_wanted, False
        while committed_bytes < target_bytes:
            before_bytes = committed_bytes
            committed_bytes = self._log.commit(least_pages)
            if committed_bytes <= before_bytes:
                break
            if not self._flush_timed:
                self.flusher.wakeup()
        if is_wanted:
            self.flusher.flush_soon()

    def flush_soon(self) -> None:
        self._is_wanted = True
        super().flush_soon()

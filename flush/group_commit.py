"""Group commit, like RocketMQ's ``GroupCommitService``: a message is acknowledged after a sync, and many messages share a sync.

::

    loop thread        flush thread                     deadline watcher
    submit ──► list ──► sync, then complete all ≤ flushed
                 └───────────────────────────────────► TIMEOUT after sync_flush_timeout_ms, even while the sync hangs

Each appended message has a waiter. The waiters that arrive during a sync are all served by the next sync. Each waiter gets
exactly one status: FLUSHED after the sync, TIMEOUT from the deadline watcher, or FENCED if a sync fails or the service stops.
The service does not repeat a failed sync, because the kernel may then have marked lost pages as clean.

See docs/internals/algorithms.md, Flush strategies; docs/internals/reliability.md, Disk.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol

from flintmq.core.errors import StoreExhaustedError, StoreFencedError
from flintmq.core.kernel.ports import FlushContext, FlushStatistics, FlushStatus, FlushWaiter
from flintmq.core.log_events import event_log
from flintmq.core.waiters import DONE, FENCED, CompletedWaiter, PendingWaiter
from flintmq.flush.service_thread import ServiceThread, SyncCounter

_LOG = event_log("flintmq.flush")
IDLE_ROUNDS: Final = 100
"""Number of consecutive rounds without work after which the flush service makes rounds ten times less often. By default, this
number of rounds takes a second.

Every append of messages wakes the service at once. Rounds at an interval are needed only for bytes that were written to the log
without such an append. 100 rounds a second would cost half a percent of a core.
"""
IDLE_FACTOR: Final = 10


class GroupCommitSettings(Protocol):
    """The settings of the flush strategy ``group_commit``, from the section ``flush.group_commit``."""

    @property
    def sync_flush_timeout_ms(self) -> int: ...

    @property
    def interval_ms(self) -> int: ...


class GroupCommit(ServiceThread):
    """A flush service that acknowledges messages after the sync.

    A plugin can derive a class from this class and override :meth:`gather` to wait for more waiters before a sync. The derived
    class can use :attr:`waiting` and :attr:`last_sync_s` to decide whether to wait, and :meth:`pause` to wait.

    Args:
        context: the log, the clock, and settings with ``sync_flush_timeout_ms`` (the maximum wait) and ``interval_ms`` (the
            interval at which bytes without a waiter are synced).
    """

    def __init__(self, context: FlushContext[GroupCommitSettings]) -> None:
        super().__init__("flintmq-group-commit", context.clock)
        settings = context.settings
        self._log = context.log
        # The interval is at least 1 ms, because with an interval of 0, the group commit thread would never pause.
        self._interval_s = max(settings.interval_ms, 1) / 1000
        self._timeout_s = settings.sync_flush_timeout_ms / 1000
        self._waiters = PendingWaiters()
        self._syncs = SyncCounter(context.log, context.clock)
        self._watcher = DeadlineWatcher(context, self._waiters)
        self._failure: Exception | None = None
        self._idle_rounds = 0

    @property
    def failure(self) -> Exception | None:
        """Return the error after which the flush service refuses all waiters; None if the service has not failed. Any
        thread."""
        return self._failure

    @property
    def waiting(self) -> int:
        """The number of waiters that wait for a sync at this moment. Can be called from any thread."""
        return len(self._waiters)

    @property
    def last_sync_s(self) -> float:
        """The duration of the latest sync in seconds; 0 before the first sync. Can be called from any thread."""
        return self._syncs.last_sync_s

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        """Return a waiter for the sync up to a physical offset, and wake the flush thread. Loop thread; does not block."""
        waiters = self._waiters
        if waiters.closed:
            waiters.count_completed()
            return FENCED
        if end_offset_bytes <= self._log.flushed_offset_bytes:
            waiters.count_completed()
            return DONE
        waiter = waiters.add(end_offset_bytes, self._clock.monotonic_s() + self._timeout_s)
        self.wakeup()
        self._watcher.arm()
        return waiter

    def statistics(self) -> FlushStatistics:
        return self._syncs.statistics(self._waiters.completed, self._waiters.timeouts)

    def start(self) -> None:
        super().start()
        self._watcher.start()

    def stop(self) -> None:
        """Sync the remaining bytes of the log, complete every waiter, and end the threads. Idempotent.

        The method waits for a hanging sync at most ``sync_flush_timeout_ms``. Afterwards the waiters that are still pending are
        FENCED, and the flush thread is left running.
        """
        if not self.end(self._timeout_s):
            _LOG.critical(
                "flush.hangs",
                "a sync still hangs %(timeout_s).1f s after the stop was asked for: it is left alone",
                timeout_s=self._timeout_s,
            )
        self._waiters.close()
        self._watcher.end()

    def gather(self) -> None:
        """Do nothing before a sync. A subclass may override this method to wait for more waiters. Called on the flush
        thread."""

    def run_once(self, now_s: float) -> None:
        """Sync the log once for all current waiters, or for unsynced bytes for which nobody waits."""
        if self._failure is not None:
            return
        if self._waiters.newest_end_bytes:
            self.gather()
        target_bytes = self._waiters.newest_end_bytes or self._log.wrote_offset_bytes
        if target_bytes <= self._log.flushed_offset_bytes and not len(self._waiters):
            self._idle_rounds += 1
            return
        self._idle_rounds = 0
        self._sync_to(target_bytes)

    def wait_s(self, now_s: float) -> float | None:
        """Return the seconds until the next sync. The interval is longer after some rounds without work. The result is None if
        a sync has failed."""
        if self._failure is not None:
            return None
        return self._interval_s * (IDLE_FACTOR if self._idle_rounds >= IDLE_ROUNDS else 1)

    def finish(self) -> None:
        if self._failure is None:
            self._sync_to(max(self._waiters.newest_end_bytes, self._log.wrote_offset_bytes))
        self._waiters.close()

    def _sync_to(self, target_bytes: int) -> None:
        try:
            flushed_bytes = self._syncs.flush_to(target_bytes)
        except StoreExhaustedError as error:
            self.put_off(error)
            return
        except Exception as error:
            # After a failed sync, the state of the disk is unknown, so the broker acknowledges no more messages.
            self._failure = error
            left = self._waiters.close()
            _LOG.critical(
                "flush.fenced",
                "group commit is fenced, %(waiters)d waiters refused: %(error)s",
                waiters=left,
                error=error,
                exc_info=not isinstance(error, StoreFencedError),
            )
            return
        self.put_off(None)
        self._waiters.complete_flushed(flushed_bytes)


class DeadlineWatcher(ServiceThread):
    """A thread that completes overdue waiters with TIMEOUT, because the flush thread may hang in a sync.

    The thread sleeps until the earliest deadline: under load the thread wakes every few seconds, and without waiters not at
    all.
    """

    def __init__(self, context: FlushContext[object], waiters: PendingWaiters) -> None:
        super().__init__("flintmq-flush-deadline", context.clock)
        self._waiters = waiters
        self._armed = False
        self._next_deadline_s: float | None = None

    def arm(self) -> None:
        """Wake the thread that watches deadlines if it sleeps without a deadline. The loop thread calls this method after it
        has added a waiter."""
        if not self._armed:
            self._armed = True
            self.wakeup()

    def run_once(self, now_s: float) -> None:
        self._next_deadline_s = self._waiters.complete_expired(now_s)
        if self._next_deadline_s is None:
            self._armed = False
            # While ``_armed`` was True, arm() did not wake this thread for new waiters, so the thread looks for them again.
            if len(self._waiters):
                self._armed = True
                self._next_deadline_s = self._waiters.complete_expired(now_s)

    def wait_s(self, now_s: float) -> float | None:
        return None if self._next_deadline_s is None else self._next_deadline_s - now_s


class PendingWaiters:
    """The pending waiters of the flush service, in the order in which they were submitted. Thread-safe. Callbacks of
    waiters always run while the lock is not held.

    A lock around operations of a list is fastest, because usually one sync covers all waiters, and the whole list is replaced.
    After :meth:`close`, every new waiter is :data:`~flintmq.core.waiters.FENCED`, so that no waiter stays pending.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiter_lock = threading.Lock()
        self._pending: list[PendingWaiter] = []
        self._newest_end_bytes = 0
        self._closed = False
        self._completed = 0
        self._timeouts = 0

    @property
    def newest_end_bytes(self) -> int:
        """The largest physical offset up to which a waiter waits for a sync of the log; 0 without a waiter."""
        return self._newest_end_bytes

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def completed(self) -> int:
        """The number of waiters that were completed, with any status."""
        return self._completed

    @property
    def timeouts(self) -> int:
        """The number of waiters whose wait for a sync ended with TIMEOUT."""
        return self._timeouts

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, end_offset_bytes: int, deadline_s: float) -> PendingWaiter | CompletedWaiter:
        """Return a new pending waiter for a sync; after :meth:`close`, return a completed waiter with the status FENCED."""
        waiter = PendingWaiter(end_offset_bytes, deadline_s, self._waiter_lock)
        with self._lock:
            if self._closed:
                self._completed += 1
                return FENCED
            self._pending.append(waiter)
            if end_offset_bytes > self._newest_end_bytes:
                self._newest_end_bytes = end_offset_bytes
        return waiter

    def count_completed(self) -> None:
        """Count a waiter that was already complete when it was created."""
        with self._lock:
            self._completed += 1

    def complete_flushed(self, flushed_offset_bytes: int) -> int:
        """Complete the waiters up to a physical offset with FLUSHED; return their number."""
        with self._lock:
            if self._newest_end_bytes <= flushed_offset_bytes:
                done, self._pending = self._pending, []
            else:
                done = [w for w in self._pending if w.end_offset_bytes <= flushed_offset_bytes]
                self._keep([w for w in self._pending if w.end_offset_bytes > flushed_offset_bytes])
            if not self._pending:
                self._newest_end_bytes = 0
            self._completed += len(done)
        for waiter in done:
            waiter.complete(FlushStatus.FLUSHED)
        return len(done)

    def complete_expired(self, now_s: float) -> float | None:
        """Complete overdue waiters with TIMEOUT; return the next deadline, or None if no waiter is left."""
        with self._lock:
            expired = [w for w in self._pending if w.deadline_s <= now_s]
            if expired:
                self._keep([w for w in self._pending if w.deadline_s > now_s])
            self._completed += len(expired)
            self._timeouts += len(expired)
            next_deadline_s = min((w.deadline_s for w in self._pending), default=None)
        for waiter in expired:
            waiter.complete(FlushStatus.TIMEOUT)
        return next_deadline_s

    def close(self) -> int:
        """Complete all pending waiters with FENCED, and all later waiters too; return the number of waiters that were
        pending."""
        with self._lock:
            self._closed = True
            left, self._pending = self._pending, []
            self._newest_end_bytes = 0
            self._completed += len(left)
        for waiter in left:
            waiter.complete(FlushStatus.FENCED)
        return len(left)

    def _keep(self, waiters: list[PendingWaiter]) -> None:
        self._pending = waiters
        self._newest_end_bytes = max((w.end_offset_bytes for w in waiters), default=0)

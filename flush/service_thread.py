"""A stoppable thread that can be woken (``ServiceThread`` of RocketMQ).

The work is in :meth:`ServiceThread.run_once`, which takes the time as an argument and does not wait. Tests call this method
directly with any time, without a thread or a sleep. The thread only calls the method in a loop.
"""

from __future__ import annotations

import threading

from flintmq.core.errors import StoreExhaustedError
from flintmq.core.io.clock import Clock
from flintmq.core.io.threads import Signal, daemon_thread, threads_here
from flintmq.core.kernel.ports import FlushableLog, FlushStatistics
from flintmq.core.log_events import event_log

_LOG = event_log("flintmq.flush")


class ServiceThread:
    """A thread that calls :meth:`run_once` when it is woken, and after :meth:`wait_s` seconds.

    The wake-up is a lock that is used as a binary semaphore, because such a lock is faster than ``threading.Event``, and the
    loop thread may wake the service thread at each append. Any number of wake-ups during a round cause one more round.
    """

    rest_s = 0.0
    """Pause in seconds after each round of the thread, even if the thread is woken. The pause is for services whose work is
    cheaper in larger batches."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._lock.acquire()
        self._signal: Signal = self._lock
        self._stop_requested = threading.Event()
        self._stop_lock = threading.Lock()
        self._finished = False
        self._is_exhausted = self._is_started = False
        self._thread: threading.Thread | None = None

    def run_once(self, now_s: float) -> None:
        """Do one round of the service thread's work at a given monotonic time. The round may block in a sync, and must catch
        its errors."""
        raise NotImplementedError

    def wait_s(self, now_s: float) -> float | None:
        """Return the seconds until the next round of work if the thread is not woken; None if only a wake-up begins the next
        round."""
        raise NotImplementedError

    def put_off(self, error: StoreExhaustedError | None) -> None:
        """Record whether a round failed because the process has no free file descriptor.

        A change is logged. A missing descriptor is not a failure of the service: waiters keep waiting, and the next round tries
        again.

        Args:
            error: the error of the failed round; None if the round succeeded.
        """
        if error is not None and not self._is_exhausted:
            _LOG.error(
                "flush.no_descriptor",
                "%(service)s waits for a descriptor and tries again: %(error)s",
                service=self._name,
                error=error,
            )
        self._is_exhausted = error is not None

    def finish(self) -> None:
        """Do the last work of the service thread before it ends; called exactly once, even if the thread was never started."""

    @property
    def stopping(self) -> bool:
        """Return whether :meth:`end` was called, so that the service thread begins no further round. Can be called from any
        thread."""
        return self._stop_requested.is_set()

    def start(self) -> None:
        """Start the service thread; a second call, or a call after ``end``, does nothing."""
        if self._is_started or self.stopping:
            return
        self._is_started = True
        signal = threads_here().run_rounds(self)
        if signal is not None:
            self._signal = signal
            return
        # The thread is a daemon, so that a sync that hangs cannot keep the interpreter from exiting.
        self._thread = daemon_thread(self._run, self._name)
        self._thread.start()

    def wakeup(self) -> None:
        """Request a round of the service thread's work now. Any thread; never blocks."""
        if self._signal.locked():
            try:
                self._signal.release()
            except RuntimeError:
                # release() raises RuntimeError if another thread has just released ``_signal`` and thus woken the service.
                return

    def pause(self, seconds: float) -> None:
        """Sleep on the service thread for some seconds; return early if :meth:`end` is called."""
        self._stop_requested.wait(seconds)

    def end(self, timeout_s: float | None = None) -> bool:
        """End the service thread after its current round and :meth:`finish`. Idempotent. Any thread except the service thread
        may call this method.

        Args:
            timeout_s: the maximum time to wait for the thread's end; None: no limit.

        Returns:
            False if the thread still runs after the maximum time, because a sync hangs.
        """
        self._stop_requested.set()
        self.wakeup()
        if self._thread is None:
            self._finish_once()
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self.stopping:
            wait_s = self.wait_s(self._clock.monotonic_s())
            self._lock.acquire(timeout=-1 if wait_s is None else max(wait_s, 0.0))
            if not self.stopping:
                self.run_once(self._clock.monotonic_s())
                if self.rest_s:
                    self.pause(self.rest_s)
        self._finish_once()

    def _finish_once(self) -> None:
        with self._stop_lock:
            if self._finished:
                return
            self._finished = True
        self.finish()


class SyncCounter:
    """Syncs the log by ``log.flush``, and counts the syncs, their bytes and their time. Flush thread only; any thread can read
    the counters."""

    def __init__(self, log: FlushableLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._syncs = 0
        self._synced_bytes = 0
        self._sync_time_s = 0.0
        self.last_sync_s = 0.0
        """Duration in seconds of the latest sync that moved the flushed position."""

    def flush(self, least_pages: int) -> int:
        """Call ``log.flush``, measure its time, and return the physical offset up to which the log is flushed."""
        before_bytes = self._log.flushed_offset_bytes
        began_s = self._clock.monotonic_s()
        flushed_bytes = self._log.flush(least_pages)
        if flushed_bytes > before_bytes:
            self.last_sync_s = self._clock.monotonic_s() - began_s
            self._syncs += 1
            self._synced_bytes += flushed_bytes - before_bytes
            self._sync_time_s += self.last_sync_s
        return flushed_bytes

    def flush_to(self, target_bytes: int, least_pages: int = 0) -> int:
        """Call :meth:`flush` until the log is flushed up to a target position, or a call makes no progress. Each call handles
        one file.

        The target is fixed at the start, because following the written position would never end under load.
        """
        flushed_bytes = self._log.flushed_offset_bytes
        while flushed_bytes < target_bytes:
            before_bytes = flushed_bytes
            flushed_bytes = self.flush(least_pages)
            if flushed_bytes <= before_bytes:
                break
        return flushed_bytes

    def statistics(self, waiters: int, timeouts: int) -> FlushStatistics:
        return FlushStatistics(
            syncs=self._syncs,
            synced_bytes=self._synced_bytes,
            waiters=waiters,
            timeouts=timeouts,
            sync_time_s=self._sync_time_s,
        )

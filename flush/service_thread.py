"""A stoppable thread with a wake-up: what RocketMQ calls a ServiceThread.

The work is in :meth:`ServiceThread.run_once`, which takes the time as an argument and waits for nothing: tests call it
directly, with any time they like, and need no thread and no sleep. The loop around it is all that is left to the thread.
"""

from __future__ import annotations

import threading

from flintmq.core.errors import StoreExhaustedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import FlushableLog, FlushStatistics
from flintmq.core.log_events import event_log

_LOG = event_log("flintmq.flush")


class ServiceThread:
    """Calls ``run_once`` whenever it is woken, and when :meth:`wait_s` seconds are over.

    The wake-up is a bare lock used as a binary semaphore: cheaper than ``threading.Event`` on both sides, and the
    loop thread pays it once per append. Any number of wake-ups during one round lead to one more round.
    """

    rest_s = 0.0
    """How long the thread rests after each round, whatever wakes it meanwhile: for work that is cheaper by the heap."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._signal = threading.Lock()
        self._signal.acquire()
        self._stop_requested = threading.Event()
        self._stop_lock = threading.Lock()
        self._finished = False
        self._is_exhausted = False
        self._thread: threading.Thread | None = None

    def run_once(self, now_s: float) -> None:
        """Do one round of work at the given monotonic time. May block in a sync; handles its own errors."""
        raise NotImplementedError

    def wait_s(self, now_s: float) -> float | None:
        """Return the seconds until the next round if the thread is not woken; None waits for a wake-up alone."""
        raise NotImplementedError

    def put_off(self, error: StoreExhaustedError | None) -> None:
        """Note that a round could do nothing for want of descriptors, or with None that one could: logged when it changes.

        Nothing has failed then: the next round does the work, and the waiters go on waiting.
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
        """Do the last work before the thread ends; runs exactly once, also when the thread was never started."""

    @property
    def stopping(self) -> bool:
        """Return true once :meth:`end` was called. Any thread."""
        return self._stop_requested.is_set()

    def start(self) -> None:
        """Start the thread; a second call, or one after ``end``, does nothing."""
        if self._thread is None and not self.stopping:
            # A daemon, so that a sync that hangs for ever cannot keep the interpreter from exiting.
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def wakeup(self) -> None:
        """Ask for a round soon. Any thread; never blocks."""
        if self._signal.locked():
            try:
                self._signal.release()
            except RuntimeError:
                # Another thread released it in between: the thread is awake, which is all we want.
                return

    def pause(self, seconds: float) -> None:
        """Sleep in the thread; return early when it is asked to stop."""
        self._stop_requested.wait(seconds)

    def end(self, timeout_s: float | None = None) -> bool:
        """End the thread after its current round and :meth:`finish`. Idempotent; any thread but its own.

        Args:
            timeout_s: how long to wait for it; None waits as long as it takes.

        Returns:
            False when it still runs after that time (a sync that hangs).
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
            self._signal.acquire(timeout=-1 if wait_s is None else max(wait_s, 0.0))
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
    """Calls ``log.flush`` and counts what it did. Flush thread only; reading the counters is safe from any thread."""

    def __init__(self, log: FlushableLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._syncs = 0
        self._synced_bytes = 0
        self._sync_time_s = 0.0
        self.last_sync_s = 0.0
        """How long the newest sync that moved the position took."""

    def flush(self, least_pages: int) -> int:
        """Call ``log.flush``, measure it, and return the flushed position."""
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
        """Flush until the target is reached or a call makes no progress: a call handles one file.

        The target is fixed beforehand: chasing the written position would never end under load.
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

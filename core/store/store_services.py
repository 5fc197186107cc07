"""What makes a store durable: the flush strategy's own service, and FlushConsumeQueue, which syncs queues and checkpoint.

FlushConsumeQueue forces queue files to disk now and then in its own thread, and after a complete round the checkpoint. Nothing
is acknowledged by it: queues can be rebuilt from the log; the checkpoint only says from where.

See docs/internals/algorithms.md, Flush strategies.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

from flintmq.config.sections.store import StoreSection
from flintmq.core.errors import is_exhausted
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import ConsumeQueues, FlushCommitLogService, FlushContext
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log_events import event_log
from flintmq.core.store.ends_noter import EndsNoter
from flintmq.core.store.opened_store import OpenedStore

log = event_log("flintmq.store")


class StoreServices:
    """Owns the flush service and the flusher of the queues. A service that was stopped is made again by :meth:`renew`.

    Args:
        opened: what they make durable.
        noter: notes how far that is.
    """

    def __init__(self, opened: OpenedStore, noter: EndsNoter) -> None:
        self._opened = opened
        self._noter = noter
        spec = opened.spec
        self._context = FlushContext(log=opened.commit_log, clock=spec.clock, settings=spec.settings, pool=spec.pool)
        self.flusher = self._make_flusher(spec.config.store)
        self.flush_service: FlushCommitLogService = spec.strategy.factory(self._context)

    def _make_flusher(self, settings: StoreSection) -> QueueFlusher:
        return QueueFlusher(
            self._opened.consume_queues,
            self._opened.checkpoint,
            self._opened.spec.clock,
            interval_ms=settings.flush_consume_queue_interval_ms,
            least_pages=settings.flush_consume_queue_least_pages,
            thorough_interval_ms=settings.flush_consume_queue_thorough_interval_ms,
            sync_failed=self._opened.marks.forget_boot,
            after_round=self._noter.after_round,
        )

    def start(self) -> None:
        """Start both services, where they run by themselves."""
        if self._opened.spec.runs:
            self.flush_service.start()
            self.flusher.start()

    def stop(self) -> None:
        """Make durable what was appended, as far as that can be done, and stop both services. Blocks."""
        self.flush_service.stop()
        self.flusher.stop()

    def renew(self, settings: StoreSection) -> None:
        """Make both services again, after :meth:`stop`, and start them.

        Args:
            settings: the intervals of the flusher.
        """
        self.flusher = self._make_flusher(settings)
        self.flush_service = self._opened.spec.strategy.factory(self._context)
        self.start()


class QueueFlusher:
    """Makes queues durable in rounds of its own thread.

    Args:
        queues: what is made durable.
        checkpoint: moves when everything is.
        clock: its monotonic side decides when a round is thorough.
        interval_ms: between two rounds.
        least_pages: files with so many dirty pages are forced in every round.
        thorough_interval_ms: everything is forced as often.
        sync_failed: called once, on the flusher's thread, when the first sync has failed, or a round for another reason.
        after_round: called after each round that succeeded, with whether everything was forced (``is_thorough``).
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        checkpoint: StoreCheckpoint,
        clock: Clock,
        *,
        interval_ms: int,
        least_pages: int,
        thorough_interval_ms: int,
        sync_failed: Callable[[], None],
        after_round: Callable[..., None] = lambda *, is_thorough: None,
    ) -> None:
        self._queues = queues
        self._checkpoint = checkpoint
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._least_pages = least_pages
        self._thorough_s = thorough_interval_ms / 1000
        self._last_thorough_s = clock.monotonic_s()
        self._failed: OSError | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.failures = 0
        """Rounds that ended in an error."""
        self._sync_failed = sync_failed
        self._after_round = after_round

    @property
    def trouble(self) -> str:
        """Why queues are not synced any more until the next start; empty while they are. Any thread."""
        failed = self._failed
        return "" if failed is None else str(failed.strerror)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name="flintmq-flush-queues", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.run_once()

    def run_once(self) -> None:
        """Run one round; log and count an error, and leave the checkpoint where it was. Never raises."""
        now_s = self._clock.monotonic_s()
        thorough = now_s - self._last_thorough_s >= self._thorough_s
        if self._failed is not None:
            return
        try:
            self.flush(0 if thorough else self._least_pages)
            self._after_round(is_thorough=thorough)
        except OSError as error:
            self.failures += 1
            log.error(
                "queues.not_synced",
                "consume queues could not be synced (they will be rebuilt from the log if need be): %(error)s",
                error=error,
            )
            return
        except Exception as error:
            # A fault of ours, not the disk's: the thread must not end of it unseen, nor the checkpoint move any more.
            self.failures += 1
            self._failed = OSError(errno.EIO, f"{type(error).__name__}: {error}")
            log.critical(
                "queues.given_up",
                "consume queues are not synced any more; the next start rebuilds them",
                exc_info=error,
            )
            self._sync_failed()
            return
        if thorough:
            self._last_thorough_s = now_s

    def flush(self, least_pages: int) -> None:
        """Force queue files, and with 0 (everything) the checkpoint too. Raises OSError, once a sync has failed at each
        call.

        After a failed sync it is unknown what is on disk, whatever a second one returns: the checkpoint stays where it
        is, so that the next start writes the queues again from there.
        """
        if self._failed is not None:
            raise OSError(self._failed.errno, f"an earlier sync failed: {self._failed.strerror}")
        stored_ms = self._queues.last_store_timestamp_ms
        try:
            self._queues.flush(least_pages)
        except OSError as error:
            if not is_exhausted(error):  # else nothing could be opened for it, and nothing was tried
                self._failed = error
                self._sync_failed()
            raise
        if least_pages == 0:
            if stored_ms > self._checkpoint.logics_msg_timestamp_ms:
                self._checkpoint.logics_msg_timestamp_ms = stored_ms
            self._checkpoint.flush()

    def stop(self) -> None:
        """End the thread after its round. Idempotent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

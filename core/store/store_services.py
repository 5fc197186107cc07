"""The services that make a store durable: the flush strategy's service for the log, and a flusher for the queues.

The queue flusher (FlushConsumeQueueService of RocketMQ) syncs queue files regularly on its thread, and the checkpoint after
each complete round. No acknowledgment depends on the queue flusher, because queues can be rebuilt from the log, from the
checkpoint on.

See docs/internals/algorithms.md, Flush strategies.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from flintmq.config.sections.store import StoreSection
from flintmq.core.errors import is_exhausted
from flintmq.core.io.clock import Clock
from flintmq.core.io.threads import threads_here
from flintmq.core.kernel.ports import ConsumeQueues, FlushCommitLogService, FlushContext
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log_events import event_log
from flintmq.core.store.ends_noter import EndsNoter
from flintmq.core.store.opened_store import OpenedStore

log = event_log("flintmq.store")


class StoreServices:
    """The flush service of the log and the flusher of the queues. :meth:`renew` recreates the two services after a stop.

    Args:
        opened: the store that the services make durable.
        noter: records the durable ends of the store's files.
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
        """Start the flush service and the queue flusher, unless the specification of the store has ``runs=False``."""
        if self._opened.spec.runs:
            self.flush_service.start()
            self.flusher.start()

    def stop(self) -> None:
        """Make all appended records durable, if possible, and stop the flush service and the queue flusher. Blocks."""
        self.flush_service.stop()
        self.flusher.stop()

    def renew(self, settings: StoreSection) -> None:
        """Recreate and start the flush service and the queue flusher, after :meth:`stop`.

        Args:
            settings: the store's settings, with the intervals of the flusher.
        """
        self.flusher = self._make_flusher(settings)
        self.flush_service = self._opened.spec.strategy.factory(self._context)
        self.start()


class QueueFlusher:
    """Syncs consume queues and the checkpoint in rounds, on a thread.

    Args:
        queues: the queues to sync.
        checkpoint: the checkpoint, written after each thorough round.
        clock: the monotonic clock that decides when a round is thorough.
        interval_ms: the time between two rounds.
        least_pages: the number of dirty pages from which a file is synced in every round.
        thorough_interval_ms: the time between two thorough rounds, which sync all files.
        sync_failed: called once, on the flusher's thread, after the first failed sync or unexpected error.
        after_round: called after each successful round, with ``is_thorough``.
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
        self._end: Callable[[], None] | None = None
        self.failures = 0
        """Number of rounds of syncs of the consume queues that ended in an error."""
        self._sync_failed = sync_failed
        self._after_round = after_round

    @property
    def trouble(self) -> str:
        """The error that ended the syncs of consume queues until the next start; empty without an error. Can be called from any
        thread."""
        failed = self._failed
        return "" if failed is None else str(failed.strerror)

    def start(self) -> None:
        self._end = threads_here().repeat("flintmq-flush-queues", self._interval_s, self.run_once)

    def run_once(self) -> None:
        """Run one round of syncs of the queues.

        An error is logged and counted, and the checkpoint is then not written. Never raises.
        """
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
                "consume queues could not be synced (a start rebuilds them from the log if necessary): %(error)s",
                error=error,
            )
            return
        except Exception as error:
            # An exception other than OSError is a programming error: report it, and do not write the checkpoint any more.
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
        """Sync consume queue files with at least ``least_pages`` dirty pages; with 0, sync all files and write the checkpoint.

        After a failed sync the state of the disk is unknown, even if a later sync succeeds. The checkpoint is therefore no
        longer written, and the next start rebuilds the queues from the checkpoint on.

        Raises:
            OSError: a sync failed, now or at an earlier call.
        """
        if self._failed is not None:
            raise OSError(self._failed.errno, f"an earlier sync failed: {self._failed.strerror}")
        stored_ms = self._queues.last_store_timestamp_ms
        try:
            self._queues.flush(least_pages)
        except OSError as error:
            # If file handles or memory ran out, no sync was attempted, so the error does not count as a failed sync.
            if not is_exhausted(error):
                self._failed = error
                self._sync_failed()
            raise
        if least_pages == 0:
            if stored_ms > self._checkpoint.logics_msg_timestamp_ms:
                self._checkpoint.logics_msg_timestamp_ms = stored_ms
            self._checkpoint.flush()

    def stop(self) -> None:
        """End the queue flusher's thread after its current round. Idempotent."""
        if self._end is not None:
            self._end()
            self._end = None

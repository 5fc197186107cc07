"""The services that make a store durable: the flush strategy's own, and the flusher of the queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flintmq.config.sections.store import StoreSection
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import FlushCommitLogService, FlushContext, FlushStrategy
from flintmq.core.store.opened_store import OpenedStore
from flintmq.core.store.queue_flusher import QueueFlusher


class StoreServices:
    """Owns the flush service and the flusher of the queues. A service that was stopped is made again by :meth:`renew`.

    Args:
        opened: what they make durable.
        strategy: the flush strategy.
        context: what the strategy's service is made from.
        settings: the intervals of the flusher.
        clock: its monotonic side decides when a round of the flusher is thorough.
        sync_failed: called on the flusher's thread when a sync of the queues has failed.
    """

    def __init__(
        self,
        opened: OpenedStore,
        strategy: FlushStrategy[Any],
        context: FlushContext[Any],
        settings: StoreSection,
        clock: Clock,
        sync_failed: Callable[[], None],
    ) -> None:
        self._opened = opened
        self._strategy = strategy
        self._context = context
        self._settings = settings
        self._clock = clock
        self._sync_failed = sync_failed
        self.flusher = self._make_flusher()
        self.flush_service: FlushCommitLogService = strategy.factory(context)

    def _make_flusher(self) -> QueueFlusher:
        return QueueFlusher(
            self._opened.consume_queues,
            self._opened.checkpoint,
            self._clock,
            interval_ms=self._settings.flush_consume_queue_interval_ms,
            least_pages=self._settings.flush_consume_queue_least_pages,
            thorough_interval_ms=self._settings.flush_consume_queue_thorough_interval_ms,
            sync_failed=self._sync_failed,
        )

    def start(self) -> None:
        """Start both services."""
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
        self._settings = settings
        self.flusher = self._make_flusher()
        self.flush_service = self._strategy.factory(self._context)
        self.start()

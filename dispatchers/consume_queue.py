"""BuildConsumeQueue: gives each visible record its place in its queue (docs/internals/algorithms.md, Dispatch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flintmq.core.errors import PluginError
from flintmq.core.kernel.ports import AppendedBatch, DispatchRequest, Run
from flintmq.core.record.bulk_columns import RecordColumns
from flintmq.core.record.sys_flag import TRANSACTION_PREPARED


class ConsumeQueues(Protocol):
    """The store's consume queues, as this dispatcher sees them."""

    def put_batch(self, batch: Sequence[DispatchRequest]) -> None:
        """Appends a unit per record; ignores records a queue has already."""
        ...

    def put_runs(self, runs: Sequence[Run]) -> None:
        """The same for batches as they were appended, too."""
        ...

    def put_columns(self, columns: RecordColumns) -> None:
        """The same for records read in bulk; leaves out those that stay invisible."""
        ...


class Queue(Protocol):
    """A consume queue, as :class:`CheckConsumeQueue` sees it."""

    @property
    def max_queue_offset(self) -> int: ...


class FoundQueues(Protocol):
    """The store's consume queues, as :class:`CheckConsumeQueue` sees them."""

    def find(self, topic: str, queue_id: int) -> Queue | None: ...


class BuildConsumeQueue:
    """Records of transaction type none or commit get a consume queue unit; prepared and rolled back ones stay invisible.

    Essential: a record without a unit can never be consumed. Loop thread.
    """

    def __init__(self, consume_queues: ConsumeQueues) -> None:
        self._consume_queues = consume_queues

    def dispatch(self, batch: Sequence[DispatchRequest]) -> None:
        # Prepared is 01 and rollback 11 in the two transaction bits, so the lower bit alone tells what stays invisible.
        visible = [request for request in batch if not request.sys_flag & TRANSACTION_PREPARED]
        if visible:
            self._consume_queues.put_batch(visible)

    def dispatch_runs(self, runs: Sequence[Run]) -> None:
        visible = [run for run in runs if not run.sys_flag & TRANSACTION_PREPARED]
        if visible:
            self._consume_queues.put_runs(visible)

    def dispatch_columns(self, columns: RecordColumns) -> None:
        self._consume_queues.put_columns(columns)


class CheckConsumeQueue:
    """Stands behind a plugin's dispatcher of the name ``consume_queue``. Essential; loop thread.

    Consumers, and the next start, which goes on counting where the queues end, read the store's own queues. What a replacement
    does not put there would be lost to the ones and numbered twice by the other, so that nothing more is acknowledged then.

    Args:
        consume_queues: the store's.
        owner: the plugin, for the error.
    """

    def __init__(self, consume_queues: FoundQueues, owner: object) -> None:
        self._consume_queues = consume_queues
        self._owner = owner

    def dispatch(self, batch: Sequence[DispatchRequest]) -> None:
        """Raises PluginError where a visible record has no place in its queue."""
        self.dispatch_runs(batch)

    def dispatch_runs(self, runs: Sequence[Run]) -> None:
        for run in runs:
            if not run.sys_flag & TRANSACTION_PREPARED:
                last = run.queue_offset + len(run) - 1 if isinstance(run, AppendedBatch) else run.queue_offset
                self._check(run.topic, run.queue_id, last)

    def dispatch_columns(self, columns: RecordColumns) -> None:
        """Looks at the last of them only: each is read alone."""
        self.dispatch(columns.requests(columns.visible.nonzero()[0][-1:]))

    def _check(self, topic: str, queue_id: int, queue_offset: int) -> None:
        queue = self._consume_queues.find(topic, queue_id)
        if queue is None or queue.max_queue_offset <= queue_offset:
            raise PluginError(
                f"{self._owner}: its dispatcher 'consume_queue' gave message {queue_offset} of queue {topic}/{queue_id} no "
                "place in context.store.consume_queues, which consumers read; call put_batch there before dispatch returns, "
                "or list the plugin in 'disabled_plugins': the next start makes the queues from the log"
            )

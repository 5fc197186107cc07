"""BuildConsumeQueue: gives each visible record its place in its queue (reference: algorithms 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flintmq.core.message.sys_flag import TRANSACTION_PREPARED
from flintmq.core.ports import DispatchRequest, Run
from flintmq.core.store.bulk_columns import RecordColumns


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

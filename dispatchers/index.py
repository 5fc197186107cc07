"""BuildIndex: makes records findable by key (docs/internals/algorithms.md, Dispatch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flintmq.core.kernel.ports import DispatchRequest, IndexBuilder, Run, SupportsCommitted, SupportsTruncate
from flintmq.core.record.bulk_columns import RecordColumns
from flintmq.core.record.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from flintmq.core.store.index_service import index_columns, index_runs


class IndexedStore(Protocol):
    """The store, as this dispatcher sees it."""

    index: IndexBuilder


class BuildIndex:
    """Every record but a rollback goes to the index builder, a batch at a time. Loop thread.

    It asks the store for its builder each time, because a plugin's may take its place while the broker is assembled.
    """

    def __init__(self, store: IndexedStore) -> None:
        self._store = store

    def dispatch(self, batch: Sequence[DispatchRequest]) -> None:
        kept = [request for request in batch if request.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK]
        if kept:
            self._store.index.put(kept)

    def dispatch_runs(self, runs: Sequence[Run]) -> None:
        index_runs(self._store.index, runs)

    def dispatch_columns(self, columns: RecordColumns) -> None:
        index_columns(self._store.index, columns)

    def committed(self) -> int | None:
        """What the index builder has for good, where it says so."""
        index = self._store.index
        return index.committed() if isinstance(index, SupportsCommitted) else None

    def truncate(self, end_offset_bytes: int) -> None:
        index = self._store.index
        if isinstance(index, SupportsTruncate):
            index.truncate(end_offset_bytes)

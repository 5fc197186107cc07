"""BuildIndex: makes records findable by key (docs/internals/algorithms.md, Dispatch)."""

from __future__ import annotations

from typing import Protocol

from flintmq.core.kernel.ports import IndexBuilder, RecordBatch, SupportsCommitted, SupportsTruncate


class IndexedStore(Protocol):
    """The store, as this dispatcher sees it."""

    index: IndexBuilder


class BuildIndex:
    """Hands each batch to the index builder. Loop thread.

    It asks the store for its builder each time, because a plugin's may take its place while the broker is assembled.
    """

    def __init__(self, store: IndexedStore) -> None:
        self._store = store

    def dispatch(self, batch: RecordBatch) -> None:
        self._store.index.dispatch(batch)

    def committed(self) -> int | None:
        """What the index builder has for good, where it says so."""
        index = self._store.index
        return index.committed() if isinstance(index, SupportsCommitted) else None

    def truncate(self, end_offset_bytes: int) -> None:
        index = self._store.index
        if isinstance(index, SupportsTruncate):
            index.truncate(end_offset_bytes)

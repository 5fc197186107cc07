"""The port of the index: messages by key and time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from flintmq.core.record.dispatch_request import DispatchRequest, Run

if TYPE_CHECKING:
    from flintmq.core.record.bulk_columns import RecordColumns


class IndexBuilder(Protocol):
    """Finds messages by key and time. Loop thread.

    It is fed by the dispatcher ``index``, so what holds for a :class:`CommitLogDispatcher` holds for it: after a crash, and at
    any start, records come again that it has. One that is durable later than ``put`` returns is a :class:`SupportsCommitted`,
    too, and one that ignores records by their position a :class:`SupportsTruncate`. A builder that wraps the built-in one
    (``context.store.index``) answers ``committed`` with what that one answers.
    """

    def put(self, batch: Sequence[DispatchRequest]) -> None:
        """Takes records in ascending physical order, without rolled back ones; ignores those that it has."""
        ...

    def query(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> tuple[list[int], int, int]:
        """Physical offsets of candidates, newest first (hash collisions possible), with the index's last update time in ms
        and last physical offset."""
        ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class ColumnIndexBuilder(IndexBuilder, Protocol):
    """An index builder that also takes many records at a time, see :class:`ColumnDispatcher`."""

    def put_columns(self, columns: RecordColumns) -> None:
        """As ``put``; leaves out what is rolled back."""
        ...


@runtime_checkable
class RunIndexBuilder(ColumnIndexBuilder, Protocol):
    """An index builder that also takes batches as they were appended, see :class:`RunDispatcher`."""

    def put_runs(self, runs: Sequence[Run]) -> None:
        """As ``put``."""
        ...

"""The port of the index: messages by key and time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Protocol, runtime_checkable

from flintmq.core.kernel.ports.dispatch import CommitLogDispatcher


class IndexBuilder(CommitLogDispatcher, Protocol):
    """A dispatcher that finds messages by key and time. Loop thread.

    It is fed under the name ``index``, and what holds for a :class:`CommitLogDispatcher` holds for it: after a crash, and at
    any start, records come again that it has. One that is durable later than ``dispatch`` returns is a
    :class:`SupportsCommitted`, too, and one that ignores records by their position a :class:`SupportsTruncate`.

    It is handed every record; those that are rolled back (:func:`flintmq.core.record.sys_flag.is_indexed`) must not be found.
    """

    def query(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> tuple[list[int], int, int]:
        """Find records by key.

        Returns:
            Physical offsets of candidates, newest first (hash collisions are possible), the store time in ms of the newest
            record that the index has, and that record's physical offset.
        """
        ...

    def flush(self) -> None:
        """Make everything durable that was dispatched."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


@runtime_checkable
class SupportsCommittedBelow(Protocol):
    """An index builder that loses more than what lies behind the log's end when the log is cut: whole files, for example."""

    def committed_below(self, end_offset_bytes: int) -> int | None:
        """Return what ``committed`` will say once the log ends at a physical offset. Changes nothing."""
        ...


@runtime_checkable
class SupportsQuerySteps(Protocol):
    """An index builder whose queries may take long, and are made in steps."""

    def query_steps(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> Generator[None, None, tuple[list[int], int, int]]:
        """Find records as ``query`` does; yield now and then, so that other work can be done in between."""
        ...


@runtime_checkable
class SupportsDeleteBefore(Protocol):
    """An index builder that can forget deleted messages; another one keeps its files."""

    def delete_before(self, min_physical_offset_bytes: int, remove: Callable[[Path, object], None]) -> int:
        """Forget the messages below a physical offset.

        Args:
            min_physical_offset_bytes: where the log begins now.
            remove: deletes a file; called with its path and what is open of it.

        Returns:
            How many files were deleted.
        """
        ...

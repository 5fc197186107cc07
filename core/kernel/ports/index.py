"""The interfaces that index builders implement. An index builder finds messages by key and time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Protocol, runtime_checkable

from flintmq.core.kernel.ports.dispatch import CommitLogDispatcher


class IndexBuilder(CommitLogDispatcher, Protocol):
    """An index builder: a dispatcher that finds messages by key and time. Used only on the event loop's thread.

    The dispatcher ``index`` passes records to it under the rules of a :class:`CommitLogDispatcher`: after a crash, and at any
    start, records may be dispatched again. If its data becomes durable only after ``dispatch`` has returned, it must also be a
    :class:`SupportsCommitted`. If it ignores records by their position, it must also be a :class:`SupportsTruncate`.

    Every record is dispatched to it. Queries must not find records that are rolled back
    (:func:`flintmq.core.record.sys_flag.is_indexed`).
    """

    def query(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> tuple[list[int], int, int]:
        """Find records by key.

        Returns:
            The physical offsets of candidates, newest first (hash collisions are possible); the store time, in ms, of the
            newest record in the index; and the physical offset of that record.
        """
        ...

    def flush(self) -> None:
        """Make the index entries of all dispatched records durable."""
        ...

    def close(self) -> None:
        """Release the index's files and memory."""
        ...


@runtime_checkable
class SupportsCommittedBelow(Protocol):
    """An index builder that may lose more entries than necessary when the log is truncated, for example whole index files."""

    def committed_below(self, end_offset_bytes: int) -> int | None:
        """Return the value that ``committed`` would return if the log ended at a physical offset. The index is not changed."""
        ...


@runtime_checkable
class SupportsQuerySteps(Protocol):
    """An index builder whose queries may take long, and therefore run in steps."""

    def query_steps(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> Generator[None, None, tuple[list[int], int, int]]:
        """Find records in the index as ``query`` does; yield after each step, so that other work can run between two steps."""
        ...


@runtime_checkable
class SupportsDeleteBefore(Protocol):
    """An index builder that deletes the entries of messages that retention has deleted."""

    def delete_before(self, min_physical_offset_bytes: int, remove: Callable[[Path, object], None]) -> int:
        """Forget the index entries of messages below a physical offset.

        Args:
            min_physical_offset_bytes: the physical offset at which the log begins now.
            remove: deletes a file; called with its path and the object that keeps the file mapped.

        Returns:
            The number of deleted files.
        """
        ...

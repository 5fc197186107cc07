"""The ports of the consume queues: the essential dispatcher, the reader that it offers, and what its factory is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

from flintmq.core.kernel.ports.dispatch import CommitLogDispatcher
from flintmq.core.kernel.ports.filter import MessageFilter
from flintmq.core.kernel.ports.index import IndexBuilder
from flintmq.core.record.queue_unit import Unit

if TYPE_CHECKING:
    from flintmq.config.sections.models import BrokerConfig
    from flintmq.core.event import Event
    from flintmq.core.io.clock import Clock
    from flintmq.core.io.disk import Disk


class IndexCheckpoint(Protocol):
    """What a checkpoint keeps for an index."""

    index_msg_timestamp_ms: int
    """Store time up to which the index is on disk; 0 when unknown."""


@attrs.frozen(eq=False)
class StoreFolder:
    """A store as a start finds it, before its log is recovered: for what keeps files in it."""

    root: Path
    """The store's folder."""
    config: BrokerConfig
    disk: Disk
    clock: Clock
    checkpoint: IndexCheckpoint
    was_stopped: bool
    """Whether the last broker on the store stopped in order."""
    same_boot: bool
    """Whether it was killed, but everything that it wrote is there, because the machine has been running ever since."""
    min_offset_bytes: int
    """Physical offset with which the log begins."""
    sync_failed: Callable[[], None]
    """To be called when a sync has failed: the next start must not take what is in memory for what is on disk."""


class QueueReader(Protocol):
    """One queue of one topic: where its messages lie in the log. Loop thread.

    Its units are numbered by logical offsets without a hole; a filler stands in the place of a lost message.
    """

    @property
    def topic(self) -> str: ...

    @property
    def queue_id(self) -> int: ...

    @property
    def min_queue_offset(self) -> int:
        """Logical offset of the oldest message that still exists."""
        ...

    @property
    def max_queue_offset(self) -> int:
        """Logical offset of the next message."""
        ...

    @property
    def max_physical_offset_bytes(self) -> int:
        """Physical offset behind the newest message that the queue describes; -1 without any."""
        ...

    def unit(self, queue_offset: int) -> Unit | None:
        """Return the unit at a logical offset; None when there is none."""
        ...

    def units(self, queue_offset: int, max_units: int) -> Iterator[Unit]:
        """Walk units from a logical offset on, at most so many; at least one between min and max."""
        ...

    def unit_bytes(self, queue_offset: int, max_units: int) -> memoryview:
        """Return units from a logical offset on, at most so many, packed as :data:`flintmq.core.record.queue_unit.UNIT`.

        It is empty when there is none at the offset. In the place of a tags code there may be another number that only
        :meth:`resolving` understands.
        """
        ...

    def resolving(self, message_filter: MessageFilter) -> MessageFilter:
        """Return a filter that can be asked about the tags codes of :meth:`unit_bytes`."""
        ...

    def next_file_queue_offset(self, queue_offset: int) -> int:
        """Return the logical offset at which a reader that found nothing at an offset continues."""
        ...

    def queue_offset_by_time(
        self, timestamp_ms: int, min_physical_offset_bytes: int, store_time: Callable[[int], int]
    ) -> int:
        """Return the logical offset of the message nearest in time; 0 in an empty queue.

        Args:
            min_physical_offset_bytes: messages below it are deleted.
            store_time: gives the store time in ms of the message at a physical offset, -1 when it is gone.

        See docs/internals/algorithms.md, Offset by time.
        """
        ...

    def first_from(self, is_gone: Callable[[int], bool]) -> int:
        """Return the logical offset of the oldest message that is not gone; max when all are.

        ``is_gone`` is asked of physical offsets; where it says no, it says no for all that follow.
        """
        ...

    def expire(self, is_gone: Callable[[int], bool]) -> bool:
        """Move the minimum past what is gone and delete what only describes that.

        Returns:
            Whether all of it could be deleted; the rest is tried again with the next call.

        Raises:
            OSError: something could not be deleted.
        """
        ...

    def cut(self, queue_offset: int) -> None:
        """Forget every unit from a logical offset on."""
        ...


class ConsumeQueues(CommitLogDispatcher, Protocol):
    """The dispatcher ``consume_queue``: gives each visible record its unit, and hands units to readers. Loop thread.

    Visible records are those of :func:`flintmq.core.record.sys_flag.is_queued`. A record that comes again is ignored. Where a
    record's queue offset lies beyond the queue's end, because a damaged log lost messages, fillers keep the offsets of those
    behind them. Queues forget their units where their topic was deleted, and where they begin again: see
    :mod:`flintmq.core.record.topic_lives`, which has the rule.
    """

    @property
    def root(self) -> Path:
        """The folder whose disk must have room."""
        ...

    @property
    def queues(self) -> Mapping[tuple[str, int], QueueReader]:
        """Every queue by topic and queue id."""
        ...

    @property
    def last_store_timestamp_ms(self) -> int:
        """Store time of the newest record that has a unit; 0 before the first."""
        ...

    def find(self, topic: str, queue_id: int) -> QueueReader | None:
        """Return an existing queue, or None: asking never makes one."""
        ...

    def truncate(self, end_offset_bytes: int) -> None:
        """Forget every unit whose message does not lie wholly below a physical offset."""
        ...

    def correct_min_offsets(self, min_physical_offset_bytes: int) -> None:
        """Move each queue's minimum to its first unit whose message exists, at or behind a physical offset."""
        ...

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Forget one queue; its next message, if one comes, has logical offset 0."""
        ...

    def flush(self, least_pages: int) -> None:
        """Make units durable: where so many pages or more are dirty, or with 0 all. Called on the queue flusher's thread, too.

        Raises:
            OSError: a sync failed.
        """
        ...

    def close(self) -> None:
        """Release what is open. A second call does nothing."""
        ...


@runtime_checkable
class SupportsEvict(Protocol):
    """Consume queues, or an index builder, whose mapped pages can be given back to the kernel."""

    def evict(self) -> Iterator[None]:
        """Give back pages that are not wanted soon, a slice at a time."""
        ...


@runtime_checkable
class SupportsExtend(Protocol):
    """Consume queues that can go on behind messages that the log has lost."""

    def extend(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Put fillers at a queue's end, so that its next message has a queue offset. Raises StoreFullError."""
        ...


@runtime_checkable
class SupportsDeleted(Protocol):
    """Consume queues that tell of each queue that they delete while they dispatch, because its topic was deleted."""

    deleted: Event[[str, int]]
    """A queue was deleted, or begins again, with its topic and queue id."""

    def queues_of(self, topic: str) -> list[tuple[str, int]]:
        """Return the keys of a topic's queues, without a look at other topics."""
        ...


MakeConsumeQueues = Callable[[StoreFolder], ConsumeQueues]
MakeIndexBuilder = Callable[[StoreFolder], IndexBuilder]

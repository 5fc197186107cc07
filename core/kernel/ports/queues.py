"""The interfaces of the consume queues: the dispatcher that writes them, the readers, and the store folder that their factory
gets."""

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
    """The field of the store's checkpoint that the index writes."""

    index_msg_timestamp_ms: int
    """Store time up to which the index is on disk, in ms since 1970; 0 if the time is unknown."""


@attrs.frozen(eq=False)
class StoreFolder:
    """A store before the recovery of its log, for dispatchers and index builders that keep files in the store's folder."""

    root: Path
    """Path of the store's folder."""
    config: BrokerConfig
    disk: Disk
    clock: Clock
    checkpoint: IndexCheckpoint
    was_stopped: bool
    """Whether the last broker that used the store was stopped, not killed."""
    same_boot: bool
    """Whether the last broker that used the store was killed, but the machine has run ever since, so that no written byte is
    lost."""
    min_offset_bytes: int
    """Physical offset at which the log begins."""
    sync_failed: Callable[[], None]
    """Function that a dispatcher or index builder calls after a failed sync, so that the next start does not trust pages that
    are only in memory."""


class QueueReader(Protocol):
    """A reader of one consume queue, whose units give the positions of its messages in the log. Used only on the event loop's
    thread.

    The logical offsets of its units have no gaps: a lost message has a filler unit.
    """

    @property
    def topic(self) -> str: ...

    @property
    def queue_id(self) -> int: ...

    @property
    def min_queue_offset(self) -> int:
        """Logical offset of the queue's oldest message that still exists."""
        ...

    @property
    def max_queue_offset(self) -> int:
        """Logical offset that the queue's next message will get."""
        ...

    @property
    def max_physical_offset_bytes(self) -> int:
        """Physical offset just past the newest message of the queue; -1 if the queue is empty."""
        ...

    def unit(self, queue_offset: int) -> Unit | None:
        """Return the queue's unit at a logical offset, or None if the offset has no unit."""
        ...

    def units(self, queue_offset: int, max_units: int) -> Iterator[Unit]:
        """Yield at most ``max_units`` units from a logical offset on; at least one unit if the queue has the offset."""
        ...

    def unit_bytes(self, queue_offset: int, max_units: int) -> memoryview:
        """Return units of a queue from a logical offset on, packed as :data:`flintmq.core.record.queue_unit.UNIT`.

        The result has at most ``max_units`` units; it is empty if the offset has no unit. Instead of the tags code, a unit may
        contain the address of the tags code in another file. Only a filter that :meth:`resolving` returned can use such a unit.
        """
        ...

    def resolving(self, message_filter: MessageFilter) -> MessageFilter:
        """Return a filter that matches like the given filter and understands the tags codes of :meth:`unit_bytes`."""
        ...

    def next_file_queue_offset(self, queue_offset: int) -> int:
        """Return the logical offset at which a reader continues if it found no message at the given logical offset."""
        ...

    def queue_offset_by_time(
        self, timestamp_ms: int, min_physical_offset_bytes: int, store_time: Callable[[int], int]
    ) -> int:
        """Return the logical offset of the queue's message nearest to a store time; 0 in an empty queue.

        Args:
            timestamp_ms: the store time to search for.
            min_physical_offset_bytes: the physical offset below which messages are deleted.
            store_time: returns the store time, in ms, of the message at a physical offset; -1 if it is deleted.

        See docs/internals/algorithms.md, Offset by time.
        """
        ...

    def first_from(self, is_gone: Callable[[int], bool]) -> int:
        """Return the logical offset of the queue's oldest message that is not deleted; the queue's end if all messages are
        deleted.

        ``is_gone`` returns whether the message at a physical offset is deleted. If ``is_gone`` returns False for an offset, it
        returns False for all higher offsets.
        """
        ...

    def expire(self, is_gone: Callable[[int], bool]) -> bool:
        """Move the queue's minimum past all deleted messages, and delete the queue files whose units all belong to deleted
        messages.

        Returns:
            True if all these files were deleted. Otherwise, the next call tries to delete the remaining files.

        Raises:
            OSError: a file could not be deleted.
        """
        ...

    def cut(self, queue_offset: int) -> None:
        """Forget every unit of a queue from a logical offset on."""
        ...


class ConsumeQueues(CommitLogDispatcher, Protocol):
    """The dispatcher ``consume_queue``. For each record that consumers may see, it adds a unit to the consume queue of the
    record's topic and queue id. The broker reads a queue's units by a :class:`QueueReader`, which :attr:`queues` and
    :meth:`find` return. Used only on the event loop's thread, except :meth:`flush`.

    The function :func:`flintmq.core.record.sys_flag.is_queued` decides which records consumers may see. A record that is
    dispatched again is ignored. If a damaged log has lost messages, the offset of the next record lies beyond the end of its
    queue: units without a message (fillers) take the place of the lost units. A queue forgets its units if its topic was
    deleted or if the queue begins again at offset 0; the rule is in :mod:`flintmq.core.record.topic_lives`.
    """

    @property
    def root(self) -> Path:
        """Folder of the consume queue files. The broker watches the free space of the disk with this folder."""
        ...

    @property
    def queues(self) -> Mapping[tuple[str, int], QueueReader]:
        """All consume queues, keyed by topic and queue id."""
        ...

    @property
    def last_store_timestamp_ms(self) -> int:
        """Store time, in ms, of the newest record that has a unit in a consume queue; 0 if no record has a unit."""
        ...

    def find(self, topic: str, queue_id: int) -> QueueReader | None:
        """Return a consume queue, or None if it does not exist. Creates no queue."""
        ...

    def truncate(self, end_offset_bytes: int) -> None:
        """Remove the consume queue units of all messages whose end is greater than a physical offset."""
        ...

    def correct_min_offsets(self, min_physical_offset_bytes: int) -> None:
        """Set the minimum offset of each queue to the first unit whose message begins at or after a physical offset."""
        ...

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Forget a consume queue. The next message that the queue gets has logical offset 0."""
        ...

    def flush(self, least_pages: int) -> None:
        """Sync each queue that has at least ``least_pages`` dirty pages; with 0, sync all queues.

        Called on the loop thread and on the queue flusher's thread.

        Raises:
            OSError: a sync failed.
        """
        ...

    def close(self) -> None:
        """Release the consume queues' files and memory. A second call does nothing."""
        ...


@runtime_checkable
class SupportsEvict(Protocol):
    """Consume queues, or an index builder, whose mapped pages can be given back to the operating system."""

    def evict(self) -> Iterator[None]:
        """Give mapped pages that are not needed soon back to the system; yield after each slice, so that other work can run
        before the next slice.
        """
        ...


@runtime_checkable
class SupportsExtend(Protocol):
    """Consume queues to which units can be added in place of messages that the log has lost."""

    def extend(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Append fillers to a consume queue, so that its next message has the given queue offset.

        Raises:
            StoreFullError: the disk has no space for the fillers.
        """
        ...


@runtime_checkable
class SupportsDeleted(Protocol):
    """Consume queues that publish an event when dispatch deletes a queue because the queue's topic was deleted."""

    deleted: Event[[str, int]]
    """Event published with the topic and the queue id of a queue that was deleted, or that begins again at queue offset 0."""

    def queues_of(self, topic: str) -> list[tuple[str, int]]:
        """Return the topic and the queue id of each queue of a topic. The cost of the call does not depend on other topics."""
        ...


MakeConsumeQueues = Callable[[StoreFolder], ConsumeQueues]
MakeIndexBuilder = Callable[[StoreFolder], IndexBuilder]

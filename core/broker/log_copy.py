"""Gives replication access to the bytes, the end and the epochs of the log, and to the tables that a slave copies.

Features get the access with ``api.part(LogCopy)``. Only a feature that copies logs between brokers may use it, because the
class appends bytes to the log and truncates the log.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flintmq.core.broker.groups import SubscriptionGroupManager
    from flintmq.core.broker.offsets import ConsumerOffsetManager
    from flintmq.core.broker.topics import TopicConfigManager
    from flintmq.core.event import Event
    from flintmq.core.kernel.ports import FlushWaiter, ReplicationGate
    from flintmq.core.log.log_chunk import LogChunk
    from flintmq.core.store.message_store import MessageStore


class LogCopy:
    """Access for replication to a store whose log is copied to or from another broker. Used only on the event loop's thread.

    Args:
        store: the store, opened and started.
    """

    __slots__ = ("_store", "epochs")

    def __init__(self, store: MessageStore) -> None:
        self._store: Final = store
        self.epochs: Final = store.epochs
        """Epochs of the log, and the file that contains the epochs."""

    @property
    def file_bytes(self) -> int:
        """Size of each file of the log, in bytes."""
        return self._store.commit_log.queue.file_bytes

    @property
    def appended(self) -> Event[[]]:
        """Event published after each append to the log."""
        return self._store.appended

    def become_master(self) -> None:
        """Begin an epoch at the log's end, before the new master appends any message. Raises StoreError if the disk fails."""
        self._store.become_master()

    def wait_for_slaves(self, gate: ReplicationGate | None) -> None:
        """Make each acknowledgment of a message wait for slaves as well as for the flush.

        Args:
            gate: object that ends a wait when slaves have copied the message. If it is None, all waits for slaves end, and
                records become readable before a slave has copied them.
        """
        self._store.writer.wait_for_slaves(gate)
        if gate is None:
            self._store.watermarks.replicated = None

    def read(self, commit_log_offset_bytes: int, max_bytes: int, end_bytes: int) -> memoryview | None:
        """Return a view of the log from a physical offset; None if the offset's file is deleted.

        The view ends at the end of the file, after ``max_bytes`` or at physical offset ``end_bytes``, whichever comes first.
        """
        file = self._store.commit_log.queue.find(commit_log_offset_bytes)
        if file is None:
            return None
        at = commit_log_offset_bytes - file.start
        return file.view[at : min(at + max_bytes, file.size, end_bytes - file.start)]

    def append(self, chunks: Sequence[LogChunk]) -> FlushWaiter:
        """Append checked bytes of a master's log at the same physical offsets; return a waiter for their durability."""
        return self._store.writer.append_raw(chunks)

    def flush(self) -> FlushWaiter:
        """Request a flush of the log up to its present end; return a waiter for the flush."""
        return self._store.services.flush_service.submit(self._store.watermarks.wrote)

    def truncate(self, end_bytes: int) -> Path | None:
        """Truncate the log of a slave at a physical offset. The call blocks on the disk.

        Returns:
            The path at which the removed bytes are kept.
        """
        return self._store.truncate(end_bytes)

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete a slave's consume queue of a topic that is missing on the master."""
        self._store.delete_queue(topic, queue_id)


class MasterTables:
    """The tables of a slave that are copied from its master. Used only on the event loop's thread.

    Args:
        topics: the broker's table of topics.
        groups: the broker's table of subscription groups.
        offsets: the broker's table of consumer offsets.
    """

    __slots__ = ("_topics", "learn_topic", "replace_groups", "replace_offsets", "replace_topics")

    def __init__(
        self, topics: TopicConfigManager, groups: SubscriptionGroupManager, offsets: ConsumerOffsetManager
    ) -> None:
        self._topics: Final = topics
        self.learn_topic: Final = topics.learn
        """Method that adds a topic that has messages in a slave's log, but is missing from the copied topic table of the
        master."""
        self.replace_topics: Final = topics.replace
        self.replace_groups: Final = groups.replace
        self.replace_offsets: Final = offsets.replace

    @property
    def learned_topics(self) -> Set[str]:
        """Names of topics that a slave knows only from messages, not from the master's table."""
        return self._topics.learned

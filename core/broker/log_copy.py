"""The privileged part of replication: the log as bytes, its end, its epochs, and the tables that follow a master's.

``api.part(LogCopy)``. Only a feature that copies logs between brokers may use it: what it appends and cuts is the log itself.
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
    """A store whose log is copied to, or from, another broker. Loop thread.

    Args:
        store: open and started.
    """

    __slots__ = ("_store", "epochs")

    def __init__(self, store: MessageStore) -> None:
        self._store: Final = store
        self.epochs: Final = store.epochs
        """The epochs of the log, and their file."""

    @property
    def file_bytes(self) -> int:
        """The size of each file of the log."""
        return self._store.commit_log.queue.file_bytes

    @property
    def appended(self) -> Event[[]]:
        """Published after each append."""
        return self._store.appended

    def become_master(self) -> None:
        """Begin an epoch at the log's end, before anything is appended that slaves may get. Raises StoreError."""
        self._store.become_master()

    def wait_for_slaves(self, gate: ReplicationGate | None) -> None:
        """Have each acknowledgement wait for slaves, too; None ends that, and makes readable what no slave has."""
        self._store.writer.wait_for_slaves(gate)
        if gate is None:
            self._store.watermarks.replicated = None

    def read(self, commit_log_offset_bytes: int, max_bytes: int, end_bytes: int) -> memoryview | None:
        """Return bytes from a position on, within one file and below an end; None if that file is deleted."""
        file = self._store.commit_log.queue.find(commit_log_offset_bytes)
        if file is None:
            return None
        at = commit_log_offset_bytes - file.start
        return file.view[at : min(at + max_bytes, file.size, end_bytes - file.start)]

    def append(self, chunks: Sequence[LogChunk]) -> FlushWaiter:
        """Append checked bytes of another log at the same positions; return what is done when they are durable."""
        return self._store.writer.append_raw(chunks)

    def flush(self) -> FlushWaiter:
        """Return what is done when the log is on disk up to its present end."""
        return self._store.services.flush_service.submit(self._store.watermarks.wrote)

    def truncate(self, end_bytes: int) -> Path | None:
        """End the log of a slave earlier, for good; return where what is cut is kept. Blocks on the disk."""
        return self._store.truncate(end_bytes)

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete a consume queue of a topic that the master does not have."""
        self._store.delete_queue(topic, queue_id)


class MasterTables:
    """The tables of a slave, which are those of its master. Loop thread.

    Args:
        topics, groups, offsets: the tables of the broker.
    """

    __slots__ = ("_topics", "learn_topic", "replace_groups", "replace_offsets", "replace_topics")

    def __init__(
        self, topics: TopicConfigManager, groups: SubscriptionGroupManager, offsets: ConsumerOffsetManager
    ) -> None:
        self._topics: Final = topics
        self.learn_topic: Final = topics.learn
        """Takes a topic of which the log has messages, and the master's table is not known to have it yet."""
        self.replace_topics: Final = topics.replace
        self.replace_groups: Final = groups.replace
        self.replace_offsets: Final = offsets.replace

    @property
    def learned_topics(self) -> Set[str]:
        """The topics of which only messages have been seen."""
        return self._topics.learned

"""Gives retention access to the files of the log, the queues and the index, and lets it mark the disk as full.

Features get the access with ``api.part(LogFiles)``. Only a feature that decides which files are deleted may use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintmq.core.log.multi_path_queue import MultiPathMappedFileQueue

if TYPE_CHECKING:
    from flintmq.config.sections.models import BrokerConfig
    from flintmq.core.broker.log_view import LogView
    from flintmq.core.log.mapped_file_queue import MappedFile
    from flintmq.core.retention.retention import DiskFull
    from flintmq.core.store.message_store import MessageStore


class LogFiles:
    """Access for retention to the files of a store. Used only on the event loop's thread.

    Args:
        store: the opened store.
        log: read access to the same store.
    """

    __slots__ = (
        "_files",
        "_store",
        "background",
        "clock",
        "delete_queue",
        "disk",
        "index",
        "log",
        "queues",
    )

    def __init__(self, store: MessageStore, log: LogView) -> None:
        self._store: Final = store
        self._files: Final = store.commit_log.queue
        self.clock: Final = store.clock
        self.disk: Final = store.disk
        self.background: Final = store.background
        """Executor that deletes files in a thread; None if the caller's thread deletes the files."""
        self.log: Final = log
        """Read access to the log."""
        self.queues: Final = store.consume_queues
        self.index: Final = store.index
        self.delete_queue: Final = store.delete_queue

    @property
    def settings(self) -> BrokerConfig:
        """Settings of the store that are in force."""
        return self._store.config

    @property
    def files(self) -> Sequence[MappedFile]:
        """Files of the commit log, the oldest first. The sequence must not be changed."""
        return self._files.files

    def detach(self, start_offset_bytes: int) -> MappedFile | None:
        """Remove the file that begins at a physical offset from the log and return it, so that the caller can delete it.

        Returns:
            The file; None, without a change of the log, if the file is not the oldest file of the log or must not be deleted
            yet.
        """
        if not self._files.deletable() or self._files.files[0].start != start_offset_bytes:
            return None
        return self._files.detach_first()

    def avoid(self, folders: frozenset[Path]) -> None:
        """Create no new files of the log in folders whose disks are full. The call has no effect if the log has a single
        folder.
        """
        if isinstance(self._files, MultiPathMappedFileQueue):
            self._files.full_folders = folders

    @property
    def disk_full(self) -> DiskFull | None:
        """The reason why the disk counts as full, so that the store refuses messages; None if the store accepts messages."""
        return self._store.disk_full

    def set_disk_full(self, full: DiskFull | None) -> None:
        """Make the store refuse messages because a disk is full. With None, the store accepts messages again."""
        self._store.disk_full = full

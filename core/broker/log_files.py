"""The privileged part of retention: the files of the log and of what is derived from it, and whether the disk is full.

``api.part(LogFiles)``. Only a feature that decides when files may go may use it.
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
    """The files of a store. Loop thread.

    Args:
        store: open.
        log: the store, to be read.
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
        """Where files may be deleted; None deletes them on the caller's thread."""
        self.log: Final = log
        """The log, to be read."""
        self.queues: Final = store.consume_queues
        self.index: Final = store.index
        self.delete_queue: Final = store.delete_queue

    @property
    def settings(self) -> BrokerConfig:
        """The settings in force."""
        return self._store.config

    @property
    def files(self) -> Sequence[MappedFile]:
        """The files of the log, the oldest one first. They are not to be changed."""
        return self._files.files

    def detach(self, start_offset_bytes: int) -> MappedFile | None:
        """Take the file that begins at a position out of the log, and return it; the caller deletes it.

        Returns:
            None if it is not the oldest one, or may not go yet; nothing has changed.
        """
        if not self._files.deletable() or self._files.files[0].start != start_offset_bytes:
            return None
        return self._files.detach_first()

    def avoid(self, folders: frozenset[Path]) -> None:
        """Have no new file of the log made in folders whose disks are full; no effect if the log has one folder."""
        if isinstance(self._files, MultiPathMappedFileQueue):
            self._files.full_folders = folders

    @property
    def disk_full(self) -> DiskFull | None:
        """Why the store takes no messages for want of room; None while it has some."""
        return self._store.disk_full

    def set_disk_full(self, full: DiskFull | None) -> None:
        """Have the store refuse messages for want of room, or take them again."""
        self._store.disk_full = full

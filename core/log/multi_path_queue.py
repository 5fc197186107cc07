"""A log whose files are distributed over several folders, for example on several disks.

See docs/internals/store-format.md, Folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.core.errors import StoreFullError
from flintmq.core.io.disk import Disk
from flintmq.core.log.mapped_file_queue import MappedFile, MappedFileQueue
from flintmq.core.log_events import event_log

if TYPE_CHECKING:
    from flintmq.core.kernel.ports import TransientStorePool

log = event_log("flintmq.store")


class MultiPathMappedFileQueue(MappedFileQueue):
    """The files of a log in several folders (``MultiPathMappedFileQueue`` of RocketMQ).

    The file with physical offset ``start`` is created in folder number ``(start / file size) % folders`` of the sorted writable
    folders with free space. Files of all folders are loaded and merged by ``start``, so a file can be moved between folders
    while the broker is stopped.

    Args:
        folders: the configured folders in which files are created.
        read_only: folders whose files are loaded, but in which no file is created.
    """

    def __init__(
        self,
        disk: Disk,
        folders: Sequence[Path],
        read_only: Sequence[Path],
        file_bytes: int,
        *,
        step_bytes: int,
        pool: TransientStorePool | None = None,
        ahead: Executor | None = None,
        warm: bool = False,
        holds: bool = False,
        size_key: str = "their size",
    ) -> None:
        super().__init__(
            disk,
            folders[0],
            file_bytes,
            step_bytes=step_bytes,
            pool=pool,
            ahead=ahead,
            warm=warm,
            holds=holds,
            size_key=size_key,
        )
        self._all = tuple(dict.fromkeys((*folders, *read_only)))
        self._writable = tuple(sorted((f for f in folders if f not in read_only), key=str)) or (folders[0],)
        self.full_folders: frozenset[Path] = frozenset()
        """Folders of the log on nearly full disks, updated by the retention plugin. No file is created in these folders while
        another folder has space."""

    def _paths(self) -> list[Path]:
        return sorted((path for folder in self._all for path in self._disk.list_files(folder)), key=lambda p: p.name)

    def folders_for(self, start: int) -> list[Path]:
        """Return the folders in which a file of the log may be created, in order of preference."""
        roomy = [folder for folder in self._writable if folder not in self.full_folders] or list(self._writable)
        first = start // self.file_bytes % len(roomy)
        best = roomy[first:] + roomy[:first]
        return best + [folder for folder in self._writable if folder not in best]

    def _make(self, start: int) -> MappedFile:
        full: StoreFullError | None = None
        for folder in self.folders_for(start):
            try:
                return self._make_in(folder, start)
            except StoreFullError as error:
                log.warning(
                    "store.no_room",
                    "no room for a commit log file in %(folder)s: %(error)s",
                    folder=folder,
                    error=error,
                )
                full = error
        assert full is not None
        raise full

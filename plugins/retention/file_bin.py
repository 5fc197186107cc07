"""Deletes files off the loop thread in order, because a disk may need long to unlink a large file."""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import Executor
from pathlib import Path

from flintmq.core.errors import StoreError
from flintmq.core.io.disk import Disk

log = logging.getLogger("flintmq.store")


class FileBin:
    """A queue of files to delete. A file that cannot be deleted stays first, and :meth:`empty` tries it again.

    A log whose second file is gone while its first one is not could not be opened again. What was not deleted when the broker
    stops is part of the log at the next start.

    Args:
        executor: where files are deleted; None deletes them on the caller's thread.
    """

    def __init__(self, disk: Disk, executor: Executor | None) -> None:
        self._disk = disk
        self._executor = executor
        self._waiting: deque[tuple[Path, object]] = deque()
        self._lock = threading.Lock()
        self.failures = 0
        """How often a file could not be deleted."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, path: Path, kept_until_then: object = None) -> None:
        """Takes a file; call :meth:`empty` next.

        Args:
            path: the file.
            kept_until_then: is let go when the file is deleted, and on that thread: to unmap a large file takes a while too.
        """
        self._waiting.append((path, kept_until_then))

    def empty(self) -> None:
        """Delete what waits, in the background where there is one."""
        if not self._waiting:
            return
        if self._executor is None:
            self._empty()
        else:
            self._executor.submit(self._empty)

    def _empty(self) -> None:
        with self._lock:
            while self._waiting:
                path, _kept = self._waiting[0]
                try:
                    self._disk.remove(path)
                except (OSError, StoreError) as error:
                    self.failures += 1
                    log.error("%s could not be deleted, %d files wait: %s", path, len(self._waiting), error)
                    return
                self._waiting.popleft()
                log.info("%s deleted", path)

"""Locks byte 0 of the file ``lock`` while a broker runs, so that one process at a time uses a store.

See docs/internals/store-format.md, Folders.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flintmq.core.errors import StoreError, StoreLockedError
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK, is_file_locked


class StoreLock:
    """Held from construction until :meth:`release`. The Java broker takes the same lock, so neither starts on the other's.

    Raises:
        StoreLockedError: another process holds it.
        StoreError: the file cannot be made (read-only folder).
    """

    def __init__(self, root: Path, disk: Disk = OS_DISK) -> None:
        path = root / "lock"
        self._release: Callable[[], object] | None = None
        try:
            self._release = disk.lock(path)
        except BlockingIOError as error:
            raise StoreLockedError(
                f"{root}: another broker has this store open; stop it or name another store.path"
            ) from error
        except OSError as error:
            raise StoreError(f"{path}: cannot be opened for writing: {error.strerror}") from error

    def release(self) -> None:
        """Let the next one in. Idempotent."""
        release, self._release = self._release, None
        if release is not None:
            release()


def is_locked(root: Path) -> bool:
    """Return whether a broker has a store open now, this process's own included. Takes no lock and disturbs none.

    Raises:
        StoreError: the lock file cannot be read.
    """
    path = root / "lock"
    try:
        return is_file_locked(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot find out whether it is locked: {error.strerror}") from error

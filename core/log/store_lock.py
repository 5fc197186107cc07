"""The lock of a store: byte 0 of the file ``lock`` is locked while a broker runs, so that one process uses the store.

See docs/internals/store-format.md, Folders.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from flintmq.core.errors import StoreError, StoreLockedError
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK, is_file_locked, lock_folder


class StoreLock:
    """A lock on a store, held from construction until :meth:`release`. The Java broker uses the same lock.

    Args:
        root: the store's folder.
        disk: the disk interface, which creates and locks the file.
        log_folders: existing folders of the commit log outside the store, which are locked too, because two stores could be
            configured with the same folder. The Java broker does not lock them.

    Raises:
        StoreLockedError: another process has locked the store, or one of the folders.
        StoreError: the file cannot be created (read-only folder), or a folder cannot be locked.
    """

    def __init__(self, root: Path, disk: Disk = OS_DISK, log_folders: Sequence[Path] = ()) -> None:
        path = root / "lock"
        self._held = contextlib.ExitStack()
        with contextlib.ExitStack() as held:
            try:
                held.callback(disk.lock(path))
            except BlockingIOError as error:
                raise StoreLockedError(
                    f"{root}: another broker has this store open; stop it or name another store.path"
                ) from error
            except OSError as error:
                raise StoreError(f"{path}: cannot be opened for writing: {error.strerror}") from error
            for folder in log_folders:
                try:
                    held.callback(lock_folder(folder))
                except BlockingIOError as error:
                    raise StoreLockedError(
                        f"{folder}: another broker has its commit log there; stop it or name another folder "
                        "(store.commit_log_paths)"
                    ) from error
                except OSError as error:
                    raise StoreError(
                        f"{folder}: cannot be locked: {error.strerror} (store.commit_log_paths)"
                    ) from error
            self._held = held.pop_all()

    def release(self) -> None:
        """Release the lock on the store, so that another process can open it. Idempotent."""
        self._held.close()


def is_locked(root: Path) -> bool:
    """Return whether a broker, in this process or another, has the store open. The function does not lock the store.

    Raises:
        StoreError: the lock file cannot be read.
    """
    path = root / "lock"
    try:
        return is_file_locked(path)
    except OSError as error:
        raise StoreError(f"{path}: the lock cannot be checked: {error.strerror}") from error

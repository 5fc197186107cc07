"""Detects how the last broker on a store ended, by two marks: the file ``abort``, and the id of the kernel's boot.

If the machine has not been rebooted since, the kernel still has all writes of a killed process.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from pathlib import Path

from flintmq.core.errors import StoreError
from flintmq.core.io.disk import Disk


class LastStop(enum.Enum):
    """How the last broker on a store ended."""

    CLEAN = "clean"
    """The broker stopped cleanly and removed its ``abort`` file."""
    KILLED = "killed"
    """The broker's process was killed, and the machine has run ever since, so that no write of the broker is lost."""
    CRASHED = "crashed"
    """The machine may have stopped with the broker, so that only synced data is certain to be in the files."""


class StoreMarks:
    """Writes and reads the marks in a store by which a start detects how the last broker ended.

    Args:
        disk: the disk interface.
        root: the store's folder.
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._root = root

    @property
    def abort_file(self) -> Path:
        """The path of the file ``abort``, which exists while a broker uses the store.

        If a start finds the file, the last broker did not stop cleanly.
        """
        return self._root / "abort"

    def last_stop(self) -> LastStop:
        """Return how the last broker on the store ended; CLEAN for a store that was never used."""
        if not self._disk.exists(self.abort_file):
            return LastStop.CLEAN
        # If the machine has not restarted since the broker ran, only the process was killed, and the files have all its writes.
        # If the machine has restarted, it may have crashed, so that the last writes of the broker may be lost.
        return LastStop.KILLED if is_same_boot(self._disk, self._root) else LastStop.CRASHED

    def mark_abort(self) -> None:
        """Create the ``abort`` file, by which the next start detects a crash of this broker."""
        self._disk.write_file(self.abort_file, b"")

    def remove_abort(self) -> None:
        """Remove the ``abort`` file, because the store is closed cleanly."""
        self._disk.remove(self.abort_file)

    def mark_boot(self) -> None:
        """Write the boot id of the operating system to a file in the store. If the next start of a broker finds the same id,
        the machine was not rebooted since, so that no write of this broker was lost."""
        now = self._disk.incarnation(self._root).encode()
        if not is_same_boot(self._disk, self._root) and now:
            path = boot_path(self._root)
            self._disk.make_folder(path.parent)
            self._disk.write_file(path, now)

    def forget_boot(self) -> None:
        """Remove the stored id of the kernel's boot, so that the next start relies only on synced data.

        This is needed after a failed sync, because the kernel may then drop unwritten pages. Never raises.
        """
        with contextlib.suppress(OSError, StoreError):
            self._disk.remove(boot_path(self._root))

    @contextlib.contextmanager
    def distrusting_memory(self) -> Iterator[None]:
        """If the ``with`` block fails with a disk error, remove the stored id of the kernel's boot (:meth:`forget_boot`). The
        error may have been a failed sync, after which the kernel may drop unwritten pages. Without the id, the next start
        relies only on synced data."""
        try:
            yield
        except OSError:
            self.forget_boot()
            raise


def boot_path(root: Path) -> Path:
    """Return the path of the file in a store's folder that contains the id of the kernel's boot."""
    return root / "flint" / "boot"


def is_same_boot(disk: Disk, root: Path) -> bool:
    """Return whether the machine has not been rebooted since a store was last used. The store is not changed."""
    now = disk.incarnation(root).encode()
    path = boot_path(root)
    return bool(now) and disk.exists(path) and disk.read(path) == now

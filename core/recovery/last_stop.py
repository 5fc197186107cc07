"""How the last broker on a store ended, by the marks that it left: an ``abort`` file, and the boot of the kernel under it.

While the boot is the same, all that a killed process wrote is there.
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
    """It stopped in order and removed its ``abort`` file."""
    KILLED = "killed"
    """Its process was killed, and the machine has been running ever since: everything that it wrote is there."""
    CRASHED = "crashed"
    """The machine may have stopped with it: only what was synced is sure to be there."""


class StoreMarks:
    """Leaves and reads the marks of a store's life.

    Args:
        disk: where they lie.
        root: the store's folder.
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._root = root

    @property
    def abort_file(self) -> Path:
        """The file that exists while a broker runs on the store; a start that finds it knows of a crash."""
        return self._root / "abort"

    def last_stop(self) -> LastStop:
        """Return how the store was left; one that was never used is a clean one."""
        if not self._disk.exists(self.abort_file):
            return LastStop.CLEAN
        # After a kill all that was written is still there, because the machine did not stop with the process.
        return LastStop.KILLED if is_same_boot(self._disk, self._root) else LastStop.CRASHED

    def mark_abort(self) -> None:
        """Make a crash from now on show at the next start."""
        self._disk.write_file(self.abort_file, b"")

    def remove_abort(self) -> None:
        """Record that the store is closed in order."""
        self._disk.remove(self.abort_file)

    def mark_boot(self) -> None:
        """Note the boot of the kernel under which the store is in use from now on."""
        now = self._disk.incarnation(self._root).encode()
        if not is_same_boot(self._disk, self._root) and now:
            path = boot_path(self._root)
            self._disk.make_folder(path.parent)
            self._disk.write_file(path, now)

    def forget_boot(self) -> None:
        """Have the next start trust only what is on disk: after a failed sync the kernel may drop pages. Never raises."""
        with contextlib.suppress(OSError, StoreError):
            self._disk.remove(boot_path(self._root))

    @contextlib.contextmanager
    def distrusting_memory(self) -> Iterator[None]:
        """Forget the boot if the disk refuses something meanwhile: it may have been a sync."""
        try:
            yield
        except OSError:
            self.forget_boot()
            raise


def boot_path(root: Path) -> Path:
    """Return the file that says so, in a store's folder."""
    return root / "flint" / "boot"


def is_same_boot(disk: Disk, root: Path) -> bool:
    """Return whether the machine has been running ever since the store in a folder was last in use. Changes nothing."""
    now = disk.incarnation(root).encode()
    path = boot_path(root)
    return bool(now) and disk.exists(path) and disk.read(path) == now

"""The files by which a start learns how a store was left: ``abort``, and the boot of the kernel it was last in use under."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from flintmq.core.errors import StoreError
from flintmq.core.io.disk import Disk
from flintmq.core.recovery.boot import boot_path, is_same_boot
from flintmq.core.recovery.plan import LastStop


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

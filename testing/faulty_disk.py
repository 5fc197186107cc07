"""A disk in memory that can fail, fill up, and lose unsynced data, as a test scripts it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from flintmq.testing.fault import Fault
from flintmq.testing.journaled_files import JournalReplay
from flintmq.testing.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from flintmq.testing.journaled_files import Image

LOG: Final = "commitlog"
_NEEDS_ROOM: Final = ("create", "resize", "put", "folder")


@attrs.define(eq=False)
class SyncFault(Fault):
    """A fault of a sync: the n-th sync of a file after the fault was scripted fails or is slow."""

    within: str
    """Name of a folder. The fault counts only syncs of files in folders with this name. If the name is empty, the fault counts
    syncs of all files."""
    delay_s: float | None = None
    """Delay of the sync, in seconds; undoing the fault ends the delay early. If the delay is None, the sync fails with EIO."""
    _ended: threading.Event = attrs.field(factory=threading.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.undone.subscribe(self._ended.set)

    def delay(self) -> None:
        """Delay a sync for ``delay_s``; return early if the fault is undone."""
        self._ended.wait(self.delay_s)


@attrs.define(eq=False)
class FullDisk(Fault):
    """A fault of the disk: the disk has no free space."""


class FaultyDisk(SimulatedDisk):
    """A disk in memory, with faults.

    Args:
        image: the contents of the disk at first.
        boot: the id of the kernel's boot; a disk after a power cut has another id.
    """

    def __init__(self, image: Image | None = None, *, boot: str = "boot") -> None:
        super().__init__(image, boot=boot)
        self._sync_faults: list[SyncFault] = []
        self._full: FullDisk | None = None

    def script(self, fault: SyncFault) -> SyncFault:
        """Script a failing or slow sync of the disk."""
        self._sync_faults.append(fault)
        return fault

    def fill(self, fault: FullDisk) -> FullDisk:
        """Let the disk have no free space until the fault is undone."""
        self._full = fault
        fault.undone.subscribe(self._free)
        return fault

    def _free(self) -> None:
        self._full = None

    def lose_power(self, *, tears: bool) -> Image:
        """Return the contents that the disk has after a power cut. From now on every sync of this disk fails.

        Args:
            tears: whether unsynced writes to the commit log survive the power cut, except the second half of the last write.
        """
        with self._lock:
            self.fail(self.count, errno.EIO, for_ever=True, operation="sync")
            replay = JournalReplay(self).advance(len(self.journal))
            left = replay.torn(LOG) if tears else replay.synced()
        for fault in self._sync_faults:
            # undo() ends the delay of a sync that still waits.
            # The delayed sync fails when its delay ends, because the power is already cut.
            fault.undo()
        return left

    def sync_file(self, path: Path, file: int) -> None:
        for fault in self._sync_faults:
            if (not fault.within or fault.within in path.parts) and fault.counts():
                fault.strike()
                if fault.delay_s is None:
                    self._fail_sync(path, file)
                else:
                    fault.delay()
        super().sync_file(path, file)

    def _fail_sync(self, path: Path, file: int) -> None:
        with self._lock:
            self.fail(self.count, errno.EIO, operation="sync")
            super().sync_file(path, file)

    def operate(self, kind: str, path: Path, *operation: object) -> None:
        full = self._full
        if full is not None and kind in _NEEDS_ROOM and full.counts():
            full.strike()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        super().operate(kind, path, *operation)

    def usage(self, path: Path) -> tuple[int, int, int]:
        total_bytes, used_bytes, free_bytes = super().usage(path)
        return (total_bytes, total_bytes, 0) if self._full is not None else (total_bytes, used_bytes, free_bytes)

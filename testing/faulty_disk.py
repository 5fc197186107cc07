"""A disk in memory that a test can have fail, fill up, and lose what was not synced."""

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
    """What happens to the n-th sync of a file, from when it is scripted."""

    within: str
    """Only of files in a folder of this name; empty: of any."""
    delay_s: float | None = None
    """The sync takes so much longer, or until the fault is undone; None: it fails, with EIO."""
    _ended: threading.Event = attrs.field(factory=threading.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.undone.subscribe(self._ended.set)

    def delay(self) -> None:
        """Wait as long as the sync shall take."""
        self._ended.wait(self.delay_s)


@attrs.define(eq=False)
class FullDisk(Fault):
    """Nothing new has room."""


class FaultyDisk(SimulatedDisk):
    """A disk in memory, with faults.

    Args:
        image: what is there at first.
        boot: names the kernel's boot, which a power cut ends.
    """

    def __init__(self, image: Image | None = None, *, boot: str = "boot") -> None:
        super().__init__(image, boot=boot)
        self._sync_faults: list[SyncFault] = []
        self._full: FullDisk | None = None

    def script(self, fault: SyncFault) -> SyncFault:
        """Have a sync fail or take longer, unless the fault is undone before."""
        self._sync_faults.append(fault)
        return fault

    def fill(self, fault: FullDisk) -> FullDisk:
        """Have no room until the fault is undone."""
        self._full = fault
        fault.undone.subscribe(self._free)
        return fault

    def _free(self) -> None:
        self._full = None

    def lose_power(self, *, tears: bool) -> Image:
        """Return what is left of it; from now on nothing is synced here any more.

        Args:
            tears: whether what was written to the log and not synced has got onto the disk, but for half of the last write.
        """
        with self._lock:
            self.fail(self.count, errno.EIO, for_ever=True, operation="sync")
            replay = JournalReplay(self).advance(len(self.journal))
            left = replay.torn(LOG) if tears else replay.synced()
        for fault in self._sync_faults:
            fault.undo()  # a sync that takes its time fails now
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

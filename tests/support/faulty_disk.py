"""Make a disk fail as a test scripts it: the n-th allocation, sync, write or new file of a path."""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from flintmq.core.errors import StoreFullError
from flintmq.core.io.disk import Disk, MappedRegion
from flintmq.core.io.os_disk import OS_DISK

if TYPE_CHECKING:
    from flintmq.core.io.disk import Column

Operation = Literal["map_file", "allocate", "sync", "write", "write_at", "write_file"]
_FULL: Final = ("map_file", "allocate", "write_file")


class Fault:
    """A failure to come. ``hits`` counts how often it struck."""

    def __init__(self, operation: Operation, within: str, after: int, times: int | None) -> None:
        self.operation = operation
        self.within = within
        self._after = after
        self._times = times
        self.hits = 0

    def strikes(self, operation: Operation, path: Path) -> bool:
        """Return whether this call is one that fails."""
        if operation != self.operation or (self.within and self.within not in path.parts):
            return False
        if self._after > 0:
            self._after -= 1
            return False
        if self._times is not None and self.hits >= self._times:
            return False
        self.hits += 1
        return True


class FaultyDisk:
    """A :class:`flintmq.core.io.disk.Disk` around another one. Thread-safe.

    ``map_file``, ``allocate`` and ``write_file`` fail with StoreFullError (a full disk), ``sync`` and ``write`` with an
    OSError of EIO. ``map_file`` fails only where it would make a new file.
    """

    def __init__(self, disk: Disk = OS_DISK) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self.calls: Counter[str] = Counter()
        """How often each operation was asked for."""

    def fail(self, operation: Operation, *, within: str = "", after: int = 0, times: int | None = None) -> Fault:
        """Script a failure.

        Args:
            operation: what fails.
            within: only on paths with this folder or file name among their parts; empty for all.
            after: so many calls succeed first.
            times: so many calls fail, then all is well again; None for ever (see :meth:`heal`).
        """
        fault = Fault(operation, within, after, times)
        with self._lock:
            self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """End every failure: there is room again."""
        with self._lock:
            self._faults.clear()

    def check(self, operation: Operation, path: Path) -> None:
        """Count a call, and raise where it is scripted to fail."""
        with self._lock:
            self.calls[operation] += 1
            struck = sum(fault.strikes(operation, path) for fault in self._faults) > 0
        if not struck:
            return
        if operation in _FULL:
            raise StoreFullError(f"{path}: no room (scripted)")
        raise OSError(errno.EIO, "scripted failure", str(path))

    # the disk

    def map_file(self, path: Path, size: int, *, create: bool, allocate: int, holds: bool = False) -> MappedRegion:
        new = create and not self._disk.exists(path)
        if new:
            self.check("map_file", path)
        region = self._disk.map_file(path, size, create=create, allocate=allocate, holds=holds)
        return FaultyRegion(self, path, region, allocate if new else 0)

    def list_files(self, folder: Path) -> list[Path]:
        return self._disk.list_files(folder)

    def list_folders(self, folder: Path) -> list[Path]:
        return self._disk.list_folders(folder)

    def make_folder(self, folder: Path) -> None:
        self._disk.make_folder(folder)

    def sync_folder(self, folder: Path) -> None:
        self._disk.sync_folder(folder)

    def incarnation(self, path: Path) -> str:
        return self._disk.incarnation(path)

    def exists(self, path: Path) -> bool:
        return self._disk.exists(path)

    def size(self, path: Path) -> int:
        return self._disk.size(path)

    def read(self, path: Path) -> bytes:
        return self._disk.read(path)

    def write_file(self, path: Path, data: bytes) -> None:
        self.check("write_file", path)
        self._disk.write_file(path, data)

    def write_at(self, path: Path, position: int, data: bytes) -> None:
        self.check("write_at", path)
        self._disk.write_at(path, position, data)

    def sync_content(self, path: Path) -> None:
        self.check("sync", path)
        self._disk.sync_content(path)

    def discard(self, path: Path) -> None:
        self._disk.discard(path)

    def lock(self, path: Path) -> Callable[[], object]:
        return self._disk.lock(path)

    def replace(self, source: Path, target: Path) -> None:
        self._disk.replace(source, target)

    def remove(self, path: Path) -> None:
        self._disk.remove(path)

    def remove_folder(self, folder: Path) -> None:
        self._disk.remove_folder(folder)

    def usage(self, path: Path) -> tuple[int, int, int]:
        return self._disk.usage(path)

    def modified_ms(self, path: Path) -> int:
        return self._disk.modified_ms(path)

    def resident_bytes(self) -> int:
        return self._disk.resident_bytes()


class FaultyRegion:
    """A mapped file of a :class:`FaultyDisk`. Also notes writes to places nobody allocated, which a full disk punishes."""

    def __init__(self, disk: FaultyDisk, path: Path, region: MappedRegion, allocated: int) -> None:
        self._disk = disk
        self._path = path
        self._region = region
        self._allocated = allocated
        self.view = region.view

    def write(self, position: int, data: bytes | memoryview) -> None:
        self._check_write(position + len(data))
        self._region.write(position, data)

    def write_in_order(self, position: int, data: bytes | memoryview) -> None:
        self._check_write(position + len(data))
        self._region.write_in_order(position, data)

    def write_int32s(self, position: int, places: Column, values: Column) -> None:
        self._check_write(position + 4 * int(places[-1]) + 4)
        self._region.write_int32s(position, places, values)

    def _check_write(self, end: int) -> None:
        self._disk.check("write", self._path)
        if end > self._allocated:
            raise AssertionError(f"{self._path}: written up to {end}, allocated up to {self._allocated}")

    def allocate(self, end: int) -> None:
        if end > self._allocated:
            self._disk.check("allocate", self._path)
        self._region.allocate(end)
        self._allocated = max(self._allocated, end)

    def fill_zeros(self, start: int, end: int) -> None:
        self._check_write(end)
        self._region.fill_zeros(start, end)

    def rewrite(self, start: int, end: int) -> None:
        self._disk.check("write", self._path)
        if end > self._allocated:
            raise AssertionError(f"{self._path}: written up to {end}, allocated up to {self._allocated}")
        self._region.rewrite(start, end)

    def sync(self) -> None:
        self._disk.check("sync", self._path)
        self._region.sync()

    def evict(self, start: int, end: int) -> None:
        self._region.evict(start, end)

    def next_data(self, position: int) -> int:
        return self._region.next_data(position)

    def let_go(self) -> None:
        self._region.let_go()

    def close(self) -> None:
        self._region.close()

"""File access for the inspection of a store: files are mapped read-only, and all writes are dropped."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable
from pathlib import Path

from flintmq.core.io.os_disk import OsDisk
from flintmq.programs.doctor.files import next_data


class LookRegion:
    """A mapped file that ignores writes. A file without a path consists of zeros."""

    def __init__(self, path: Path | None, size: int) -> None:
        self._path = path
        self._size = size
        if path is not None:
            with path.open("rb") as file:
                self.view = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
        else:
            self.view = memoryview(mmap.mmap(-1, size)).toreadonly()

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Drop the data of a write. All changing methods of this class do nothing."""

    def write_in_order(self, position: int, data: bytes | memoryview) -> None: ...

    def write_int32s(self, position: int, places: object, values: object) -> None: ...

    def allocate(self, end: int) -> None: ...

    def fill_zeros(self, start: int, end: int) -> None: ...

    def rewrite(self, start: int, end: int) -> None: ...

    def sync(self) -> None: ...

    def evict(self, start: int, end: int) -> None: ...

    def next_data(self, position: int) -> int:
        """Return the position of the next data at or after ``position``; the file's size if no data follows. All bytes between
        the two positions are zeros."""
        return self._size if self._path is None else next_data(self._path, position, self._size)

    def let_go(self) -> None: ...

    def close(self) -> None: ...


class LookDisk(OsDisk):
    """Gives a store access to the operating system's files, but never changes the files. A file that the store removes is only
    hidden from the store."""

    def __init__(self) -> None:
        self._removed: set[Path] = set()

    def map_file(  # type: ignore[override]
        self, path: Path, size: int, *, create: bool, allocate: int, holds: bool = False
    ) -> LookRegion:
        return LookRegion(path if self.exists(path) else None, size)

    def list_files(self, folder: Path) -> list[Path]:
        return [path for path in super().list_files(folder) if path not in self._removed]

    def exists(self, path: Path) -> bool:
        return path not in self._removed and super().exists(path)

    def remove(self, path: Path) -> None:
        self._removed.add(path)

    def make_folder(self, folder: Path) -> None: ...

    def sync_folder(self, folder: Path) -> None: ...

    def write_file(self, path: Path, data: bytes) -> None: ...

    def write_at(self, path: Path, position: int, data: bytes) -> None: ...

    def sync_content(self, path: Path) -> None: ...

    def discard(self, path: Path) -> None: ...

    def replace(self, source: Path, target: Path) -> None: ...

    def remove_folder(self, folder: Path) -> None: ...

    def lock(self, path: Path) -> Callable[[], object]:
        return contextlib.nullcontext

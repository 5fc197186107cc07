"""Lists the current files of a commit log, and maps files read-only. Maps are kept for further reads."""

from __future__ import annotations

import contextlib
import mmap
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from flintmq.core.errors import StoreError, reading
from flintmq.core.io.paths import is_file_name
from flintmq.core.record.record import MAGIC_V1, MAGIC_V2, RECORD_MIN_BYTES, RecordError, decode_record

_MAPS_MAX: Final = 64

Bytes = npt.NDArray[np.uint8]


@attrs.frozen
class LogFile:
    """A file of a commit log or consume queue, with its path and the range of bytes that it contains."""

    path: str
    start: int
    """Position in bytes, in the log or queue, of the file's first byte."""
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


def list_files(folder: str | Path) -> list[LogFile]:
    """Return the files of a commit log or consume queue, in order; an empty list if the folder does not exist.

    Raises:
        StoreError: the folder cannot be read.
    """
    found: list[LogFile] = []
    with reading(Path(folder)), contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if is_file_name(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    # A file may be deleted after the folder was listed. The deleted file is skipped.
                    if size := entry.stat().st_size:
                        found.append(LogFile(entry.path, int(entry.name), size))
    found.sort(key=lambda file: file.start)
    return found


_maps: OrderedDict[str, tuple[tuple[int, int, int], Bytes]] = OrderedDict()
"""Mapped files, keyed by path, least recently used first. A value has the file's device, inode and size, and the mapped
bytes."""


def map_file(path: str) -> Bytes | None:
    """Return a read-only memory map of a file; None if the file does not exist.

    A map stays valid after the file's deletion. A new file of the same name is recognized by its inode. A log's files never
    become shorter; reading past the end of a shortened file would kill the process.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        stat = Path(path).stat()
        key = (stat.st_dev, stat.st_ino, stat.st_size)
        known = _maps.get(path)
        if known is not None and known[0] == key:
            _maps.move_to_end(path)
            return known[1]
        with open(path, "rb") as file:
            data = np.frombuffer(mmap.mmap(file.fileno(), stat.st_size, access=mmap.ACCESS_READ), np.uint8)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    _maps[path] = key, data
    while len(_maps) > _MAPS_MAX:
        _maps.popitem(last=False)
    return data


class LogFiles:
    """The current files of a store's commit log. Raises StoreError if a folder cannot be read."""

    def __init__(self, folders: Sequence[str | Path]) -> None:
        self.files = sorted((file for folder in folders for file in list_files(folder)), key=lambda file: file.start)
        self._starts = [file.start for file in self.files]

    @property
    def start(self) -> int:
        """Physical offset of the first byte in the log's oldest file; 0 if the log has no file."""
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """Physical offset at which the log's newest file ends, including unused bytes; 0 if the log has no file."""
        return self.files[-1].end if self.files else 0

    def holding(self, position: int) -> LogFile | None:
        """Return the file of the log that contains a physical offset; None if no file contains this offset."""
        index = bisect_right(self._starts, position) - 1
        return self.files[index] if index >= 0 and position < self.files[index].end else None

    def bytes_at(self, position: int, size: int) -> memoryview | None:
        """Return the bytes of the log at a physical offset; None if no single file contains all these bytes. Raises
        StoreError."""
        file = self.holding(position)
        if file is None or position + size > file.end:
            return None
        data = map_file(file.path)
        return data.data[position - file.start : position - file.start + size] if data is not None else None

    def has_record(self, position: int, size: int) -> bool:
        """Return whether a record with the given size begins at a position of the log. Only the record's fixed fields are
        checked."""
        record = self.bytes_at(position, size) if size >= RECORD_MIN_BYTES else None
        return (
            record is not None
            and int.from_bytes(record[:4], "big") == size
            and int.from_bytes(record[4:8], "big") in (MAGIC_V1, MAGIC_V2)
            and int.from_bytes(record[28:36], "big") == position
        )

    def has_whole_record(self, position: int, size: int) -> bool:
        """Return whether a valid record begins at a position of the log. All lengths in the record and the CRC of its body are
        checked."""
        record = self.bytes_at(position, size) if self.has_record(position, size) else None
        if record is None:
            return False
        try:
            decode_record(record)
        except RecordError:
            return False
        return True

    def between(self, start: int, end: int) -> list[LogFile]:
        """Return the files of the log that contain bytes of the range [start, end)."""
        return [file for file in self.files if file.start < end and file.end > start]

"""One index file, made whole from keys that are known to belong into it."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs
import numpy as np

from flintmq.config.sections.models import IndexSection
from flintmq.dispatchers.index import index_bulk
from flintmq.dispatchers.index.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES, IndexFile
from flintmq.plugins.spark.maintenance.rebuild_task import KEY

_HEADER: Final = struct.Struct(">qqqqii")
_INT_MAX: Final = 0x7FFFFFFF
_CHUNK: Final = 2_000_000
"""Keys at a time: a full file of twenty million must not need them all in memory."""


@attrs.frozen
class KeySlice:
    """Some keys of one piece."""

    path: str
    first: int
    count: int


@attrs.frozen
class IndexTask:
    """What one index file is made of."""

    path: str
    slots: int
    entries: int
    keys: tuple[KeySlice, ...]
    """In the log's order; together at most ``entries - 1``."""


@attrs.frozen
class IndexDone:
    """What was written."""

    path: str
    keys: int
    begin_timestamp_ms: int
    end_timestamp_ms: int


def index_capacity(entries: int) -> int:
    """How many keys a file takes: entry 0 is never used."""
    return entries - 1


def build_index(task: IndexTask) -> IndexDone:
    """Make the file, byte for byte as the broker's own builder would have. Raises OSError."""
    slots = np.zeros(task.slots, ">i4")
    entries_at = HEADER_BYTES + task.slots * SLOT_BYTES
    count, used = 1, 0
    begin: tuple[int, int] | None = None
    end = (0, 0)
    with Path(task.path).open("wb") as file:
        file.truncate(IndexFile.size_bytes(task.slots, task.entries))
        for keys in _chunks(task):
            if begin is None:
                begin = (int(keys["stored_ms"][0]), int(keys["physical"][0]))
            end = (int(keys["stored_ms"][-1]), int(keys["physical"][-1]))
            hashes = keys["hash"]
            stored = slots[hashes % task.slots].astype(np.int64)
            previous, changed, values, empty = index_bulk.chain(hashes, task.slots, stored, count)
            slots[changed] = values
            used += empty
            seconds = np.clip((keys["stored_ms"] - begin[0]) // 1000, 0, _INT_MAX)
            file.seek(entries_at + count * ENTRY_BYTES)
            file.write(index_bulk.pack_entries(hashes, keys["physical"], seconds, previous))
            count += len(keys)
        begin = begin or (0, 0)
        file.seek(0)
        file.write(_HEADER.pack(begin[0], end[0], begin[1], end[1], used, count))
        file.write(slots.tobytes())
    return IndexDone(task.path, count - 1, begin[0], end[0])


def _chunks(task: IndexTask) -> list[np.ndarray[tuple[int], np.dtype[np.void]]]:
    """The keys, many at a time; each is a view of its file."""
    found = []
    for part in task.keys:
        keys = np.memmap(part.path, KEY, "r", 0)[part.first : part.first + part.count]
        found += [keys[at : at + _CHUNK] for at in range(0, len(keys), _CHUNK)]
    return found


def index_tasks(key_counts: Sequence[int], keys_folder: Path, work: Path, index: IndexSection) -> Iterator[IndexTask]:
    """Cut the keys of all pieces, in the order of the pieces, into the files of an index.

    Args:
        key_counts: how many keys each piece has.
        keys_folder: where they lie, a file per piece, named by its number.
        work: the folder in which ``index`` is made.
        index: the settings.
    """
    room = index_capacity(index.max_index_num)
    slices: list[KeySlice] = []
    left = room
    name = 0

    def task() -> IndexTask:
        path = str(work / "index" / f"{name:017d}")
        return IndexTask(path, index.max_hash_slot_num, index.max_index_num, tuple(slices))

    for number, key_count in enumerate(key_counts):
        path = key_file(keys_folder, number)
        first = 0
        while first < key_count:
            count = min(left, key_count - first)
            slices.append(KeySlice(path, first, count))
            first += count
            left -= count
            if not left:
                name = _index_name(slices[0], name)
                yield task()
                slices, left = [], room
    if slices:
        name = _index_name(slices[0], name)
        yield task()


def key_file(keys_folder: Path, piece: int) -> str:
    """Return the file of a piece's keys."""
    return str(keys_folder / f"{piece:08d}")


def _index_name(first: KeySlice, before: int) -> int:
    """Return the time of a file's first key: keys are in the order of the log, so a second rebuild gives the same names."""
    stored_ms = int(np.memmap(first.path, KEY, "r", 0)[first.first]["stored_ms"])
    try:
        local = time.localtime(stored_ms // 1000)
        name = int(f"{time.strftime('%Y%m%d%H%M%S', local)}{stored_ms % 1000:03d}")
    except (OverflowError, ValueError, OSError):  # no calendar has this time
        name = 0
    return max(name, before + 1)

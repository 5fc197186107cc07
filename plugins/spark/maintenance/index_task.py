"""One index file, made whole from keys that are known to belong into it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

import attrs
import numpy as np

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
    """Makes the file, byte for byte as the broker's own builder would have. Raises OSError."""
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

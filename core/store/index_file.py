"""One index file: hash slots and chained entries (reference: store-format 5).

::

    header 40: beginTimestamp 8 | endTimestamp 8 | beginPhyOffset 8 | endPhyOffset 8 | hashSlotCount 4 | indexCount 4
    slots:     newest entry of the slot 4, 0 = empty
    entries:   keyHash 4 | physicalOffset 8 | seconds since beginTimestamp 4 | previous entry of the slot 4
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from flintmq.core.io.disk import Disk
from flintmq.core.store import index_bulk

HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20
_HEADER: Final = struct.Struct(">qqqqii")
_SLOT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">iqii")
_INT_MAX: Final = 0x7FFFFFFF
_ALLOCATE_STEP_BYTES: Final = 1024 * 1024

IndexEntry = tuple[int, int, int]
"""(key hash, physical offset, store timestamp in ms)"""


class IndexFile:
    """Loop thread. ``entries`` counts from 1: entry 0 is never used."""

    def __init__(self, disk: Disk, path: Path, slots: int, entries: int, *, create: bool) -> None:
        self.path = path
        self._slots = slots
        self._entries = entries
        self._entries_at = HEADER_BYTES + slots * SLOT_BYTES
        size = self._entries_at + entries * ENTRY_BYTES
        self._region = disk.map_file(path, size, create=create, allocate=self._entries_at)
        self._size = size
        self.begin_timestamp_ms: int
        self.end_timestamp_ms: int
        self.begin_physical_offset_bytes: int
        self.end_physical_offset_bytes: int
        self.hash_slot_count: int
        self.index_count: int
        (
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_physical_offset_bytes,
            self.end_physical_offset_bytes,
            self.hash_slot_count,
            self.index_count,
        ) = _HEADER.unpack_from(self._region.view)
        self.index_count = max(1, self.index_count)
        self.dirty = False

    @staticmethod
    def size_bytes(slots: int, entries: int) -> int:
        """The size of a file with so many slots and entries."""
        return HEADER_BYTES + slots * SLOT_BYTES + entries * ENTRY_BYTES

    @property
    def full(self) -> bool:
        return self.index_count >= self._entries

    def seed(self, end_timestamp_ms: int, end_physical_offset_bytes: int) -> None:
        """A new file begins with the end of the one before it."""
        self.end_timestamp_ms = end_timestamp_ms
        self.end_physical_offset_bytes = end_physical_offset_bytes
        self._write_header()

    def put(self, entries: Sequence[IndexEntry]) -> int:
        """Adds entries while there is room; returns how many were taken.

        Raises:
            StoreFullError: no room on the disk; nothing was added.
        """
        count = self.index_count
        taken = min(len(entries), self._entries - count)
        if taken <= 0:
            return 0
        region = self._region
        entries_at = self._entries_at
        end = entries_at + (count + taken) * ENTRY_BYTES
        region.allocate(min(self._size, -(-end // _ALLOCATE_STEP_BYTES) * _ALLOCATE_STEP_BYTES))
        if count <= 1:
            self.begin_physical_offset_bytes, self.begin_timestamp_ms = entries[0][1], entries[0][2]
        if index_bulk.AVAILABLE and taken >= index_bulk.LEAST:
            changed, packed_entries = self._chain_in_bulk(entries[:taken], count)
        else:
            changed, packed_entries = self._chain(entries[:taken], count)
        # Entries first, then the slots that point at them, then the header that counts them: whenever the process dies,
        # what lies beyond the count is whole or unknown, and written again.
        region.write(entries_at + count * ENTRY_BYTES, packed_entries)
        for slot, index in changed:
            region.write(HEADER_BYTES + slot * SLOT_BYTES, _SLOT.pack(index))
        self.index_count = count + taken
        self.end_physical_offset_bytes = entries[taken - 1][1]
        self.end_timestamp_ms = entries[taken - 1][2]
        self._write_header()
        return taken

    def _chain(self, entries: Sequence[IndexEntry], count: int) -> tuple[Iterable[tuple[int, int]], bytes]:
        """The slots that new entries change, with their values, and the entries' bytes."""
        view = self._region.view
        slots, begin_ms = self._slots, self.begin_timestamp_ms
        newest: dict[int, int] = {}
        packed: list[bytes] = []
        for index, (key_hash, physical, store_ms) in enumerate(entries, count):
            slot = key_hash % slots
            previous = newest.get(slot, 0)
            if not previous:
                previous = self._before(_SLOT.unpack_from(view, HEADER_BYTES + slot * SLOT_BYTES)[0], count)
                if not previous:
                    self.hash_slot_count += 1
            newest[slot] = index
            seconds = max(0, min(_INT_MAX, (store_ms - begin_ms) // 1000))
            packed.append(_ENTRY.pack(key_hash, physical, seconds, previous))
        return newest.items(), b"".join(packed)

    def _chain_in_bulk(self, entries: Sequence[IndexEntry], count: int) -> tuple[Iterable[tuple[int, int]], bytes]:
        """The same with numpy."""
        import numpy

        table = numpy.array(entries, numpy.int64)
        hashes, physical, store_ms = table[:, 0], table[:, 1], table[:, 2]
        slots = numpy.frombuffer(self._region.view, ">i4", self._slots, HEADER_BYTES)
        stored = slots[hashes % self._slots].astype(numpy.int64)
        stored[stored < 0] = 0
        for at in numpy.flatnonzero(stored >= count):
            stored[at] = self._before(int(stored[at]), count)
        previous, changed, values, empty = index_bulk.chain(hashes, self._slots, stored, count)
        self.hash_slot_count += empty
        seconds = numpy.clip((store_ms - self.begin_timestamp_ms) // 1000, 0, _INT_MAX)
        packed = index_bulk.pack_entries(hashes, physical, seconds, previous)
        return zip(changed.tolist(), values.tolist(), strict=True), packed

    def _before(self, index: int, count: int) -> int:
        """The newest entry of a slot below the count: a process that died between slots and header left newer ones."""
        while index >= count:
            if index >= self._entries:
                return 0
            previous = _ENTRY.unpack_from(self._region.view, self._entries_at + index * ENTRY_BYTES)[3]
            index = previous if previous < index else 0
        return max(0, index)

    def _write_header(self) -> None:
        self.dirty = True
        self._region.write(
            0,
            _HEADER.pack(
                self.begin_timestamp_ms,
                self.end_timestamp_ms,
                self.begin_physical_offset_bytes,
                self.end_physical_offset_bytes,
                self.hash_slot_count,
                self.index_count,
            ),
        )

    def select(self, key_hash: int, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int) -> list[int]:
        """Physical offsets of entries with this hash within a time range, newest first, at most so many."""
        view = self._region.view
        found: list[int] = []
        index = _SLOT.unpack_from(view, HEADER_BYTES + key_hash % self._slots * SLOT_BYTES)[0]
        index = self._before(index, self.index_count)
        while index > 0 and len(found) < max_num:
            entry_hash, physical, seconds, previous = _ENTRY.unpack_from(view, self._entries_at + index * ENTRY_BYTES)
            stored_ms = self.begin_timestamp_ms + seconds * 1000
            if stored_ms + 999 < begin_timestamp_ms:
                break
            if entry_hash == key_hash and stored_ms <= end_timestamp_ms:
                found.append(physical)
            if previous >= index:
                break  # a damaged chain must not become a circle
            index = previous
        return found

    def settle(self) -> None:
        """After a crash: the end is where the last entry says, for the header may be half written; and nothing is synced."""
        if self.index_count > 1:
            at = self._entries_at + (self.index_count - 1) * ENTRY_BYTES
            self.end_physical_offset_bytes = _ENTRY.unpack_from(self._region.view, at)[1]
        self.dirty = True

    def count_at_end(self, physical_offset_bytes: int) -> int:
        """How many entries, from the last one back, are of this record."""
        view = self._region.view
        count = 0
        for index in range(self.index_count - 1, 0, -1):
            if _ENTRY.unpack_from(view, self._entries_at + index * ENTRY_BYTES)[1] != physical_offset_bytes:
                break
            count += 1
        return count

    def covers(self, begin_timestamp_ms: int, end_timestamp_ms: int) -> bool:
        """Whether the file may hold entries of a time range."""
        return begin_timestamp_ms <= self.end_timestamp_ms + 999 and end_timestamp_ms >= self.begin_timestamp_ms

    def sync(self) -> None:
        """Forces the file to disk. Raises OSError."""
        self._region.sync()
        self.dirty = False

    def close(self) -> None:
        self._region.close()

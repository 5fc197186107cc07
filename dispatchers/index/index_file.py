"""One index file: hash slots and chained entries (docs/internals/store-format.md, Index file).

::

    header 40: beginTimestamp 8 | endTimestamp 8 | beginPhyOffset 8 | endPhyOffset 8 | hashSlotCount 4 | indexCount 4
    slots:     newest entry of the slot 4, 0 = empty
    entries:   keyHash 4 | physicalOffset 8 | seconds since beginTimestamp 4 | previous entry of the slot 4
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

from flintmq.core.io.disk import Disk
from flintmq.dispatchers.index import index_bulk

HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20
_HEADER: Final = struct.Struct(">qqqqii")
_SLOT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">iqii")
_INT_MAX: Final = 0x7FFFFFFF
_ALLOCATE_STEP_BYTES: Final = 1024 * 1024
STEP_ENTRIES: Final = 4_096
"""Number of entries of one hash chain that a search examines before it yields. Examining this number of entries takes about 2
ms."""

IndexEntry = tuple[int, int, int]
"""An index entry to add: (key hash, physical offset, store time in ms)."""


class IndexFile:
    """A file of the index (``IndexFile`` of RocketMQ). Entries are numbered from 1; entry 0 is unused. For the loop thread
    only."""

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
        self.closed = False

    @staticmethod
    def size_bytes(slots: int, entries: int) -> int:
        """Return the size in bytes of an index file with a number of slots and a number of entries."""
        return HEADER_BYTES + slots * SLOT_BYTES + entries * ENTRY_BYTES

    @property
    def full(self) -> bool:
        return self.index_count >= self._entries

    def seed(self, end_timestamp_ms: int, end_physical_offset_bytes: int) -> None:
        """Set the last store time and the last physical offset of a new, empty index file to those of the index file before
        it."""
        self.end_timestamp_ms = end_timestamp_ms
        self.end_physical_offset_bytes = end_physical_offset_bytes
        self._write_header()

    def put(self, entries: Sequence[IndexEntry]) -> int:
        """Add entries until the index file is full; return the number of added entries.

        Raises:
            StoreFullError: the disk has no space; nothing was added.
        """
        if index_bulk.is_worth_it(len(entries)):
            return self.put_columns(index_bulk.EntryColumns.of(entries))
        taken = self._make_room(len(entries))
        if taken:
            if self.index_count <= 1:
                self.begin_physical_offset_bytes, self.begin_timestamp_ms = entries[0][1], entries[0][2]
            changed, packed = self._chain(entries[:taken])
            self._write_entries(packed)
            for slot, index in changed.items():
                self._region.write(HEADER_BYTES + slot * SLOT_BYTES, _SLOT.pack(index))
            self._count(taken, entries[taken - 1][1], entries[taken - 1][2])
        return taken

    def put_columns(self, entries: index_bulk.EntryColumns) -> int:
        """Add entries to the index file like :meth:`put`, but with numpy; the written bytes are the same."""
        taken = self._make_room(len(entries))
        if taken:
            entries = entries.part(0, taken)
            first, last = entries.at(0), entries.at(-1)
            if self.index_count <= 1:
                self.begin_physical_offset_bytes, self.begin_timestamp_ms = first[1], first[2]
            changed, values, packed = self._chain_in_bulk(entries)
            self._write_entries(packed)
            self._region.write_int32s(HEADER_BYTES, changed, values)
            self._count(taken, last[1], last[2])
        return taken

    def _make_room(self, wanted: int) -> int:
        """Allocate disk space for new entries of the index file, and return the number of entries that fit. Raises
        StoreFullError."""
        taken = min(wanted, self._entries - self.index_count)
        if taken <= 0:
            return 0
        end = self._entries_at + (self.index_count + taken) * ENTRY_BYTES
        self._region.allocate(min(self._size, -(-end // _ALLOCATE_STEP_BYTES) * _ALLOCATE_STEP_BYTES))
        return taken

    def _write_entries(self, packed: bytes) -> None:
        """Write the bytes of new entries after the index file's last entry. The slots and the header are written afterwards.

        If the process dies before the header is written, the entries that the header does not count are ignored and written
        again.
        """
        self._region.write(self._entries_at + self.index_count * ENTRY_BYTES, packed)

    def _count(self, count: int, end_physical: int, end_ms: int) -> None:
        """Add the number of new entries to the count in the index file's header, and set the file's end to the last new
        entry."""
        self.index_count += count
        self.end_physical_offset_bytes = end_physical
        self.end_timestamp_ms = end_ms
        self._write_header()

    def _chain(self, entries: Sequence[IndexEntry]) -> tuple[dict[int, int], bytes]:
        """Return the new values of the slots that new entries change, keyed by slot, and the entries' bytes."""
        view = self._region.view
        slots, begin_ms, count = self._slots, self.begin_timestamp_ms, self.index_count
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
        return newest, b"".join(packed)

    def _chain_in_bulk(self, entries: index_bulk.EntryColumns) -> tuple[Any, Any, bytes]:
        """Compute with numpy the slots that new entries change, in ascending order, the new values of the slots, and the bytes
        of the entries."""
        import numpy

        count = self.index_count
        slots = numpy.frombuffer(self._region.view[HEADER_BYTES : self._entries_at], ">i4")
        stored = slots[entries.key_hash % self._slots].astype(numpy.int64)
        stored[stored < 0] = 0
        for at in numpy.flatnonzero(stored >= count):
            stored[at] = self._before(int(stored[at]), count)
        previous, changed, values, empty = index_bulk.chain(entries.key_hash, self._slots, stored, count)
        self.hash_slot_count += empty
        seconds = numpy.clip((entries.store_timestamp_ms - self.begin_timestamp_ms) // 1000, 0, _INT_MAX)
        return changed, values, index_bulk.pack_entries(entries.key_hash, entries.physical, seconds, previous)

    def _before(self, index: int, count: int) -> int:
        """Return the newest entry of a slot among the entries that the header counts. Other entries were left by a process that
        died."""
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

    def select(
        self, key_hash: int, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> Generator[None, None, list[int]]:
        """Return the physical offsets of the entries with a hash in a time range, newest first, at most ``max_num``.

        It is a generator that yields after every :data:`STEP_ENTRIES` entries, because the chain of a key that millions of
        messages share is long. If the file is closed while the generator is suspended, the generator returns the offsets that
        it has found.
        """
        view = self._region.view
        found: list[int] = []
        index = _SLOT.unpack_from(view, HEADER_BYTES + key_hash % self._slots * SLOT_BYTES)[0]
        index = self._before(index, self.index_count)
        walked = 0
        while index > 0 and len(found) < max_num:
            walked += 1
            if not walked % STEP_ENTRIES:
                yield
                if self.closed:
                    break
            entry_hash, physical, seconds, previous = _ENTRY.unpack_from(view, self._entries_at + index * ENTRY_BYTES)
            stored_ms = self.begin_timestamp_ms + seconds * 1000
            if stored_ms + 999 < begin_timestamp_ms:
                break
            if entry_hash == key_hash and stored_ms <= end_timestamp_ms:
                found.append(physical)
            if previous >= index:
                # A valid index entry refers only to earlier entries of the index file.
                # In a damaged index file, the entries could refer to each other in a circle, and the search would never end.
                break
            index = previous
        return found

    def settle(self) -> None:
        """Set the index file's end from its last entry after a crash, because the header may be incomplete, and mark the file
        as unsynced."""
        if self.index_count > 1:
            at = self._entries_at + (self.index_count - 1) * ENTRY_BYTES
            self.end_physical_offset_bytes = _ENTRY.unpack_from(self._region.view, at)[1]
        self.dirty = True

    def count_at_end(self, physical_offset_bytes: int) -> int:
        """Return the number of entries at the index file's end that belong to the record at a physical offset."""
        view = self._region.view
        count = 0
        for index in range(self.index_count - 1, 0, -1):
            if _ENTRY.unpack_from(view, self._entries_at + index * ENTRY_BYTES)[1] != physical_offset_bytes:
                break
            count += 1
        return count

    def covers(self, begin_timestamp_ms: int, end_timestamp_ms: int) -> bool:
        """Return whether the index file may contain entries of messages that were stored in a time range."""
        return begin_timestamp_ms <= self.end_timestamp_ms + 999 and end_timestamp_ms >= self.begin_timestamp_ms

    def sync(self) -> None:
        """Sync the index file to disk. Raises OSError."""
        self._region.sync()
        self.dirty = False

    def evict_entries(self) -> None:
        """Unmap the index file's entries from the process's memory (:meth:`flintmq.core.io.disk.MappedRegion.evict`).

        The slots stay mapped, because they are used all the time.
        """
        self._region.evict(self._entries_at, self._entries_at + self.index_count * ENTRY_BYTES)

    def close(self) -> None:
        self.closed = True
        self._region.close()

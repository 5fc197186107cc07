"""A timer wheel: entries that are due within the minute are in memory, and each later minute has a file.

::

    now ──▶ [ heap: this minute and what is overdue ] [ 12:01 ] [ 12:02 ] … [ 3 days on ]
                                                        files of entries, in the order they came

An entry has 28 bytes, big-endian: ``due 8 ms | queue offset 8 | commit log offset 8 | size 4``. Compared as bytes, entries sort
by due time, then by queue offset. The files are temporary: after a restart they are rebuilt from the queue (see
:class:`flintmq.plugins.timer.timer_service.TimerMessageService`). They are therefore never synced to disk.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from flintmq.core.errors import StoreError, StoreFormatError
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK

ENTRY: Final = struct.Struct(">qqqi")
KEY: Final = struct.Struct(">qq")
SLOT_MS: Final = 60_000
LOAD_BELOW: Final = 10_000
"""Number of entries in memory at which the timer wheel stops loading the entries of further minutes from files. The limit is
needed because many entries are due at once after a broker was stopped for long."""


class TimerWheel:
    """A timer wheel: a collection of entries that returns each entry when it is due. Loop thread; each broker has its own.

    Args:
        folder: holds the wheel's files; created when first needed.
        disk: contains the folder.
    """

    def __init__(self, folder: Path, disk: Disk = OS_DISK) -> None:
        self._folder = folder
        self._disk = disk
        self._heap: list[bytes] = []
        self._heap_low = 0
        self._loaded = -1
        """Last minute whose entries are in memory, in minutes since 1970; -1 before the first minute is loaded."""
        self._counts: dict[int, int] = {}
        """Number of entries in each minute's file, keyed by minute."""
        self._lows: dict[int, int] = {}
        """Smallest queue offset of the entries in each minute's file, keyed by minute."""
        self._firsts: dict[int, bytes] = {}
        """Entry that is due first in each minute's file, keyed by minute."""
        self._order: list[int] = []
        self._last = b""
        self._in_files = 0

    def __len__(self) -> int:
        return len(self._heap) + self._in_files

    @property
    def in_memory(self) -> int:
        """Number of the timer wheel's entries that are in memory."""
        return len(self._heap)

    def clear(self) -> None:
        """Remove all entries of the timer wheel, and delete files that an earlier run left. Raises StoreError."""
        try:
            for file in self._disk.list_files(self._folder):
                if file.suffix == ".timers":
                    self._disk.discard(file)
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror or error}") from error
        self.__init__(self._folder, self._disk)  # type: ignore[misc]

    def put(self, entries: Iterable[bytes]) -> None:
        """Add entries to the timer wheel. Entries that were read together should be passed in one call, so that each file is
        written once.

        Raises:
            StoreFormatError: a file of the timer wheel is gone or too short.
            StoreError: a file cannot be written. Add all entries again later: an entry that was added twice is returned once.
        """
        later: dict[int, list[bytes]] = {}
        heap = self._heap
        loaded = self._loaded
        for entry in entries:
            due_ms, queue_offset = KEY.unpack_from(entry)
            slot = due_ms // SLOT_MS
            if slot > loaded:
                later.setdefault(slot, []).append(entry)
                continue
            if not heap or queue_offset < self._heap_low:
                self._heap_low = queue_offset
            heapq.heappush(heap, entry)
        for slot, found in later.items():
            self._write(slot, found)

    def _path(self, slot: int) -> Path:
        return self._folder / f"{slot}.timers"

    def _write(self, slot: int, entries: list[bytes]) -> None:
        known = self._counts.get(slot, 0)
        try:
            if not known:
                self._disk.make_folder(self._folder)
            else:
                self._check(slot, known)
            self._disk.write_at(self._path(slot), known * ENTRY.size, b"".join(entries))
        except OSError as error:
            raise StoreError(f"{self._path(slot)}: {error.strerror or error}") from error
        low = min(KEY.unpack_from(entry)[1] for entry in entries)
        first = min(entries)
        if not known:
            heapq.heappush(self._order, slot)
        self._lows[slot] = min(low, self._lows.get(slot, low))
        self._firsts[slot] = min(first, self._firsts.get(slot, first))
        self._counts[slot] = known + len(entries)
        self._in_files += len(entries)

    def _check(self, slot: int, known: int) -> None:
        """Raise StoreFormatError if a file of the timer wheel is shorter than the entries written to it. Raises OSError."""
        path, size = self._path(slot), known * ENTRY.size
        found = self._disk.size(path) if self._disk.exists(path) else 0
        if found < size:
            raise StoreFormatError(f"{path}: the file has {found} bytes, but {size} bytes were written to it")

    def turn(self, now_ms: int) -> None:
        """Move the entries that are due in the current minute or earlier from their files to memory.

        The method stops when 10,000 or more entries are in memory; the next call continues. If the clock was set back, memory
        can contain entries of minutes that have not begun yet. This method moves these entries back to files. If it did not
        move them, these entries would stay in memory until they are due, and so would all entries that are added for
        these minutes.

        Raises:
            StoreError: a file cannot be read, written or deleted; call again.
            StoreFormatError: a file is gone or too short. Its entries can be restored from the queue only.
        """
        current = now_ms // SLOT_MS
        if current < self._loaded:
            self._put_back(current)
        while self._order and self._order[0] <= current:
            if len(self._heap) >= LOAD_BELOW:
                return
            self._load(self._order[0])
        if current > self._loaded:
            self._loaded = current

    def _put_back(self, current: int) -> None:
        later: dict[int, list[bytes]] = {}
        for entry in self._heap:
            slot = KEY.unpack_from(entry)[0] // SLOT_MS
            if slot > current:
                later.setdefault(slot, []).append(entry)
        for slot, entries in later.items():
            self._write(slot, entries)
        # Entries are removed from memory after all writes to files, so that a failed write loses no entry.
        # An entry that is both in memory and in a file is returned only once.
        self._heap = sorted(entry for entry in self._heap if KEY.unpack_from(entry)[0] // SLOT_MS <= current)
        self._loaded = current

    def _load(self, slot: int) -> None:
        path = self._path(slot)
        size = self._counts[slot] * ENTRY.size
        try:
            data = self._disk.read(path)[:size]
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror or error}") from error
        if len(data) < size:
            raise StoreFormatError(f"{path}: the file has {len(data)} bytes, but {size} bytes were written")
        try:
            self._disk.discard(path)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror or error}") from error
        heapq.heappop(self._order)
        count = self._counts.pop(slot)
        low = self._lows.pop(slot)
        del self._firsts[slot]
        self._in_files -= count
        self._heap_low = min(low, self._heap_low) if self._heap else low
        self._heap += [data[at : at + ENTRY.size] for at in range(0, len(data), ENTRY.size)]
        self._heap.sort()  # A sorted list is a valid heap, so heapify() is not needed.
        self._loaded = max(self._loaded, slot)

    def peek(self) -> bytes | None:
        """Return the entry of the timer wheel in memory that is due first; None if memory has no entry."""
        while self._heap and self._heap[0] == self._last:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def pop_due(self, now_ms: int, limit: int) -> list[bytes]:
        """Remove and return at most ``limit`` entries of the timer wheel that are due, the earliest first."""
        until = KEY.pack(now_ms + 1, 0)
        taken: list[bytes] = []
        while len(taken) < limit and (first := self.peek()) is not None and first < until:
            taken.append(heapq.heappop(self._heap))
            self._last = first
        return taken

    def give_back(self, entries: Iterable[bytes]) -> None:
        """Add entries to the timer wheel again, because their messages could not be delivered."""
        self._last = b""
        self.put(entries)

    def next_ms(self) -> int | None:
        """Return the due time of the first entry in memory, in ms since 1970. If memory has no entry, return the start of the
        first minute that has entries in a file. Return None if the timer wheel is empty."""
        first = self.peek()
        if first is not None:
            return int(KEY.unpack_from(first)[0])
        return self._order[0] * SLOT_MS if self._order else None

    def low_queue_offset(self) -> int | None:
        """Return a lower bound of the queue offsets of the timer wheel's entries; None without entries."""
        lows = list(self._lows.values())
        if self._heap:
            lows.append(self._heap_low)
        return min(lows, default=None)

    def first_filed(self) -> tuple[int, int] | None:
        """Return the due time in ms and the queue offset of the entry in files that is due first; None if the files have no
        entry."""
        return KEY.unpack(self._firsts[self._order[0]][: KEY.size]) if self._order else None

    def queue_offsets_before(self, due_ms: int, queue_offset: int) -> list[int]:
        """Return the queue offsets of the entries in memory that sort before a pair of a due time and a queue offset."""
        border = KEY.pack(due_ms, queue_offset)
        found = []
        places = [0]
        while places:
            at = places.pop()
            if at < len(self._heap) and self._heap[at] < border:
                found.append(KEY.unpack_from(self._heap[at])[1])
                places += (2 * at + 1, 2 * at + 2)
        return found

    def count_at(self, due_ms: int) -> int:
        """Return how many entries of the timer wheel are due in the minute that contains a time."""
        slot = due_ms // SLOT_MS
        return len(self._heap) if slot <= self._loaded else self._counts.get(slot, 0)

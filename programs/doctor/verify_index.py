"""Checks the index: header, slots, chains and entries of each file, and all entries against the log's keys."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from flintmq.core.errors import StoreFormatError
from flintmq.dispatchers.index.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES
from flintmq.programs.doctor.expected import Expected
from flintmq.programs.doctor.files import FileView, IndexGeometry, StoreFiles
from flintmq.programs.doctor.report import REPAIR, Level, Report

INDEX_HEADER: Final = struct.Struct(">qqqqii")
INDEX_ENTRY: Final = struct.Struct(">iqii")
_INT_MAX: Final = 0x7FFFFFFF
_SHOWN: Final = 3

Entry = tuple[int, int, int, int]
"""(key hash, physical offset, seconds since the file's first message, number of the slot's previous entry) of an index
entry."""


def check_index(files: StoreFiles, expected: Expected, report: Report) -> None:
    """Check every index file alone, and then compare the entries of all index files with the log."""
    keys = _Keys(files, expected, report)
    paths = files.index_paths()
    for path in paths:
        try:
            file, geometry = files.index_file(path)
        except StoreFormatError as error:
            report.add(Level.ERROR, path, f"a start refuses: {error}", REPAIR)
            return
        held = _IndexFile(file, geometry, report, clean=files.is_clean or path != paths[-1])
        begin_ms = held.check(keys)
        for entry in held.entries():
            keys.take(entry, begin_ms)
    if paths:
        keys.finish()


class _IndexFile:
    def __init__(self, file: FileView, geometry: IndexGeometry, report: Report, *, clean: bool) -> None:
        self._file = file
        self._geometry = geometry
        self._report = report
        self._clean = clean
        self._count = INDEX_HEADER.unpack_from(file.view)[5]

    def _error(self, what: str) -> None:
        self._report.add(Level.ERROR, self._file.path, what, REPAIR)

    def entries(self) -> Iterator[Entry]:
        """Yield as many entries of an index file as the file's header counts, but at most as many as the file can contain."""
        at = HEADER_BYTES + self._geometry.slots * SLOT_BYTES
        count = max(1, min(self._count, self._geometry.entries))
        return INDEX_ENTRY.iter_unpack(self._file.view[at + ENTRY_BYTES : at + count * ENTRY_BYTES])

    def check(self, keys: _Keys) -> int:
        """Check the header, the chains and the slots of an index file. Return the time in ms from which the seconds in the
        file's entries count."""
        begin_ms, end_ms, begin, end, slot_count, count = INDEX_HEADER.unpack_from(self._file.view)
        if not 0 <= count <= self._geometry.entries:
            self._error(f"the header counts {count} entries, the file has room for {self._geometry.entries}")
        newest: dict[int, int] = {}
        first: Entry | None = None
        last: Entry | None = None
        wrong = 0
        for number, entry in enumerate(self.entries(), 1):
            first = first or entry
            last = entry
            key_hash, _physical, _seconds, previous = entry
            slot = key_hash % self._geometry.slots if key_hash >= 0 else -1
            if slot < 0:
                wrong += 1
                if wrong <= _SHOWN:
                    self._error(f"entry {number} has the negative hash {key_hash}")
                continue
            if previous != newest.get(slot, 0):
                wrong += 1
                if wrong <= _SHOWN:
                    self._error(f"entry {number} follows entry {previous}, its slot's newest was {newest.get(slot, 0)}")
            newest[slot] = number
        self._check_slots(newest)
        if slot_count != len(newest):
            what = f"the header counts {slot_count} used slots, there are {len(newest)}"
            self._report.add(Level.WARNING, self._file.path, what, "searching does not use it")
        if first is not None and last is not None:
            stored = (keys.time_ms(first[1], begin_ms), keys.time_ms(last[1], end_ms))
            if (begin, end) != (first[1], last[1]):
                self._error(f"the header says positions {begin} to {end}, the entries {first[1]} to {last[1]}")
            if (begin_ms, end_ms) != stored:
                self._error(f"the header says times {begin_ms} to {end_ms}, the records {stored[0]} to {stored[1]}")
        return int(begin_ms)

    def _check_slots(self, newest: dict[int, int]) -> None:
        view, slots = self._file.view, self._geometry.slots
        wrong = 0
        for slot, (value,) in enumerate(
            struct.iter_unpack(">i", view[HEADER_BYTES : HEADER_BYTES + slots * SLOT_BYTES])
        ):
            wanted = newest.get(slot, 0)
            if value == wanted or (not self._clean and self._before(value) == wanted):
                continue
            wrong += 1
            if wrong <= _SHOWN:
                self._error(f"slot {slot} points at entry {value}, not at {wanted}")

    def _before(self, index: int) -> int:
        """Return the newest entry in a slot's chain that the header of the index file counts; 0 if there is none. ``index`` is
        the entry with which the chain begins. The chain begins with uncounted entries if a process died before it wrote the
        header."""
        at = HEADER_BYTES + self._geometry.slots * SLOT_BYTES
        while max(1, self._count) <= index < self._geometry.entries:
            previous = INDEX_ENTRY.unpack_from(self._file.view, at + index * ENTRY_BYTES)[3]
            index = previous if previous < index else 0
        return index


class _Keys:
    """Compares the log's keys, in order, with the entries of all index files, in order."""

    def __init__(self, files: StoreFiles, expected: Expected, report: Report) -> None:
        self._files = files
        self._report = report
        self._hashes = expected.key_hashes
        self._positions = expected.key_positions
        self._times_ms = expected.key_times_ms
        self._at = -1
        self._missing = self._repeated = self._foreign = self._late = self._behind = 0
        self._missing_at = -1
        self._where = files.root / "index"

    def time_ms(self, position: int, unknown: int) -> int:
        """Return the store time of the record at a position, if the record has keys; otherwise ``unknown``."""
        at = bisect_left(self._positions, position)
        return self._times_ms[at] if at < len(self._positions) and self._positions[at] == position else unknown

    def take(self, entry: Entry, begin_ms: int) -> None:
        """Check that the log has the key of the next entry of the index files, and that the entry has the time of the key's
        record."""
        self._report.index_entries += 1
        key_hash, physical, seconds, _previous = entry
        if physical < self._files.log_start or self._report.was_lost(physical):
            return
        found = self._find(key_hash, physical)
        if found < 0:
            return
        wanted = max(0, min(_INT_MAX, (self._times_ms[found] - begin_ms) // 1000))
        if seconds != wanted:
            self._late += 1
            if self._late <= _SHOWN:
                what = f"the entry for position {physical} says {seconds} s, its record {wanted} s"
                self._report.add(Level.ERROR, self._where, what, REPAIR)

    def _find(self, key_hash: int, physical: int) -> int:
        """Return the position of an index entry's key in the sequence of the log's keys; -1 if the log does not have the
        key."""
        at = self._at
        if 0 <= at < len(self._positions) and (self._hashes[at], self._positions[at]) == (key_hash, physical):
            self._at += 1
            return at
        low, high = bisect_left(self._positions, physical), bisect_right(self._positions, physical)
        same = [number for number in range(low, high) if self._hashes[number] == key_hash]
        if not same:
            if physical >= self._report.log_end_bytes and not self._files.is_clean:
                self._behind += 1
                return -1
            self._foreign += 1
            if self._foreign <= _SHOWN:
                what = f"an entry says (hash, position) ({key_hash}, {physical}), the log has no such key there"
                self._report.add(Level.ERROR, self._where, what, REPAIR)
            return -1
        ahead = [number for number in same if number >= at]
        if not ahead:
            self._repeated += 1
            return same[-1]
        # Keys of messages before the first entry of the index do not count as missing, because old index files expire.
        if at >= 0 and ahead[0] > at:
            if not self._missing:
                self._missing_at = self._positions[at]
            self._missing += ahead[0] - at
        self._at = ahead[0] + 1
        return ahead[0]

    def finish(self) -> None:
        """Report keys that are in the log but not in the index, and the counts of further errors."""
        if self._foreign > _SHOWN:
            self._report.add(Level.ERROR, self._where, f"{self._foreign - _SHOWN} more entries of no message", REPAIR)
        if self._late > _SHOWN:
            self._report.add(Level.ERROR, self._where, f"{self._late - _SHOWN} more entries with wrong times", REPAIR)
        if self._repeated:
            what = f"{self._repeated} keys are indexed twice, as by RocketMQ when it recovers"
            self._report.add(Level.NOTE, self._where, what)
        if self._behind:
            what = f"{self._behind} entries point behind the log"
            self._report.add(Level.WARNING, self._where, what, "a start builds the index again")
        newest = len(self._positions) - max(self._at, 0)
        if self._missing:
            what = f"{self._missing} keys of messages from {self._missing_at} on are not indexed"
            self._report.add(Level.WARNING, self._where, what, REPAIR)
        if newest > 0:
            what = f"{newest} keys of the newest messages are not indexed"
            self._report.add(Level.WARNING, self._where, what, f"a start after a crash indexes them; if not: {REPAIR}")

"""Checks the consume queues and their extension files against the log."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flintmq.core.errors import JsonSyntaxError
from flintmq.core.io import fastjson
from flintmq.core.record.log_part import is_zero
from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT, UNIT_BYTES, is_address
from flintmq.dispatchers.consume_queue.delay_times import is_unknown_due, may_be_due
from flintmq.programs.doctor.expected import UNKNOWN, Expected, QueueKey
from flintmq.programs.doctor.files import FileView, StoreFiles, ext_at, misfits, read_bytes
from flintmq.programs.doctor.report import REPAIR, Level, Report

_EXT_HEAD: Final = struct.Struct(">hqqh")
_LEAST_LONG: Final = -(2**63)
_SHOWN: Final = 3


def used_units(parts: list[FileView]) -> bytes:
    """Return all units of a consume queue before the first unused unit."""
    used = bytearray()
    end = parts[0].start if parts else 0
    for part in parts:
        if part.start != end:
            break
        end = part.start + part.size
        whole = part.view[: part.size - part.size % UNIT_BYTES]
        count = 0
        for physical, size, _tags in UNIT.iter_unpack(whole):
            if physical < 0 or size <= 0:
                break
            count += 1
        used += whole[: count * UNIT_BYTES]
        if count * UNIT_BYTES < part.size:
            break
    return bytes(used)


def described_end(units: bytes) -> int:
    """Return the largest end of a message that units of queues refer to, as a physical offset; -1 if no unit refers to a
    message."""
    ends = (physical + size for physical, size, _tags in UNIT.iter_unpack(units) if size != FILLER_SIZE or physical)
    return max(ends, default=-1)


def check_queues(files: StoreFiles, expected: Expected, report: Report) -> None:
    """Check every existing consume queue of a store, and report queues that are missing."""
    queues = {(topic, queue_id): (parts, used_units(parts)) for topic, queue_id, parts in files.queues()}
    # ``described`` is the log position of the end of the last message that has a unit in a consume queue.
    # Missing units of messages after ``described`` are not reported as damage, because a broker adds them when it starts.
    described = max((described_end(units) for _parts, units in queues.values()), default=-1)
    for key, (parts, units) in queues.items():
        report.queues += 1
        report.units += len(units) // UNIT_BYTES
        _Queue(files, expected, report, key, parts, units, described).check()
    configured = _configured_topics(files)
    for key in sorted(expected.units.keys() - queues.keys()):
        wanted = expected.units[key]
        where = files.queue_folder(*key)
        count = len(wanted) // UNIT_BYTES
        if key[0] not in configured and configured:
            report.add(Level.NOTE, where, f"{count} messages have no queue: the topic was deleted")
        elif not files.is_clean or UNIT.unpack_from(wanted)[0] >= described:
            report.add(
                Level.WARNING, where, f"{count} messages have no queue yet", f"a start adds it; if not: {REPAIR}"
            )
        else:
            report.add(Level.ERROR, where, f"{count} messages have no queue", REPAIR)


def _configured_topics(files: StoreFiles) -> set[str]:
    path = files.root / "config" / "topics.json"
    if not path.is_file():
        return set()
    try:
        value = fastjson.loads(read_bytes(path))
    except JsonSyntaxError:
        return set()
    table = value.get("topicConfigTable") if isinstance(value, dict) else None
    return {str(name) for name in table} if isinstance(table, dict) else set()


class _Queue:
    """Checks the units of one consume queue. The attribute ``_start`` is the queue offset of the first unit, and ``_first`` is
    the queue offset of the first message that the log has of the queue."""

    def __init__(
        self,
        files: StoreFiles,
        expected: Expected,
        report: Report,
        key: QueueKey,
        parts: list[FileView],
        units: bytes,
        described: int,
    ) -> None:
        self._files = files
        self._report = report
        self._key = key
        self._where: Path = files.queue_folder(*key)
        self._parts = parts
        self._units = units
        self._described = described
        self._wanted = bytes(expected.units.get(key, b""))
        self._start = parts[0].start // UNIT_BYTES if parts else 0
        end = self._start + len(units) // UNIT_BYTES
        self._first = expected.first_queue_offset.get(key, end)
        self._life_begins = expected.life_begins(key)
        self._wrong = 0

    def check(self) -> None:
        for path, why in misfits(self._where, self._parts, UNIT_BYTES):
            self._report.add(Level.ERROR, path, why, REPAIR)
        if 0 <= described_end(self._units) <= self._life_begins >= self._described:
            what = f"the topic was deleted at {self._life_begins}, and the queue has messages from before only"
            self._report.add(Level.WARNING, self._where, what, f"a start drops them; if not: {REPAIR}")
            return
        head = max(0, min(len(self._units) // UNIT_BYTES, self._first - self._start))
        self._check_head(head)
        skipped = max(0, self._start - self._first)
        mine, theirs = self._units[head * UNIT_BYTES :], self._wanted[skipped * UNIT_BYTES :]
        if skipped and self._parts:
            what = f"the queue begins at {self._start}, the log has its messages from {self._first} on"
            self._report.add(Level.NOTE, self._where, what)
        if mine != theirs:
            self._compare(self._start + head, mine, theirs)
        self._check_behind()
        if self._wrong > _SHOWN:
            self._report.add(Level.ERROR, self._where, f"{self._wrong - _SHOWN} more units are wrong", REPAIR)

    def _error(self, what: str) -> None:
        self._wrong += 1
        if self._wrong <= _SHOWN:
            self._report.add(Level.ERROR, self._where, what, REPAIR)

    def _check_head(self, count: int) -> None:
        """Check the units at the beginning of a queue, which must refer to messages that the log no longer has."""
        for number in range(count):
            physical, size, _tags = UNIT.unpack_from(self._units, number * UNIT_BYTES)
            if (size == FILLER_SIZE and not physical) or self._report.was_lost(physical):
                continue
            if physical + size > self._files.log_start:
                self._points_nowhere(self._start + number, physical)

    def _compare(self, at: int, mine: bytes, theirs: bytes) -> None:
        common = min(len(mine), len(theirs))
        ext = self._files.ext_files(*self._key)
        for place in range(0, common, UNIT_BYTES):
            have, want = mine[place : place + UNIT_BYTES], theirs[place : place + UNIT_BYTES]
            if have == want or want == UNKNOWN:
                continue
            queue_offset = at + place // UNIT_BYTES
            had, wanted = UNIT.unpack(have), UNIT.unpack(want)
            if had[:2] == wanted[:2] and is_unknown_due(wanted[2]):
                due_ms = ext_tags_code(ext, had[2]) if is_address(had[2]) else had[2]
                if not may_be_due(wanted[2], due_ms):
                    self._error(f"unit {queue_offset} says {due_ms}: no whole seconds behind its record's store time")
            elif had[:2] != wanted[:2] or not is_address(had[2]):
                self._error(f"unit {queue_offset} says {had}, the log says {wanted} (position, size, tags code)")
            elif (why := _ext_fault(ext, had[2], wanted[2])) is not None:
                self._error(f"unit {queue_offset}: {why}")
        for place in range(common, len(mine), UNIT_BYTES):
            physical = UNIT.unpack_from(mine, place)[0]
            if not self._report.was_lost(physical):
                self._points_nowhere(at + place // UNIT_BYTES, physical)
        missing = [place for place in range(common, len(theirs), UNIT_BYTES) if theirs[place : place + 20] != UNKNOWN]
        if missing:
            self._missing(len(missing), UNIT.unpack_from(theirs, missing[0])[0])

    def _points_nowhere(self, queue_offset: int, physical: int) -> None:
        if physical < self._report.log_end_bytes:
            self._error(f"unit {queue_offset} points at {physical}, where the log has no message of this queue for it")
        elif self._files.is_clean:
            self._error(f"unit {queue_offset} points at {physical}, behind the log's last record")
        else:
            what = f"unit {queue_offset} points at {physical}, behind the log's last record"
            self._report.add(Level.WARNING, self._where, what, "a start cuts it")

    def _missing(self, count: int, physical: int) -> None:
        what = f"the last {count} messages are not in the queue"
        if physical >= self._described or not self._files.is_clean:
            self._report.add(Level.WARNING, self._where, what, f"a start adds them; if not: {REPAIR}")
        else:
            self._report.add(Level.ERROR, self._where, what, REPAIR)

    def _check_behind(self) -> None:
        end = self._start * UNIT_BYTES + len(self._units)
        for part in self._parts:
            begin = max(0, end - part.start)
            if begin < part.size and not is_zero(part, begin, part.size):
                what = f"bytes that are no unit, or units that were cut, behind the queue's end ({end // UNIT_BYTES})"
                self._report.add(Level.NOTE, part.path, what)


def ext_tags_code(ext: list[FileView], address: int) -> int:
    """Return the tags code of the extension unit at an address; -1 if the address has no such unit."""
    head = ext_at(ext, address - _LEAST_LONG, _EXT_HEAD.size)
    return -1 if head is None else int(_EXT_HEAD.unpack(head)[1])


def _ext_fault(ext: list[FileView], address: int, tags_code: int) -> str | None:
    """Return the error in the extension unit at an address; None if the unit is valid."""
    position = address - _LEAST_LONG
    head = ext_at(ext, position, _EXT_HEAD.size)
    if head is None:
        return f"the extension files have nothing at {position}: its messages are not filtered"
    size, found, _stored_ms, bit_map_bytes = _EXT_HEAD.unpack(head)
    if size != _EXT_HEAD.size + bit_map_bytes or ext_at(ext, position, size) is None:
        return f"no unit lies at {position} of the extension files"
    if found != tags_code:
        return f"the extension unit at {position} has the tags code {found}, the log says {tags_code}"
    return None


def ext_units(ext: list[FileView], address: int) -> Iterator[tuple[str, int | str]]:
    """Yield the fields of the extension unit at an address, for display. Yield nothing if the address has no such unit."""
    position = address - _LEAST_LONG
    head = ext_at(ext, position, _EXT_HEAD.size)
    if head is None:
        return
    size, tags_code, stored_ms, bit_map_bytes = _EXT_HEAD.unpack(head)
    yield from (("at", position), ("size", size), ("tags_code", tags_code), ("store_timestamp_ms", stored_ms))
    bit_map = ext_at(ext, position + _EXT_HEAD.size, max(0, bit_map_bytes))
    if bit_map is not None:
        yield "bit_map", bytes(bit_map).hex()

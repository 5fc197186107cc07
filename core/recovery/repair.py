"""Removes invalid bytes from the log at a start, and replaces them so that the log is valid again.

A start scans the last files record by record. If no valid record follows an invalid record, the bytes from the invalid record
on are a *torn tail*, which is the ordinary result of a crash. The log then ends before the torn tail. If valid, younger records
follow, the invalid bytes are *damage in the middle*, and the log continues after the damage. With ``store.compat: strict``, the
log ends before the damage, as in RocketMQ.

Removed bytes are first copied to the folder ``flint/quarantine`` of the store. A torn tail is replaced by zeros, and the files
after it are deleted. Damage is replaced by a *filler*: a rolled back record of the same size, which never enters a queue.
Damage that reaches the end of a file is replaced by a blank. So every reader, including the Java broker, finds a valid log.

See docs/internals/algorithms.md, Clean recovery and Abnormal recovery.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from flintmq.core.io.disk import Disk
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.mapped_file_queue import MappedFile
from flintmq.core.log_events import event_log
from flintmq.core.record import record as rec
from flintmq.core.record.host import pack_host
from flintmq.core.record.log_part import data_in
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.record.sys_flag import TRANSACTION_ROLLBACK
from flintmq.core.recovery.start_walk import Cut, Hole, Recovered

log = event_log("flintmq.store")

LOST_TOPIC: Final = "RMQ_SYS_LOST"
"""The topic of records that fill damaged parts of the log. No queue and no index entry refers to these records."""
_FILLER_BYTES: Final = 1024 * 1024
_NOWHERE: Final = pack_host("0.0.0.0", 0)


def repair(disk: Disk, quarantine: Path, commit_log: CommitLog, walked: Recovered) -> Recovered:
    """Copy damage and the bytes after the log's end to the quarantine. Replace damage by fillers, and the other bytes by zeros.

    The copy is made durable before the replacement. The replacement is made durable, too. Otherwise a removed record could
    reappear after a later crash, and a start could take it for a record that was stored after the removal.

    Args:
        disk: the disk interface.
        quarantine: the folder for the copies.
        commit_log: the log to change.
        walked: the findings of the scan; ``walked.cut`` is None if only zeros follow the log's end.

    Returns:
        The findings of the scan, with the paths of the copies.

    Raises:
        OSError: the disk refused an operation.
        StoreError: the disk refused an operation; StoreFullError if the disk is full.
    """
    holes = tuple(_fill(disk, quarantine, commit_log.queue.files, hole) for hole in walked.holes)
    found = replace(walked, holes=holes)
    return (
        found if found.cut is None else replace(found, cut=_take_tail(disk, quarantine, commit_log, found, found.cut))
    )


def data_behind(files: Sequence[MappedFile], end_offset_bytes: int) -> bool:
    """Return whether any byte of the commit log's files after a physical offset is not zero."""
    return any(True for file in files for _found in _data_behind(file, end_offset_bytes))


def _data_behind(file: MappedFile, end_offset_bytes: int) -> Iterator[tuple[int, int, bytes]]:
    return _data(file, min(file.size, max(0, end_offset_bytes - file.start)), file.size)


def _fill(disk: Disk, quarantine: Path, files: Sequence[MappedFile], hole: Hole) -> Hole:
    pieces: list[bytes] = []
    filled: list[tuple[MappedFile, int, list[bytes]]] = []
    for file in files:
        begin = max(0, hole.start_offset_bytes - file.start)
        end = min(file.size, hole.end_offset_bytes - file.start)
        if begin >= end:
            continue
        pieces += [piece for _at, _length, piece in _data(file, begin, end)]
        if end == file.size:
            filled.append((file, begin, [rec.encode_blank(end - begin)]))
        else:
            filled.append((file, begin, _fillers(file.start + begin, end - begin, hole.store_timestamp_ms)))
    path = _keep(disk, quarantine / f"{hole.start_offset_bytes:020d}-{hole.store_timestamp_ms}", ".lost", pieces)
    for file, at, parts in filled:
        file.grow(min(file.size, at + sum(map(len, parts))))
        for part in parts:
            file.region.write(at, part)
            at += len(part)
        file.region.sync()
    log.error(
        "store.damaged",
        "commit log damaged from %(start_position)d to %(end_position)d (%(reason)s); the log continues with the "
        "following records; the damaged bytes are in %(quarantine)s",
        start_position=hole.start_offset_bytes,
        end_position=hole.end_offset_bytes,
        reason=hole.reason,
        quarantine=path,
    )
    return replace(hole, quarantine=path)


def _fillers(physical_offset_bytes: int, length: int, store_timestamp_ms: int) -> list[bytes]:
    """Return filler records of a given total length. They are marked as rolled back, so that queues and index ignore them."""
    nameless = length < rec.RECORD_MIN_BYTES + len(LOST_TOPIC)
    overhead = rec.RECORD_MIN_BYTES + (0 if nameless else len(LOST_TOPIC))
    parts: list[bytes] = []
    while length:
        size = length if length <= _FILLER_BYTES + overhead else _FILLER_BYTES
        message = MessageExtBrokerInner(
            LOST_TOPIC,
            0,
            bytes(size - overhead),
            {},
            b"",
            store_timestamp_ms,
            _NOWHERE,
            _NOWHERE,
            0,
            TRANSACTION_ROLLBACK,
        )
        head, body, tail, _ = rec.encode_record(message, size, 0, physical_offset_bytes, store_timestamp_ms)
        parts.append(head + body + (bytes(3) if nameless else tail))
        physical_offset_bytes += size
        length -= size
    return parts


def _take_tail(disk: Disk, quarantine: Path, commit_log: CommitLog, found: Recovered, cut: Cut) -> Cut:
    """Copy the bytes after the log's end to the quarantine, then set them to zero; return the cut (the removed bytes) with the
    path of the copy.
    """
    pieces: list[bytes] = []
    places: list[tuple[MappedFile, int, int]] = []
    for file in commit_log.queue.files:
        for at, length, piece in _data_behind(file, found.end_offset_bytes):
            pieces.append(piece)
            places.append((file, at, length))
    path = _keep(disk, quarantine / f"{found.end_offset_bytes:020d}-{found.store_timestamp_ms}", ".cut", pieces)
    for file, at, length in places:
        file.grow(at + length)
        file.region.write(at, bytes(length))
    for file in {id(file): file for file, _at, _length in places}.values():
        file.region.sync()
    level = logging.ERROR if cut.damaged else logging.WARNING
    what = "damage in the middle: valid records follow" if cut.damaged else "torn tail"
    log.log(
        level,
        "store.cut",
        "commit log cut at %(position)d (%(what)s, %(reason)s); the removed bytes are in %(quarantine)s",
        position=cut.offset_bytes,
        what=what,
        reason=cut.reason,
        quarantine=path,
    )
    return replace(cut, quarantine=path)


def _data(file: MappedFile, begin: int, end: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield the data in a range of a log file, without the zeros, for a recovery that removes the range from the log. The
    recovery copies the data to a file in the quarantine folder.

    Each item is (position in the log file, length of the data, bytes to write to the quarantine). The bytes consist of the line
    ``physical_offset length``, the data, and a line end.
    """
    for at, data in data_in(file, begin, end):
        yield at, len(data), b"%020d %d\n" % (file.start + at, len(data)) + data + b"\n"


def _keep(disk: Disk, path: Path, suffix: str, pieces: list[bytes]) -> Path | None:
    """Write pieces of data to a new file, without replacing an existing file; return its path, or None without pieces."""
    if not pieces:
        return None
    disk.make_folder(path.parent)
    number = 0
    while disk.exists(kept := path.with_name(f"{path.name}-{number}{suffix}" if number else f"{path.name}{suffix}")):
        number += 1
    disk.write_file(kept, b"".join(pieces))
    return kept

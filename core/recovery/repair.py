"""What a start takes out of the log, and what it puts there instead.

A start walks the last files record by record. At bytes that are no record it looks behind them: where nothing valid follows
they are a torn tail, the ordinary end of a crash, and the log ends there. Where valid, younger records follow they are
*damage in the middle*, and the log goes on behind it (``compat: strict`` cuts there, as RocketMQ does).

Whatever is taken out of the log is first copied to ``flint/quarantine`` in the store. A cut tail becomes zeros, and its files
are deleted. Damage becomes a *filler*, a record of its size that is rolled back and so never enters a queue, or a BLANK where
it reaches the end of a file: so every reader finds the log whole again, the Java broker too.

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
"""The topic of fillers: no queue and no key ever leads to one."""
_FILLER_BYTES: Final = 1024 * 1024
_NOWHERE: Final = pack_host("0.0.0.0", 0)


def repair(disk: Disk, quarantine: Path, commit_log: CommitLog, walked: Recovered) -> Recovered:
    """Copy damage and the bytes behind the log's end to the quarantine; put fillers and zeros in their places.

    That is done once the copy is durable, and made durable itself, so that a later crash cannot take a stale record for one
    that was stored after the cut.

    Args:
        disk: takes the copies.
        quarantine: the folder for them.
        commit_log: whose files are changed.
        walked: what the walk found; its cut is None where only zeros lie behind the end.

    Returns:
        What the walk found, with the paths of the copies.

    Raises:
        OSError: the disk refused something.
        StoreError: the same; StoreFullError where it is full.
    """
    holes = tuple(_fill(disk, quarantine, commit_log.queue.files, hole) for hole in walked.holes)
    found = replace(walked, holes=holes)
    return (
        found if found.cut is None else replace(found, cut=_take_tail(disk, quarantine, commit_log, found, found.cut))
    )


def data_behind(files: Sequence[MappedFile], end_offset_bytes: int) -> bool:
    """Return whether any byte behind a position of the log is not zero."""
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
        "commit log damaged from %(start_position)d to %(end_position)d (%(reason)s); records follow, and the log "
        "goes on with them; what was there is in %(quarantine)s",
        start_position=hole.start_offset_bytes,
        end_position=hole.end_offset_bytes,
        reason=hole.reason,
        quarantine=path,
    )
    return replace(hole, quarantine=path)


def _fillers(physical_offset_bytes: int, length: int, store_timestamp_ms: int) -> list[bytes]:
    """Return records that take so many bytes together: rolled back, so that no queue and no index refers to them."""
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
    """Copy the bytes behind the log's end, then zero them where they lie. Returns the cut with the copy's path."""
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
        "commit log cut at %(position)d (%(what)s, %(reason)s); what was cut is in %(quarantine)s",
        position=cut.offset_bytes,
        what=what,
        reason=cut.reason,
        quarantine=path,
    )
    return replace(cut, quarantine=path)


def _data(file: MappedFile, begin: int, end: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (place, length, ``position length\\n`` and the bytes) of what is not zero in a part of a file."""
    for at, data in data_in(file, begin, end):
        yield at, len(data), b"%020d %d\n" % (file.start + at, len(data)) + data + b"\n"


def _keep(disk: Disk, path: Path, suffix: str, pieces: list[bytes]) -> Path | None:
    """Write pieces to a file of a name that no earlier recovery has taken; returns its path, None without pieces."""
    if not pieces:
        return None
    disk.make_folder(path.parent)
    number = 0
    while disk.exists(kept := path.with_name(f"{path.name}-{number}{suffix}" if number else f"{path.name}{suffix}")):
        number += 1
    disk.write_file(kept, b"".join(pieces))
    return kept

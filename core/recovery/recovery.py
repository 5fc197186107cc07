"""Where the log ends: after a clean stop, and after a crash.

A start walks the last files record by record. At bytes that are no record it looks behind them: where nothing valid follows
they are a torn tail, the ordinary end of a crash, and the log ends there. Where valid, younger records follow they are
*damage in the middle*, and the log goes on behind it (``compat: strict`` cuts there, as RocketMQ does).

Whatever is taken out of the log is first copied to ``flint/quarantine`` in the store. A cut tail becomes zeros, and its files
go. Damage becomes a *filler*, a record of its size that is rolled back and so never enters a queue, or a BLANK where it
reaches the end of a file: so the log is whole again for whoever reads it, also for the Java broker.

See docs/internals/algorithms.md, Clean recovery and Abnormal recovery.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs

from flintmq.core.io.disk import Disk
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.mapped_file_queue import MappedFile
from flintmq.core.record import record as rec
from flintmq.core.record.host import pack_host
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.record.sys_flag import TRANSACTION_ROLLBACK
from flintmq.core.recovery.log_walk import Hole, Recovered
from flintmq.core.store.consume_queue import ConsumeQueue, ConsumeQueueTable
from flintmq.core.store.queue_units import FILLER_SIZE

log = logging.getLogger("flintmq.store")

LOST_TOPIC: Final = "RMQ_SYS_LOST"
"""The topic of fillers: no queue and no key ever leads to one."""
_RECOVER_FILES: Final = 3
_CHUNK_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(_CHUNK_BYTES)
_FILLER_BYTES: Final = 1024 * 1024
_NOWHERE: Final = pack_host("0.0.0.0", 0)


def normal_start(commit_log: CommitLog) -> int:
    """Index of the file from which a clean log is walked: the third-last."""
    return max(0, len(commit_log.queue.files) - _RECOVER_FILES)


def abnormal_start(commit_log: CommitLog, min_timestamp_ms: int) -> int:
    """Index of the last file whose first record was stored at or before a time the checkpoint vouches for; else 0.

    A record of which a crash left only the head says nothing.
    """
    files = commit_log.queue.files
    for index in range(len(files) - 1, 0, -1):
        try:
            record = rec.decode_record(files[index].view)
        except rec.RecordError:
            continue
        if record.commit_log_offset_bytes == files[index].start and 0 < record.store_timestamp_ms <= min_timestamp_ms:
            return index
    return 0


def dispatch_start(found: Recovered, commit_log: CommitLog, queues: ConsumeQueueTable, *, same_boot: bool) -> int:
    """The physical position from which queues are written anew after a crash; what they hold of records before it is right.

    Queues are written in batches, in the order of the log. When only the process died, all but the last batch are whole;
    after a power cut those are that the checkpoint vouches for. Both is checked: a queue that has lost units, or one whose
    topic was deleted, makes the whole walk count, as in RocketMQ.
    """
    start = found.start_offset_bytes
    if found.holes:
        return min(start, found.holes[0].start_offset_bytes)
    candidates: list[tuple[int, int]] = []
    if not found.clock_went_back:
        candidates.append(found.vouched)
    if same_boot:
        described = queues.max_physical_offset_bytes
        candidates += [mark for mark in found.marks if mark[0] < described][-2:-1]
    for position, queued in sorted(candidates, reverse=True):
        if queues.count_between(start, position) == queued and _is_whole(commit_log, queues, position):
            return position
    return start


def trusted_before(commit_log: CommitLog, position: int) -> int:
    """A store time at or before which no record from a position on was stored; 0 when there is none.

    It is the time of a file's first record, so that the next recovery begins with a file that is not far away.
    """
    files = [file for file in commit_log.queue.files if file.start <= position]
    times = [_first_ms(file) for file in files]
    for at in range(len(times) - 2, -1, -1):
        if 0 < times[at] < times[at + 1]:
            return times[at]
    return 0


def _first_ms(file: MappedFile) -> int:
    magic = rec.SIZE_AND_MAGIC.unpack_from(file.view, 0)[1]
    return rec.store_timestamp_at(file.view, 0) if magic in (rec.MAGIC_V1, rec.MAGIC_V2) else 0


def _is_whole(commit_log: CommitLog, queues: ConsumeQueueTable, position: int) -> bool:
    """Whether each queue's last unit before a position speaks of a message of that queue."""
    for queue in queues.queues.values():
        last = queue.first_from(lambda physical: physical < position) - 1
        if last >= queue.min_queue_offset and not _is_described(commit_log, queue, last):
            return False
    return True


def write_again(commit_log: CommitLog, found: Recovered) -> None:
    """Writes what the checkpoint does not vouch for to where it lies. A sync that failed may have left it in memory only, in
    pages that the kernel calls clean: the next sync would not write them. Raises OSError, StoreError."""
    begin = found.start_offset_bytes if found.clock_went_back or found.holes else found.end_offset_bytes
    if found.newer is not None:
        begin = min(begin, found.newer[0])
    for file in commit_log.queue.files:
        end = min(file.size, found.end_offset_bytes - file.start)
        start = max(0, begin - file.start)
        if start < end:
            file.grow(end)
            file.region.rewrite(start, end)


def drop_torn_units(commit_log: CommitLog, queues: ConsumeQueueTable) -> None:
    """Drops units at the queues' ends that speak of no message of theirs: halves of units that were being written or cut."""
    for queue in queues.queues.values():
        end = queue.max_queue_offset
        while end > queue.min_queue_offset and not _is_described(commit_log, queue, end - 1):
            end -= 1
        queue.cut(end)


def _is_described(commit_log: CommitLog, queue: ConsumeQueue, queue_offset: int) -> bool:
    """Whether the message that a unit speaks of is there; also where it is deleted, or the unit a filler."""
    unit = queue.unit(queue_offset)
    if unit is None:
        return True
    physical, size, _tags = unit
    if physical < commit_log.min_offset_bytes or (not physical and size == FILLER_SIZE):
        return True
    file = commit_log.queue.find(physical)
    if file is None:
        return False
    try:
        request = commit_log.request_at(file, physical - file.start)
    except rec.RecordError:
        return False
    return (request.topic, request.queue_id, request.message_size_bytes) == (queue.topic, queue.queue_id, size)


# what is taken out


def repair(
    disk: Disk, quarantine: Path, commit_log: CommitLog, found: Recovered, before_change: Callable[[], None]
) -> Recovered:
    """Copies the damage and the bytes behind the end to the quarantine; puts fillers and zeros in their places.

    That is done once the copy is durable, and made durable itself, so that a later crash cannot take a stale record for one
    that was stored after the cut. ``before_change`` is called once there is something to change. Raises OSError, StoreError.
    """
    if found.holes:
        before_change()
    holes = tuple(_fill(disk, quarantine, commit_log.queue.files, hole) for hole in found.holes)
    return _keep_what_is_cut(disk, quarantine, commit_log, attrs.evolve(found, holes=holes), before_change)


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
        "commit log damaged from %d to %d (%s); records follow, and the log goes on with them; what was there is in %s",
        hole.start_offset_bytes,
        hole.end_offset_bytes,
        hole.reason,
        path,
    )
    return attrs.evolve(hole, quarantine=path)


def _fillers(physical_offset_bytes: int, length: int, store_timestamp_ms: int) -> list[bytes]:
    """Records that take so many bytes together: rolled back, so that no queue and no index speaks of them."""
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


def _keep_what_is_cut(
    disk: Disk, quarantine: Path, commit_log: CommitLog, found: Recovered, before_change: Callable[[], None]
) -> Recovered:
    """Copies the bytes behind the end and zeros them where they lie."""
    if found.cut is None:
        return found
    pieces: list[bytes] = []
    places: list[tuple[MappedFile, int, int]] = []
    for file in commit_log.queue.files:
        if file.start + file.size <= found.end_offset_bytes:
            continue
        for at, length, piece in _data(file, max(0, found.end_offset_bytes - file.start), file.size):
            pieces.append(piece)
            places.append((file, at, length))
    if not pieces:
        return attrs.evolve(found, cut=None)
    before_change()
    path = _keep(disk, quarantine / f"{found.end_offset_bytes:020d}-{found.store_timestamp_ms}", ".cut", pieces)
    for file, at, length in places:
        file.grow(at + length)
        file.region.write(at, bytes(length))
    for file in {id(file): file for file, _at, _length in places}.values():
        file.region.sync()
    cut = attrs.evolve(found.cut, quarantine=path)
    level = logging.ERROR if cut.damaged else logging.WARNING
    what = "damage in the middle: valid records follow" if cut.damaged else "torn tail"
    log.log(level, "commit log cut at %d (%s, %s); what was cut is in %s", cut.offset_bytes, what, cut.reason, path)
    return attrs.evolve(found, cut=cut)


def _data(file: MappedFile, begin: int, end: int) -> list[tuple[int, int, bytes]]:
    """(place, length, ``position length\\n`` and the bytes) of what is not zero in a part of a file."""
    found: list[tuple[int, int, bytes]] = []
    at = begin
    while (at := file.region.next_data(at)) < end:
        chunk = bytes(file.view[at : min(end, at + _CHUNK_BYTES)])
        if chunk != _ZEROS and (stripped := chunk.rstrip(b"\0")):
            found.append((at, len(stripped), b"%020d %d\n" % (file.start + at, len(stripped)) + stripped + b"\n"))
        at += _CHUNK_BYTES
    return found


def _keep(disk: Disk, path: Path, suffix: str, pieces: list[bytes]) -> Path | None:
    """Writes pieces to a file of a name that no earlier recovery has taken; None without pieces."""
    if not pieces:
        return None
    disk.make_folder(path.parent)
    number = 0
    while disk.exists(kept := path.with_name(f"{path.name}-{number}{suffix}" if number else f"{path.name}{suffix}")):
        number += 1
    disk.write_file(kept, b"".join(pieces))
    return kept

"""Where the log ends: after a clean stop, and after a crash (reference: algorithms 1.2 to 1.4).

A start walks the last files record by record. At bytes that are no record it looks behind them: where nothing valid follows
they are a torn tail, the ordinary end of a crash, and the log ends there. Where valid, younger records follow they are
*damage in the middle*, and the log goes on behind it (``compat: strict`` cuts there, as the reference does).

Whatever is taken out of the log is first copied to ``flint/quarantine`` in the store. A cut tail becomes zeros, and its files
go. Damage becomes a *filler*, a record of its size that is rolled back and so never enters a queue, or a BLANK where it
reaches the end of a file: so the log is whole again for whoever reads it, also for the Java broker.
"""

from __future__ import annotations

import logging
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs

from flintmq.core.errors import StoreFormatError
from flintmq.core.io.disk import Disk
from flintmq.core.io.paths import topic_folder
from flintmq.core.message import record as rec
from flintmq.core.message.host import pack_host
from flintmq.core.message.record import MessageExtBrokerInner
from flintmq.core.message.sys_flag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from flintmq.core.store.commit_log import CommitLog
from flintmq.core.store.consume_queue import FILLER_SIZE, ConsumeQueue, ConsumeQueueTable
from flintmq.core.store.mapped_file_queue import MappedFile

log = logging.getLogger("flintmq.store")

LOST_TOPIC: Final = "RMQ_SYS_LOST"
"""The topic of fillers: no queue and no key ever leads to one."""
_RECOVER_FILES: Final = 3
_CHUNK_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(_CHUNK_BYTES)
_FILLER_BYTES: Final = 1024 * 1024
_NOWHERE: Final = pack_host("0.0.0.0", 0)
_UNWRITTEN: Final = re.compile(rb"\x00{16}")
"""Bytes that a copy has not reached look like this."""
_APPEND_MOST: Final = 65_536
"""More records than one turn of the loop appends."""
_ANY_RECORD: Final = re.compile(
    b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (rec.MAGIC_V1, rec.MAGIC_V2))
)
_WALKED: Final = struct.Struct(">IIIi12xqi16xq20xi")
"""Size, magic, crc, queueId, physical offset, sysFlag, store time and body length of a record between IPv4 hosts."""
_BODY_AT: Final = 88
_HOSTS_V6: Final = 0x30
_MARK_EVERY: Final = 4_096
_NEVER: Final = 2**63 - 1
_CLOCK_SLACK_MS: Final = 1_000


@attrs.frozen
class Cut:
    """What a recovery took off the end of the log."""

    offset_bytes: int
    """Physical position of the cut."""
    reason: str
    """Why the bytes there are no record."""
    damaged: bool
    """True when valid, younger records follow: not a torn tail but damage in the middle."""
    quarantine: Path | None
    """Where the bytes that were cut are kept; None when they were zeros."""


@attrs.frozen
class Hole:
    """Damage in the middle: where records were lost, and now a filler lies."""

    start_offset_bytes: int
    """Physical position of the first bad byte."""
    end_offset_bytes: int
    """Physical position of the next good record."""
    reason: str
    """Why the bytes there are no record."""
    store_timestamp_ms: int
    """Store time of the last good record before it."""
    quarantine: Path | None = None
    """Where the bad bytes are kept; None when they were zeros."""


@attrs.frozen
class Recovered:
    """The result of walking the log."""

    start_offset_bytes: int
    """Where the counted part of the walk began."""
    end_offset_bytes: int
    store_timestamp_ms: int
    """Store time of the last record; 0 without any."""
    records: int
    """All that were walked."""
    queued: int
    """Records of the counted part that belong into queues."""
    cut: Cut | None
    holes: tuple[Hole, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    """(physical position, records before it that belong into queues), every so many records."""
    newer: tuple[int, int] | None = None
    """The same for the first record that the checkpoint does not vouch for; None when it vouches for all."""
    clock_went_back: bool = False
    """Whether store times tell nothing about what came first."""

    @property
    def vouched(self) -> tuple[int, int]:
        """The position up to which the checkpoint vouches, and how many records before it belong into queues."""
        return self.newer if self.newer is not None else (self.end_offset_bytes, self.queued)


class LogWalk:
    """Walks files from one of them on, checking each record wholly.

    Args:
        commit_log: whose files are walked.
        check_crc: whether bodies are checked against their CRC.
        skips_damage: whether the walk goes on behind damage where valid records follow.
        trusted_ms: after a crash, the store time up to which the checkpoint vouches for log and queues; None after a stop.
    """

    def __init__(
        self, commit_log: CommitLog, *, check_crc: bool, skips_damage: bool = True, trusted_ms: int | None = None
    ) -> None:
        self._files = commit_log.queue.files
        self._log = commit_log
        self._check_crc = check_crc
        self._skips_damage = skips_damage
        self._trusted_ms = _NEVER if trusted_ms is None else trusted_ms
        self._topics: set[bytes] = set()
        self._records = 0
        self._queued = 0
        self._last_ms = 0
        self._newest_ms = 0
        self._marks: list[tuple[int, int]] = []
        self._newer: tuple[int, int] | None = None
        self._clock_went_back = False

    def run(self, first_file: int, counted_file: int | None = None) -> Recovered:
        """Walks to the end. Changes nothing.

        Args:
            first_file: index of the file to begin with.
            counted_file: from which file on records are counted, marked and timed; the same one by default.
        """
        files = self._files
        counted = first_file if counted_file is None else counted_file
        end = files[first_file].start
        index, at = first_file, 0
        holes: list[Hole] = []
        cut: Cut | None = None
        while True:
            file = files[index]
            if index == counted:
                self._queued, self._newer, self._newest_ms, self._clock_went_back, counted = 0, None, 0, False, -1
                self._marks.clear()
            at, reason = self._walk_file(file, at)
            end = file.start + at
            if not reason:
                if index + 1 == len(files):
                    break
                end = file.start + file.size
                index, at = index + 1, 0
                continue
            cut = Cut(end, reason, damaged=False, quarantine=None)
            found = self._behind(index, at)
            if found is None or (self._skips_damage and self._is_torn_append(index, at, found)):
                while at == 0 and index > first_file and self._is_blank(files[index - 1]):
                    index -= 1  # it was filled because records followed, and they are gone too
                    cut = attrs.evolve(cut, offset_bytes=(end := files[index].start))
                break
            if not self._skips_damage:
                cut = attrs.evolve(cut, damaged=True)
                break
            cut = None
            index, at = found
            holes.append(Hole(end, files[index].start + at, reason, self._last_ms))
        return Recovered(
            files[first_file if counted_file is None else counted_file].start,
            end,
            self._last_ms,
            self._records,
            self._queued,
            cut,
            tuple(holes),
            tuple(self._marks),
            self._newer,
            self._clock_went_back,
        )

    def _walk_file(self, file: MappedFile, at: int) -> tuple[int, str]:
        """Walks to where no record is; returns the place, and why, or nothing for why where the file ends as it should.

        Here a gigabyte is passed a record at a time: no call and no object that is not needed.
        """
        view, size_bytes, base = file.view, file.size, file.start
        last_at = size_bytes - rec.RECORD_MIN_BYTES
        unpack, magic_v1, crc32 = _WALKED.unpack_from, rec.MAGIC_V1, zlib.crc32
        check_crc, topics = self._check_crc, self._topics
        records, queued, newest_ms, stored_ms = self._records, self._queued, self._newest_ms, self._last_ms
        whole_ms = self._trusted_ms
        trusted_ms = whole_ms if self._newer is None else _NEVER
        reason = ""
        while True:
            if at <= last_at:
                size, magic, crc, queue_id, physical, sys_flag, stored_now_ms, body_bytes = unpack(view, at)
                end = at + size
                topic_at = at + _BODY_AT + body_bytes
                if (
                    magic == magic_v1
                    and physical == base + at
                    and not sys_flag & _HOSTS_V6
                    and end <= size_bytes
                    and at + _BODY_AT <= topic_at < end - 2
                    and queue_id >= 0
                    and (length_at := topic_at + 1 + view[topic_at]) + 2 <= end
                    and (view[length_at] << 8 | view[length_at + 1]) == end - length_at - 2
                    and view[topic_at:length_at].tobytes() in topics
                    and (not check_crc or not body_bytes or crc32(view[at + _BODY_AT : topic_at]) & 0x7FFFFFFF == crc)
                    and (newest_ms <= stored_now_ms <= whole_ms or view[length_at + 2 : end].tobytes().find(0) < 0)
                ):
                    if stored_now_ms > trusted_ms:
                        self._newer = (physical, queued)
                        trusted_ms = _NEVER
                    if stored_now_ms >= newest_ms:
                        newest_ms = stored_now_ms
                    elif stored_now_ms < newest_ms - _CLOCK_SLACK_MS:
                        self._clock_went_back = True
                    stored_ms = stored_now_ms
                    records += 1
                    if not records % _MARK_EVERY:
                        self._marks.append((physical, queued))
                    if not sys_flag & TRANSACTION_PREPARED:
                        queued += 1
                    at = end
                    continue
            if size_bytes - at < rec.BLANK_MIN_BYTES or rec.SIZE_AND_MAGIC.unpack_from(view, at)[1] == rec.MAGIC_BLANK:
                break
            # Whatever the short way does not know: other hosts, a topic not met before, or no record at all.
            self._newest_ms = newest_ms
            try:
                record = self._check(file, at)
            except rec.RecordError as error:
                reason = str(error)
                break
            if view[at + 4 : at + 8] == _MAGIC_V1 and not record.sys_flag & (_HOSTS_V6 | TRANSACTION_PREPARED):
                raw_topic = record.topic.encode("utf-8")
                known = bytes((len(raw_topic),)) + raw_topic
                if known not in topics:
                    topics.add(known)
                    continue
            if record.store_timestamp_ms > trusted_ms:
                self._newer = (base + at, queued)
                trusted_ms = _NEVER
            if record.store_timestamp_ms < newest_ms - _CLOCK_SLACK_MS:
                self._clock_went_back = True
            newest_ms = max(newest_ms, record.store_timestamp_ms)
            stored_ms = record.store_timestamp_ms
            queued += not record.sys_flag & TRANSACTION_PREPARED
            records += 1
            at += record.size_bytes
        self._records, self._queued, self._newest_ms, self._last_ms = records, queued, newest_ms, stored_ms
        return at, reason

    def _check(self, file: MappedFile, at: int) -> rec.Record:
        """The whole record at a place. Raises RecordError."""
        record = rec.decode_record(file.view, at, check_crc=self._check_crc)
        if record.commit_log_offset_bytes != file.start + at:
            raise rec.RecordError(f"the record says it lies at {record.commit_log_offset_bytes}")
        if not record.sys_flag & TRANSACTION_PREPARED:
            try:
                topic_folder(_ANYWHERE, record.topic)
            except StoreFormatError as error:
                raise rec.RecordError(str(error)) from error
            if record.queue_id < 0:
                raise rec.RecordError(f"queue {record.queue_id} is none")
        vouched = self._trusted_ms == _NEVER or self._newest_ms <= record.store_timestamp_ms <= self._trusted_ms
        if not vouched and _is_torn(record):
            raise rec.RecordError("the properties are torn")
        return record

    @staticmethod
    def _is_blank(file: MappedFile) -> bool:
        return bool(rec.SIZE_AND_MAGIC.unpack_from(file.view, 0)[1] == rec.MAGIC_BLANK)

    # damage

    def _behind(self, index: int, at: int) -> tuple[int, int] | None:
        """File and place of the next record behind a bad place; None when none follows."""
        files = self._files
        file = files[index]
        if file.size - at >= rec.RECORD_MIN_BYTES:
            size, magic, _crc, _queue_id, physical, *_rest = _WALKED.unpack_from(file.view, at)
            end = at + size
            is_head = magic == rec.MAGIC_V1 and physical == file.start + at and size >= rec.RECORD_MIN_BYTES
            if is_head and end < file.size and self._is_younger(file, end):
                # The head says how far the bad record reaches: what its body looks like is nobody's business.
                return index, end
        for number in range(index, len(files)):
            file = files[number]
            begin = file.region.next_data(at if number == index else 0)
            if number > index and self._is_younger(file, 0):
                return number, 0
            while begin < file.size:
                end = min(file.size, begin + _CHUNK_BYTES + 4)
                for match in _ANY_RECORD.finditer(file.view[begin:end]):
                    start = begin + match.start() - 4
                    room = start - at if number == index else start
                    if room >= rec.RECORD_MIN_BYTES and self._is_younger(file, start):
                        return number, start
                begin = file.region.next_data(begin + _CHUNK_BYTES) if begin + _CHUNK_BYTES < file.size else file.size
        return None

    def _is_torn_append(self, index: int, at: int, found: tuple[int, int]) -> bool:
        """Whether the bad bytes and all that follows are one append that a crash cut short.

        A large copy need not go in order, so that whole records may lie behind bytes that were never written. All records
        of an append are stored at one time, it is the last thing in the log, and nobody was told of any of them.
        """
        number, place = found
        file = self._files[index]
        if self._trusted_ms == _NEVER or number != index or _UNWRITTEN.search(file.view[at:place]) is None:
            return False
        stored_ms = -1
        for _ in range(_APPEND_MOST):
            try:
                record = self._check(file, place)
            except rec.RecordError:
                behind = self._behind(index, place)
                if behind is None:
                    return True
                number, place = behind
                if number != index:
                    return False
                continue
            if stored_ms not in (-1, record.store_timestamp_ms):
                return False
            stored_ms = record.store_timestamp_ms
            place += record.size_bytes
        return False

    def _is_younger(self, file: MappedFile, at: int) -> bool:
        """Whether a whole record lies at a place, stored no earlier than the last good one.

        Older ones are what an earlier recovery of the reference left behind the end of its log.
        """
        try:
            record = self._check(file, at)
        except rec.RecordError:
            return False
        if not self._check_crc:
            try:
                rec.decode_record(file.view, at)
            except rec.RecordError:
                return False
        return record.store_timestamp_ms >= self._last_ms


def _is_torn(record: rec.Record) -> bool:
    """Whether a part of the properties, which no checksum covers, was not written: no message has a zero there."""
    return 0 in record.properties_bytes


_MAGIC_V1: Final = rec.MAGIC_V1.to_bytes(4, "big")
_ANYWHERE: Final = Path()


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
    topic was deleted, makes the whole walk count, as in the reference.
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
    pages that the kernel calls clean: the next sync would not write them. Raises StoreFullError."""
    begin = found.start_offset_bytes if found.clock_went_back or found.holes else found.end_offset_bytes
    if found.newer is not None:
        begin = min(begin, found.newer[0])
    for file in commit_log.queue.files:
        end = min(file.size, found.end_offset_bytes - file.start)
        for at in range(max(0, begin - file.start), end, _CHUNK_BYTES):
            chunk = bytes(file.view[at : min(end, at + _CHUNK_BYTES)])
            file.grow(at + len(chunk))
            file.region.write(at, chunk)


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
    topic = LOST_TOPIC if length >= rec.RECORD_MIN_BYTES + len(LOST_TOPIC) else ""
    overhead = rec.RECORD_MIN_BYTES + len(topic)
    parts: list[bytes] = []
    while length:
        size = length if length <= _FILLER_BYTES + overhead else _FILLER_BYTES
        message = MessageExtBrokerInner(
            topic, 0, bytes(size - overhead), {}, b"", store_timestamp_ms, _NOWHERE, _NOWHERE, 0, TRANSACTION_ROLLBACK
        )
        parts.append(b"".join(rec.encode_record(message, size, 0, physical_offset_bytes, store_timestamp_ms)))
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

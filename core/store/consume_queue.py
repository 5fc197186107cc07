"""Consume queues: per topic and queue, where its messages lie in the commit log.

A unit is ``physicalOffset 8 | size 4 | tagsCode 8``; the message of logical offset n is described at byte ``n * 20``. Queue
files are mapped sparse and backed by disk in steps as they grow. Loop thread; :meth:`ConsumeQueueTable.flush` is called by
the queue flusher's.

See docs/internals/store-format.md, Consume queue.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeVar

from flintmq.core.errors import StoreError
from flintmq.core.io.disk import Disk
from flintmq.core.io.paths import queue_folder, topic_folder
from flintmq.core.kernel.ports import AppendedBatch, AppendUnit, DispatchRequest, RecordBatch, requests_of
from flintmq.core.log.mapped_file_queue import OS_PAGE_BYTES, MappedFile, MappedFileQueue
from flintmq.core.record.bulk_columns import RecordColumns
from flintmq.core.record.record import RECORD_MIN_BYTES
from flintmq.core.record.rows import rows_struct
from flintmq.core.record.sys_flag import is_queued
from flintmq.core.store import queue_units
from flintmq.core.store.consume_queue_ext import ConsumeQueueExt, ExtFiles, is_address
from flintmq.core.store.queue_units import FILLER_SIZE, OFFSET_MAX

UNIT_BYTES: Final = 20
UNIT: Final = struct.Struct(">qiq")
_STEP_BYTES: Final = 64 * 1024
_RECOVER_FILES: Final = 3
_QUEUE_OFFSET: Final = attrgetter("queue_offset")
_FEW_UNITS: Final = 8_192
"""So many are looked at one by one before numpy is asked for the rest: most queues have no more."""
_CHUNK_BYTES: Final = 64 * 1024
_FILLER: Final = UNIT.pack(0, FILLER_SIZE, 0)

AnyUnit = TypeVar("AnyUnit", DispatchRequest, AppendUnit)


class ConsumeQueue:
    """One queue of one topic."""

    __slots__ = ("ext", "files", "max_physical_offset_bytes", "min_logic_offset_bytes", "queue_id", "topic")

    def __init__(self, disk: Disk, root: Path, topic: str, queue_id: int, file_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = MappedFileQueue(disk, queue_folder(root, topic, queue_id), file_bytes, step_bytes=_STEP_BYTES)
        self.max_physical_offset_bytes = -1
        """End of the newest message described here; -1 without any."""
        self.min_logic_offset_bytes = 0
        """Byte position of the oldest unit whose message still exists."""
        self.ext: ConsumeQueueExt | None = None
        """What addresses in the place of tags codes lead to; None where there are none."""

    @property
    def min_queue_offset(self) -> int:
        return self.min_logic_offset_bytes // UNIT_BYTES

    @property
    def max_queue_offset(self) -> int:
        """The next message's logical offset."""
        return self.files.wrote_offset_bytes // UNIT_BYTES

    # write

    def put(self, units: Sequence[bytes], first_queue_offset: int, end_physical_offset_bytes: int) -> None:
        """Appends units; the caller has dropped those already taken.

        Raises:
            StoreFullError: no room; the units that fit are there, and a second call with the same ones goes on.
        """
        last = self.files.last()
        if last is None:
            last = self._first_file(first_queue_offset)
        data = b"".join(units)
        while len(data) > (room := last.size - last.wrote):
            if room:
                last.grow(last.size)
                last.append(data[:room])
                physical, size, _tags = UNIT.unpack_from(data, room - UNIT_BYTES)
                if physical or size != FILLER_SIZE:
                    self.max_physical_offset_bytes = physical + size
                data = data[room:]
            last = self.files.roll(last.start + last.size)
        last.grow(last.wrote + len(data))
        last.append(data)
        self.max_physical_offset_bytes = end_physical_offset_bytes

    def _first_file(self, first_queue_offset: int) -> MappedFile:
        """The first file of a queue that starts at a logical offset above 0 is filled up to it.

        See docs/internals/store-format.md, Consume queue.
        """
        position = first_queue_offset * UNIT_BYTES
        fill = position % self.files.file_bytes
        file = self.files.roll(position - fill, fill)
        if position:
            file.append(_FILLER * (fill // UNIT_BYTES))
            self.min_logic_offset_bytes = position
        return file

    # read

    def units(self, queue_offset: int, max_units: int) -> Iterator[tuple[int, int, int]]:
        """(physical offset, size, tags code) from a logical offset on, at most so many, within one file.

        Never nothing when the offset lies between min and max. An address in the place of a tags code is followed; it stays
        one only where nothing can be read there.
        """
        units = UNIT.iter_unpack(self.unit_bytes(queue_offset, max_units))
        return units if self.ext is None else _followed(units, self.ext)

    def unit_bytes(self, queue_offset: int, max_units: int) -> memoryview:
        """The units as they lie in the file; empty when the offset is not there."""
        position = queue_offset * UNIT_BYTES
        file = self.files.find(position)
        if file is None:
            return memoryview(b"")
        at = position - file.start
        return file.view[at : max(at, min(file.wrote, at + max_units * UNIT_BYTES))]

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """One unit as it lies in the file, or None."""
        return next(UNIT.iter_unpack(self.unit_bytes(queue_offset, 1)), None)

    def next_file_queue_offset(self, queue_offset: int) -> int:
        """The logical offset with which the next file begins."""
        per_file = self.files.file_bytes // UNIT_BYTES
        return queue_offset - queue_offset % per_file + per_file

    def queue_offset_by_time(
        self, timestamp_ms: int, min_physical_offset_bytes: int, store_time: Callable[[int], int]
    ) -> int:
        """The nearest message in time (docs/internals/algorithms.md, Offset by time); 0 in an empty queue.

        ``store_time`` gives the store time of a physical offset, -1 when it is gone. The file is picked by the store time
        of its last unit, not by its modification time, which a copy or a restore changes.
        """
        file = self._file_by_time(timestamp_ms, store_time)
        if file is None:
            return 0
        low = max(0, self.min_logic_offset_bytes - file.start)
        high = file.wrote - UNIT_BYTES
        left = right = -1
        left_ms = right_ms = -1
        target = -1
        while high >= low:
            mid = (low + high) // (2 * UNIT_BYTES) * UNIT_BYTES
            physical, size, _tags = UNIT.unpack_from(file.view, mid)
            if size == FILLER_SIZE and not physical:
                limit = (file.start + high) // UNIT_BYTES + 1
                behind = self._behind_fillers((file.start + mid) // UNIT_BYTES, limit)
                if behind == limit:
                    high = mid - UNIT_BYTES  # nothing but fillers
                    continue
                mid = behind * UNIT_BYTES - file.start
                physical = UNIT.unpack_from(file.view, mid)[0]
            if physical < min_physical_offset_bytes:
                low, left = mid + UNIT_BYTES, mid
                continue
            stored_ms = store_time(physical)
            if stored_ms < 0:
                return 0
            if stored_ms == timestamp_ms:
                target = mid
                break
            if stored_ms > timestamp_ms:
                high, right, right_ms = mid - UNIT_BYTES, mid, stored_ms
            else:
                low, left, left_ms = mid + UNIT_BYTES, mid, stored_ms
        if target == -1:
            if left_ms == -1:
                target = right
            elif right_ms == -1:
                target = left
            else:
                target = right if timestamp_ms - left_ms > right_ms - timestamp_ms else left
        return (file.start + max(0, target)) // UNIT_BYTES

    def _file_by_time(self, timestamp_ms: int, store_time: Callable[[int], int]) -> MappedFile | None:
        files = [file for file in self.files.files if file.wrote]
        low, high = 0, len(files) - 1
        while low < high:
            middle = (low + high) // 2
            physical = self._last_physical(files[middle])
            if physical >= 0 and store_time(physical) >= timestamp_ms:
                high = middle
            else:
                low = middle + 1
        return files[low] if files else None

    @staticmethod
    def _last_physical(file: MappedFile) -> int:
        """The place of the newest message that a file's units speak of; -1 where there are only fillers."""
        for at in range(file.wrote - UNIT_BYTES, -1, -UNIT_BYTES):
            unit = UNIT.unpack_from(file.view, at)
            if not _is_filler(unit):
                return int(unit[0])
        return -1

    def destroy(self) -> None:
        """Deletes every file."""
        self.files.destroy()
        if self.ext is not None:
            self.ext.destroy()

    def close(self) -> None:
        self.files.close()
        if self.ext is not None:
            self.ext.close()

    # recovery

    def load(self, *, crashed: bool = False) -> None:
        self.files.load(crashed=crashed)

    def recover(self) -> None:
        """Finds the end: the first unit, from the third-last file on, that is not valid.

        Nor is one whose message does not lie behind those before it: a crash may leave half a unit.

        See docs/internals/algorithms.md, Clean recovery.
        """
        files = self.files.files
        if not files:
            return
        first = max(0, len(files) - _RECOVER_FILES)
        end = files[first].start
        known = -1
        for file in files[first:]:
            valid, known = _valid_units(file.view[: file.size - file.size % UNIT_BYTES], known)
            end = file.start + valid * UNIT_BYTES
            if valid * UNIT_BYTES < file.size:
                break
        self.max_physical_offset_bytes = known
        self._zero_behind(end)
        self.files.truncate(end)

    def truncate_physical(self, end_offset_bytes: int) -> None:
        """Cuts every unit whose message does not lie wholly below a position of the log.

        Units that are cut become zeros: left in the file, a later start would take them for units of other messages.
        Fillers before them go too, but those that a queue begins with.

        See docs/internals/algorithms.md, Clean recovery.
        """
        self.max_physical_offset_bytes = -1
        files = self.files.files
        end = self.files.wrote_offset_bytes
        fillers = 0
        for file in reversed(files):
            for at in range(file.wrote - UNIT_BYTES, -1, -UNIT_BYTES):
                physical, size, _tags = UNIT.unpack_from(file.view, at)
                if size == FILLER_SIZE and not physical:
                    fillers += UNIT_BYTES
                elif physical + size > end_offset_bytes:
                    end, fillers = file.start + at, 0
                else:
                    if end < self.files.wrote_offset_bytes:
                        end -= fillers
                    self.max_physical_offset_bytes = physical + size
                    self._cut(end)
                    return
        self._cut(end)

    def described_below(self, end_offset_bytes: int) -> int:
        """Return the largest physical end at or below a position that a unit describes: where :meth:`truncate_physical` cuts.

        It is -1 without such a unit.
        """
        if self.max_physical_offset_bytes <= end_offset_bytes:
            return self.max_physical_offset_bytes
        for file in reversed(self.files.files):
            for at in range(file.wrote - UNIT_BYTES, -1, -UNIT_BYTES):
                physical, size, _tags = UNIT.unpack_from(file.view, at)
                if (physical or size != FILLER_SIZE) and physical + size <= end_offset_bytes:
                    return int(physical + size)
        return -1

    def cut(self, queue_offset: int) -> None:
        """Cuts every unit from a logical offset on."""
        if queue_offset >= self.max_queue_offset:
            return
        self._cut(queue_offset * UNIT_BYTES)
        while queue_offset and (unit := self.unit(queue_offset - 1)) is not None and _is_filler(unit):
            queue_offset -= 1
        unit = self.unit(queue_offset - 1) if queue_offset else None
        self.max_physical_offset_bytes = unit[0] + unit[1] if unit is not None else -1

    def _cut(self, end: int) -> None:
        if end < self.files.wrote_offset_bytes:
            self._zero_behind(end)
            self.files.truncate(end)

    def _zero_behind(self, end: int) -> None:
        """Zeros what lies behind a position of the file that will be the last one."""
        files = self.files.files
        file = self.files.find(end) or files[-1]
        if end == file.start and file is not files[0]:
            return  # it goes altogether
        begin = used = at = min(end - file.start, file.size)
        while (at := file.region.next_data(at)) < file.size:
            chunk = bytes(file.view[at : at + _CHUNK_BYTES]).rstrip(b"\0")
            used = at + len(chunk) if chunk else used
            at += _CHUNK_BYTES
        if used > begin:
            file.grow(used)
            file.region.write(begin, bytes(used - begin))
            file.unsynced = True

    def correct_min_offset(self, min_physical_offset_bytes: int) -> None:
        """Moves the minimum to the first unit whose message exists."""
        for file in self.files.files:
            for index, (physical, _size, _tags) in enumerate(UNIT.iter_unpack(file.view[: file.wrote])):
                unit_is_filler = _size == FILLER_SIZE and not physical
                if physical >= min_physical_offset_bytes and not unit_is_filler:
                    self.min_logic_offset_bytes = file.start + index * UNIT_BYTES
                    return
        self.min_logic_offset_bytes = self.files.wrote_offset_bytes

    def end_ext(self) -> None:
        """Ends the ext files where this queue's last address says; for after recovery, a cut, or a put that failed."""
        if self.ext is not None:
            self.ext.end_after(self._last_address())

    def _last_address(self) -> int | None:
        for file in reversed(self.files.files):
            for at in range(file.wrote - UNIT_BYTES, -1, -UNIT_BYTES):
                tags_code = UNIT.unpack_from(file.view, at)[2]
                if is_address(tags_code):
                    return int(tags_code)
        return None

    # retention

    def first_from(self, is_gone: Callable[[int], bool]) -> int:
        """The logical offset of the oldest message that is not gone; max when all are. Binary search from the minimum on.

        ``is_gone`` tells it of a physical offset, and never says yes behind a no.
        """
        low, high = self.min_queue_offset, self.max_queue_offset
        while low < high:
            middle = (low + high) // 2
            at = self._behind_fillers(middle, high)
            unit = self.unit(at) if at < high else None
            if at == high and at > middle:
                high = middle  # nothing but fillers: they go with what lies before them
            elif unit is None or is_gone(unit[0]):
                low = at + 1
            else:
                high = middle
        return self._behind_fillers(low, self.max_queue_offset)

    def _behind_fillers(self, queue_offset: int, limit: int) -> int:
        """The first logical offset from one on that is no filler's; the limit when all are."""
        while queue_offset < limit and (unit := self.unit(queue_offset)) is not None and _is_filler(unit):
            queue_offset += 1
        return queue_offset

    def expire(self, is_gone: Callable[[int], bool]) -> bool:
        """Moves the minimum forward past what is gone, and deletes files before it.

        Returns whether every such file could be deleted: one that waits for its sync goes next time. Raises OSError.
        """
        self.min_logic_offset_bytes = max(self.min_logic_offset_bytes, self.first_from(is_gone) * UNIT_BYTES)
        self.files.delete_before(self.min_logic_offset_bytes)
        if self.ext is not None:
            unit = self.unit(self.min_queue_offset)
            if unit is not None and is_address(unit[2]):
                self.ext.delete_before(unit[2])
        files = self.files.files
        return len(files) < 2 or files[1].start > self.min_logic_offset_bytes


def _followed(units: Iterator[tuple[int, int, int]], ext: ConsumeQueueExt) -> Iterator[tuple[int, int, int]]:
    for physical, size, tags_code in units:
        found = ext.get(tags_code) if is_address(tags_code) else None
        yield physical, size, tags_code if found is None else found.tags_code


def _valid_units(units: memoryview, known: int) -> tuple[int, int]:
    """How many units are valid before the first that is not, and where the newest message that they speak of ends.

    Args:
        units: as they lie in a file.
        known: where the newest message before them ends.
    """
    valid = 0
    for physical, size, _tags in UNIT.iter_unpack(units):
        if physical < known:
            if physical or size != FILLER_SIZE:
                return valid, known
        elif size <= 0 or not 0 <= physical <= OFFSET_MAX:
            return valid, known
        elif physical or size != FILLER_SIZE:
            known = physical + size
        valid += 1
        if valid == _FEW_UNITS:
            more, known = queue_units.valid_units(units[valid * UNIT_BYTES :], known)
            return valid + more, known
    return valid, known


def _is_filler(unit: tuple[int, int, int]) -> bool:
    return unit[1] == FILLER_SIZE and not unit[0]


def _goes_on(queue: ConsumeQueue, group: Sequence[AppendUnit]) -> bool:
    """Whether all of a group are new to a queue, and follow its end without a gap."""
    if group[0].commit_log_offset_bytes < queue.max_physical_offset_bytes:
        return False
    expected = queue.max_queue_offset
    for unit in group:
        if unit.queue_offset != expected:
            return False
        expected += len(unit) if isinstance(unit, AppendedBatch) else 1
    return True


def _by_queue(units: Sequence[AnyUnit]) -> dict[tuple[str, int], list[AnyUnit]]:
    """Each queue's, in order; neighbours are mostly of one."""
    grouped: dict[tuple[str, int], list[AnyUnit]] = {}
    topic, queue_id = "", -1
    group: list[AnyUnit] = []
    for unit in units:
        if unit.queue_id != queue_id or unit.topic != topic:
            topic, queue_id = unit.topic, unit.queue_id
            group = grouped.setdefault((topic, queue_id), [])
        group.append(unit)
    return grouped


def _units_of(appended: AppendUnit) -> bytes:
    if not isinstance(appended, AppendedBatch):
        return UNIT.pack(appended.commit_log_offset_bytes, appended.message_size_bytes, appended.tags_code)
    fields = [0, 0, 0] * len(appended)
    fields[0::3], fields[1::3], fields[2::3] = appended.positions, appended.sizes, appended.tags_codes
    return rows_struct("qiq", len(appended)).pack(*fields)


class ConsumeQueueTable:
    """All queues. The map is of (topic, queueId).

    Args:
        ext: whether and where tags codes and bit maps have files of their own; None reads and writes none.
        fills_gaps: whether messages that a damaged log lost leave fillers in their queues, so that those behind them keep
            their offsets. RocketMQ puts them at the end as it is.
    """

    def __init__(
        self, disk: Disk, root: Path, file_bytes: int, ext: ExtFiles | None = None, *, fills_gaps: bool = True
    ) -> None:
        self._disk = disk
        self.root = root
        self._fills_gaps = fills_gaps
        self._file_bytes = -(-file_bytes // UNIT_BYTES) * UNIT_BYTES
        self._ext = ext
        self._writes_ext = ext is not None and ext.writes
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.gone_below_bytes = 0
        """Where the log began when the store was opened."""
        self.last_store_timestamp_ms = 0
        """Store time of the newest unit put."""

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """An existing queue, or None: asking never makes one."""
        return self.queues.get((topic, queue_id))

    def put(self, batch: RecordBatch) -> None:
        """Describe visible records in their queues; what a queue already has is ignored. One write per queue touched.

        Each form of a batch gives the same bytes. Columns and units are taken for the plain case only, units that go on where
        a queue ends; the rest is put as requests, and so is everything where ext files are written.

        Raises:
            StoreFullError: no room for the next queue file.
        """
        # Prepared is 01 and rollback 11 in the two transaction bits, so the lower bit alone tells what stays invisible.
        if batch.has_columns and not self._writes_ext:
            self._put_columns(batch.columns())
        elif batch.has_requests or self._writes_ext:
            requests = [one for one in batch.requests() if is_queued(one.sys_flag)]
            if requests:
                self._put_requests(requests)
        else:
            units = [unit for unit in batch.units() if is_queued(unit.sys_flag)]
            if units:
                self._put_units(units)

    def _put_requests(self, requests: Sequence[DispatchRequest]) -> None:
        queues = self.queues
        for key, group in _by_queue(requests).items():
            queue = queues.get(key)
            if queue is None:
                queue = queues[key] = self._new_queue(*key)
            seen = queue.max_physical_offset_bytes
            if group[0].commit_log_offset_bytes + group[0].message_size_bytes <= seen:
                group = [r for r in group if r.commit_log_offset_bytes + r.message_size_bytes > seen]
                if not group:
                    continue
            next_offset = queue.max_queue_offset
            if self._fills_gaps and [*map(_QUEUE_OFFSET, group)] != [*range(next_offset, next_offset + len(group))]:
                self._put_with_gaps(queue, group)
            else:
                self._put_plain(queue, group)
        self.last_store_timestamp_ms = requests[-1].store_timestamp_ms

    def _put_units(self, units: Sequence[AppendUnit]) -> None:
        for key, group in _by_queue(units).items():
            queue = self.queues.get(key)
            if queue is not None and _goes_on(queue, group):
                last = group[-1]
                end = last.commit_log_offset_bytes + last.message_size_bytes
                queue.put([*map(_units_of, group)], group[0].queue_offset, end)
            else:
                self._put_requests(requests_of(group))
        self.last_store_timestamp_ms = units[-1].store_timestamp_ms

    def _put_columns(self, columns: RecordColumns) -> None:
        rows = queue_units.visible_rows(columns)
        if not len(rows):
            return
        for (topic, queue_id), group in queue_units.by_queue(columns, rows):
            queue = self.queues.get((topic, queue_id))
            if queue is not None:
                new = queue_units.behind(columns, group, queue.max_physical_offset_bytes)
                if not len(new):
                    continue
                first = queue_units.first_of_run(columns, new)
                if first == queue.max_queue_offset or not self._fills_gaps:
                    last_end = int(columns.physical[new[-1]] + columns.size[new[-1]])
                    queue.put([queue_units.units(columns, new)], int(columns.queue_offset[new[0]]), last_end)
                    continue
            self._put_requests(columns.requests(group))
        self.last_store_timestamp_ms = int(columns.store_timestamp_ms[rows[-1]])

    def _put_with_gaps(self, queue: ConsumeQueue, group: Sequence[DispatchRequest]) -> None:
        """Fills a gap before a unit where as many records may have lain in the log between it and the one before it."""
        begin = 0
        known = queue.max_physical_offset_bytes
        if group[0].queue_offset < queue.max_queue_offset:
            unit = queue.unit(group[0].queue_offset)
            if known < 0:
                queue.files.destroy()  # its first files were lost, and with them its beginning
            elif known <= self.gone_below_bytes and unit is not None and unit[0] < self.gone_below_bytes:
                queue.cut(group[0].queue_offset)  # half a unit, that seemed to speak of a message that is deleted
                known = queue.max_physical_offset_bytes
        expected = queue.max_queue_offset if queue.files.files else group[0].queue_offset
        for at, request in enumerate(group):
            gap = request.queue_offset - expected
            if 0 < gap <= (request.commit_log_offset_bytes - max(known, 0)) // RECORD_MIN_BYTES:
                self._put_plain(queue, group[begin:at])
                queue.put([_FILLER] * gap, expected, queue.max_physical_offset_bytes)
                begin = at
                expected += gap
            expected += 1
            known = request.commit_log_offset_bytes + request.message_size_bytes
        self._put_plain(queue, group[begin:])

    def _put_plain(self, queue: ConsumeQueue, group: Sequence[DispatchRequest]) -> None:
        if not group:
            return
        if self._writes_ext:
            self._put_with_ext(queue, group)
            return
        pack = UNIT.pack
        last = group[-1]
        queue.put(
            [pack(r.commit_log_offset_bytes, r.message_size_bytes, r.tags_code) for r in group],
            group[0].queue_offset,
            last.commit_log_offset_bytes + last.message_size_bytes,
        )

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = ConsumeQueue(self._disk, self.root, topic, queue_id, self._file_bytes)
        if self._writes_ext:
            self._load_ext(queue)
            queue.end_ext()  # whatever is found there belongs to a queue that is gone
        return queue

    def _load_ext(self, queue: ConsumeQueue, *, crashed: bool = False) -> None:
        """Ext files are read wherever there are any, and made only where units are written."""
        files = self._ext
        if files is None or not (
            files.writes or self._disk.exists(queue_folder(files.root, queue.topic, queue.queue_id))
        ):
            return
        queue.ext = ConsumeQueueExt(self._disk, files.root, queue.topic, queue.queue_id, files.file_bytes)
        queue.ext.load(crashed=crashed)

    @staticmethod
    def _put_with_ext(queue: ConsumeQueue, group: Sequence[DispatchRequest]) -> None:
        """Units of both kinds, or of neither: what failed here comes again, and must find the same place."""
        last = group[-1]
        assert queue.ext is not None
        try:
            queue.put(
                [
                    UNIT.pack(request.commit_log_offset_bytes, request.message_size_bytes, code)
                    for request, code in zip(group, queue.ext.put(group), strict=True)
                ],
                group[0].queue_offset,
                last.commit_log_offset_bytes + last.message_size_bytes,
            )
        except StoreError:
            queue.end_ext()
            raise

    def load(self, *, crashed: bool = False) -> None:
        """Maps the queues found on disk, also those of topics that no configuration names.

        ``crashed``: names that a crash may have left in memory only are forced to the disk first.
        """
        topic_paths = self._disk.list_folders(self.root)
        for folder in (self.root, *topic_paths) if crashed and topic_paths else ():
            self._disk.sync_folder(folder)
        for topic_path in topic_paths:
            for queue_path in self._disk.list_folders(topic_path):
                if queue_path.name.isdigit():
                    queue = ConsumeQueue(self._disk, self.root, topic_path.name, int(queue_path.name), self._file_bytes)
                    queue.load(crashed=crashed)
                    self._load_ext(queue, crashed=crashed)
                    self.queues[(topic_path.name, int(queue_path.name))] = queue

    def recover(self) -> int:
        """Recovers every queue; returns the largest physical end that any of them describes, -1 without any."""
        for queue in self.queues.values():
            queue.recover()
            queue.end_ext()
        return self.max_physical_offset_bytes

    @property
    def max_physical_offset_bytes(self) -> int:
        return max((queue.max_physical_offset_bytes for queue in self.queues.values()), default=-1)

    def truncate_physical(self, end_offset_bytes: int) -> None:
        for queue in self.queues.values():
            if queue.max_physical_offset_bytes > end_offset_bytes:
                queue.truncate_physical(end_offset_bytes)
                queue.end_ext()

    def described_below(self, end_offset_bytes: int) -> int:
        """Return the largest physical end at or below a position that any queue describes; -1 without any."""
        return max((queue.described_below(end_offset_bytes) for queue in self.queues.values()), default=-1)

    def count_between(self, begin_offset_bytes: int, end_offset_bytes: int) -> int:
        """How many units speak of messages between two positions of the log, fillers among them counted too."""
        return sum(
            queue.first_from(lambda physical: physical < end_offset_bytes)
            - queue.first_from(lambda physical: physical < begin_offset_bytes)
            for queue in self.queues.values()
        )

    def correct_min_offsets(self, min_physical_offset_bytes: int) -> None:
        for queue in self.queues.values():
            queue.correct_min_offset(min_physical_offset_bytes)

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """The next logical offset of every queue."""
        return {key: queue.max_queue_offset for key, queue in self.queues.items()}

    def flush(self, least_pages: int) -> None:
        """Syncs queue files with at least so many dirty pages (0: any). Raises OSError; positions of failed files stay."""
        for queue in list(self.queues.values()):
            for file in self._files(queue):
                dirty = file.wrote // OS_PAGE_BYTES - file.flushed // OS_PAGE_BYTES
                if least_pages == 0:
                    due = file.flushed < file.wrote or file.unsynced
                else:
                    due = file.flushed < file.wrote and (dirty >= least_pages or file.wrote == file.size)
                if due:
                    file.flush()

    def files(self) -> Iterator[MappedFile]:
        """Every file of every queue; queues may come and go meanwhile."""
        for queue in list(self.queues.values()):
            yield from self._files(queue)

    @staticmethod
    def _files(queue: ConsumeQueue) -> list[MappedFile]:
        """Ext files first: an address is worth nothing without what it leads to."""
        return [*(queue.ext.files.files if queue.ext is not None else ()), *queue.files.files]

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic's queues, files and all."""
        for key in [key for key in self.queues if key[0] == topic]:
            self.queues.pop(key).destroy()
        self._disk.remove_folder(topic_folder(self.root, topic))

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Deletes one queue, files and all."""
        queue = self.queues.pop((topic, queue_id), None)
        if queue is not None:
            queue.destroy()
            self._disk.remove_folder(topic_folder(self.root, topic))

    def delete_all(self) -> None:
        """Deletes every queue: they are rebuilt from the log, or there is no log."""
        for topic in {key[0] for key in self.queues}:
            self.delete_topic(topic)

    def close(self) -> None:
        for queue in self.queues.values():
            queue.close()

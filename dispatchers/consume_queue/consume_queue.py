"""A consume queue (``ConsumeQueue`` of RocketMQ): the physical offsets of the messages of one queue of a topic.

The unit of queue offset n is at byte ``n * 20``, see :mod:`flintmq.core.record.queue_unit`. Queue files are mapped sparse, and
backed by disk in steps as they grow. For the loop thread only.

See docs/internals/store-format.md, Consume queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from flintmq.core.io.disk import Disk
from flintmq.core.io.paths import queue_folder
from flintmq.core.kernel.ports import MessageFilter
from flintmq.core.log.mapped_file_queue import MappedFile, MappedFileQueue
from flintmq.core.record.log_part import data_in
from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT, UNIT_BYTES, Unit, is_address, is_filler
from flintmq.dispatchers.consume_queue import queue_units
from flintmq.dispatchers.consume_queue.consume_queue_ext import ConsumeQueueExt, ResolvingFilter
from flintmq.dispatchers.consume_queue.queue_units import OFFSET_MAX, nearest_in_time

_SIZE_KEY: Final = "store.consume_queue_file_bytes (mappedFileSizeConsumeQueue)"
_STEP_BYTES: Final = 64 * 1024
_RECOVER_FILES: Final = 3
_FEW_UNITS: Final = 8_192
"""Number of a file's units that a Python loop checks. If the file has more units, numpy, which is faster, checks the others."""
FILLER: Final = UNIT.pack(0, FILLER_SIZE, 0)


class ConsumeQueue:
    """The consume queue of one queue of a topic: units of 20 bytes, in files. For the loop thread only."""

    __slots__ = ("ext", "files", "max_physical_offset_bytes", "min_logic_offset_bytes", "queue_id", "topic")

    def __init__(self, disk: Disk, root: Path, topic: str, queue_id: int, file_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        folder = queue_folder(root, topic, queue_id)
        self.files = MappedFileQueue(disk, folder, file_bytes, step_bytes=_STEP_BYTES, size_key=_SIZE_KEY)
        self.max_physical_offset_bytes = -1
        """Physical end of the newest message in this queue; -1 if the queue has no message."""
        self.min_logic_offset_bytes = 0
        """Byte position, in the queue, of the oldest unit whose message still exists."""
        self.ext: ConsumeQueueExt | None = None
        """The queue's extension files; None if the queue has none. Units of the queue refer to extension units by addresses in
        place of tags codes."""

    @property
    def min_queue_offset(self) -> int:
        return self.min_logic_offset_bytes // UNIT_BYTES

    @property
    def max_queue_offset(self) -> int:
        """The queue offset that the next message will get."""
        return self.files.wrote_offset_bytes // UNIT_BYTES

    # --- writes ---

    def put(self, units: Sequence[bytes], first_queue_offset: int, end_physical_offset_bytes: int) -> None:
        """Append consume queue units. The caller must leave out units that the queue already has.

        Args:
            units: the packed units, in order.
            first_queue_offset: the queue offset of the first unit.
            end_physical_offset_bytes: the physical end of the last unit's message.

        Raises:
            StoreFullError: the disk has no space. Units that fit were added; a retry must begin after them.
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
        """Create the queue's first file, with filler units before the queue offset at which the queue starts.

        A filler unit stands for no message. See docs/internals/store-format.md, Consume queue.
        """
        position = first_queue_offset * UNIT_BYTES
        fill = position % self.files.file_bytes
        file = self.files.roll(position - fill, fill)
        if position:
            file.append(FILLER * (fill // UNIT_BYTES))
            self.min_logic_offset_bytes = position
        return file

    # --- reads ---

    def units(self, queue_offset: int, max_units: int) -> Iterator[Unit]:
        """Yield the units (physical offset, size, tags code) from a queue offset on, at most ``max_units``, from one file.

        At least one unit is yielded if the queue offset is between the queue's minimum and maximum. If a unit has the address
        of an extension unit in place of a tags code, the tags code is read from the extension unit. If the extension unit
        cannot be read, the address is yielded.
        """
        units = UNIT.iter_unpack(self.unit_bytes(queue_offset, max_units))
        return units if self.ext is None else _followed(units, self.ext)

    def unit_bytes(self, queue_offset: int, max_units: int) -> memoryview:
        """Return the bytes of consume queue units from a queue offset on, from one file; empty if the queue does not have this
        offset."""
        position = queue_offset * UNIT_BYTES
        file = self.files.find(position)
        if file is None:
            return memoryview(b"")
        at = position - file.start
        try:
            return file.view[at : max(at, min(file.wrote, at + max_units * UNIT_BYTES))]
        except ValueError:
            # The event loop's thread has deleted the file while the thread that syncs the queues was reading the file.
            return memoryview(b"")

    def resolving(self, message_filter: MessageFilter) -> MessageFilter:
        """Return a message filter that calls ``message_filter`` with tags codes. If a unit has the address of an extension unit
        in place of a tags code, the returned filter reads the tags code from the extension unit."""
        return message_filter if self.ext is None else ResolvingFilter(message_filter, self.ext)

    def unit(self, queue_offset: int) -> Unit | None:
        """Return the unit at a queue offset: the physical offset, size and tags code of a message. Return None if the queue has
        no unit there. If the message's tags code is stored in an extension file (``consumequeue_ext``), the third value is the
        address of the extension unit instead of the tags code."""
        return next(UNIT.iter_unpack(self.unit_bytes(queue_offset, 1)), None)

    def next_file_queue_offset(self, queue_offset: int) -> int:
        """Return the first queue offset of the file that follows the file with ``queue_offset``."""
        per_file = self.files.file_bytes // UNIT_BYTES
        return queue_offset - queue_offset % per_file + per_file

    def queue_offset_by_time(
        self, timestamp_ms: int, min_physical_offset_bytes: int, store_time: Callable[[int], int]
    ) -> int:
        """Return the queue offset of the message stored nearest to a time; see :func:`.queue_units.nearest_in_time`."""
        return nearest_in_time(self, timestamp_ms, min_physical_offset_bytes, store_time)

    def destroy(self) -> None:
        """Delete all files of the consume queue."""
        self.files.destroy()
        if self.ext is not None:
            self.ext.destroy()

    def close(self) -> None:
        self.files.close()
        if self.ext is not None:
            self.ext.close()

    # --- recovery ---

    def load(self, *, crashed: bool = False) -> None:
        self.files.load(crashed=crashed)

    def recover(self) -> None:
        """Set the end of the queue to the first invalid unit, searched from the third-last file on.

        A unit is also invalid if its message lies in the log before the messages of earlier units, because a crash can leave a
        unit that is half written.

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
        """Remove the consume queue units whose messages end after a physical offset.

        Removed units are overwritten with zeros; otherwise a later start could take them for units of other messages. Filler
        units, which stand for no message, are removed too if they directly precede removed units. Filler units at the start of
        the queue stay.

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

    def cut(self, queue_offset: int) -> None:
        """Remove all units of the consume queue from a queue offset on."""
        if queue_offset >= self.max_queue_offset:
            return
        self._cut(queue_offset * UNIT_BYTES)
        while queue_offset and (unit := self.unit(queue_offset - 1)) is not None and is_filler(unit):
            queue_offset -= 1
        unit = self.unit(queue_offset - 1) if queue_offset else None
        self.max_physical_offset_bytes = unit[0] + unit[1] if unit is not None else -1

    def _cut(self, end: int) -> None:
        if end < self.files.wrote_offset_bytes:
            self._zero_behind(end)
            self.files.truncate(end)

    def _zero_behind(self, end: int) -> None:
        """Overwrite the used bytes after a position with zeros, in the consume queue file that contains the position. This file
        becomes the queue's last file."""
        files = self.files.files
        file = self.files.find(end) or files[-1]
        if end == file.start and file is not files[0]:
            # A file that begins at the queue's new end is not overwritten with zeros, because the whole file is deleted later.
            return
        begin = min(end - file.start, file.size)
        used = max((at + len(data) for at, data in data_in(file, begin, file.size)), default=begin)
        if used > begin:
            file.grow(used)
            file.region.write(begin, bytes(used - begin))
            file.unsynced = True

    def correct_min_offset(self, min_physical_offset_bytes: int) -> None:
        """Set the queue's minimum to its first unit whose message is not below a physical offset, the start of the log."""
        for file in self.files.files:
            for index, (physical, _size, _tags) in enumerate(UNIT.iter_unpack(file.view[: file.wrote])):
                unit_is_filler = _size == FILLER_SIZE and not physical
                if physical >= min_physical_offset_bytes and not unit_is_filler:
                    self.min_logic_offset_bytes = file.start + index * UNIT_BYTES
                    return
        self.min_logic_offset_bytes = self.files.wrote_offset_bytes

    def end_ext(self) -> None:
        """Remove the extension units after the last extension unit to which a unit of the queue refers.

        Called after a recovery, after units of the queue were removed, and after an error while units were added.
        """
        if self.ext is not None:
            self.ext.end_after(self._last_address())

    def _last_address(self) -> int | None:
        for file in reversed(self.files.files):
            for at in range(file.wrote - UNIT_BYTES, -1, -UNIT_BYTES):
                tags_code = UNIT.unpack_from(file.view, at)[2]
                if is_address(tags_code):
                    return int(tags_code)
        return None

    # --- retention ---

    def first_from(self, is_gone: Callable[[int], bool]) -> int:
        """Return the queue offset of the first message that is not deleted from the log; if there is none, the queue's maximum.

        The search is binary. ``is_gone`` returns whether the message at a physical offset is deleted. All deleted messages must
        lie before all messages that are not deleted.
        """
        low, high = self.min_queue_offset, self.max_queue_offset
        while low < high:
            middle = (low + high) // 2
            at = self.behind_fillers(middle, high)
            unit = self.unit(at) if at < high else None
            if at == high and at > middle:
                # All units from ``middle`` to ``high`` are filler units, so the search continues before ``middle``.
                high = middle
            elif unit is None or is_gone(unit[0]):
                low = at + 1
            else:
                high = middle
        return self.behind_fillers(low, self.max_queue_offset)

    def behind_fillers(self, queue_offset: int, limit: int) -> int:
        """Return the first queue offset, from ``queue_offset`` on, whose unit is not a filler unit. A filler unit stands for no
        message. Return ``limit`` if all units before ``limit`` are filler units."""
        while queue_offset < limit and (unit := self.unit(queue_offset)) is not None and is_filler(unit):
            queue_offset += 1
        return queue_offset

    def expire(self, is_gone: Callable[[int], bool]) -> bool:
        """Move the queue's minimum past the messages that are deleted from the log, and delete the queue files before the
        minimum.

        Returns whether all these files were deleted. A file that is not yet synced is deleted by a later call. Raises OSError.
        """
        self.min_logic_offset_bytes = max(self.min_logic_offset_bytes, self.first_from(is_gone) * UNIT_BYTES)
        self.files.delete_before(self.min_logic_offset_bytes)
        if self.ext is not None:
            unit = self.unit(self.min_queue_offset)
            if unit is not None and is_address(unit[2]):
                self.ext.delete_before(unit[2])
        files = self.files.files
        return len(files) < 2 or files[1].start > self.min_logic_offset_bytes


def _followed(units: Iterator[Unit], ext: ConsumeQueueExt) -> Iterator[Unit]:
    for physical, size, tags_code in units:
        found = ext.get(tags_code) if is_address(tags_code) else None
        yield physical, size, tags_code if found is None else found.tags_code


def _valid_units(units: memoryview, known: int) -> tuple[int, int]:
    """Return the number of valid consume queue units before the first invalid unit, and the physical end of the newest message
    of these units.

    Args:
        units: the bytes of units from a file.
        known: the physical end of the newest message before these units.
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

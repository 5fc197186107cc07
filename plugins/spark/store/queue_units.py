"""Reads consume queues, to find a queue's messages and to find where records begin in the log.

A unit is ``physicalOffset 8 | size 4 | tagsCode 8``. Files have their full size from the start; unused units are zero. Units
without a message (fillers) have position 0 and the largest size.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from flintmq.core.errors import StoreError, reading
from flintmq.core.record.queue_unit import FILLER_SIZE, MAX_ADDRESS, UNIT, UNIT_BYTES
from flintmq.plugins.spark.decoder.rows import RowFilter
from flintmq.plugins.spark.store.log_files import Bytes, LogFile, list_files, map_file

Ints = npt.NDArray[np.int64]
STEP_UNITS: Final = 262_144
"""Number of consume queue units that :func:`merged` reads from all queues together before it yields the merged units."""
_LEAST_STEP_UNITS: Final = 1_024
"""Minimum number of consume queue units that :func:`merged` reads from each queue before it yields the merged units."""
_ON_DISK: Final = np.dtype([("position", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
_QUEUE_NAME: Final = re.compile(r"0|[1-9][0-9]{0,9}")


@attrs.frozen
class Units:
    """Consume queue units of messages, in the order of the queue or of the log. Fillers (units without a message) are left
    out."""

    position: Ints
    size: Ints
    queue_offset: Ints

    def __len__(self) -> int:
        return len(self.position)

    def chosen(self, which: Any) -> Units:
        """Return the consume queue units that a mask, a slice or indices select."""
        return Units(self.position[which], self.size[which], self.queue_offset[which])

    @classmethod
    def joined(cls, several: Sequence[Units]) -> Units:
        several = [units for units in several if len(units)] or [_NONE]
        if len(several) == 1:
            return several[0]
        return cls(
            np.concatenate([units.position for units in several]),
            np.concatenate([units.size for units in several]),
            np.concatenate([units.queue_offset for units in several]),
        )


_NONE: Final = Units(*[np.empty(0, np.int64)] * 3)


def in_log_order(several: Sequence[Units]) -> Units:
    """Merge the units of several consume queues into the order of the log. If several units have the same position in the log,
    only the first of these units is kept."""
    units = Units.joined(several)
    return units if len(several) == 1 else units.chosen(np.unique(units.position, return_index=True)[1])


class QueueUnits:
    """The units in the current files of one consume queue."""

    def __init__(self, topic: str, queue_id: int, folder: Path) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = list_files(folder)
        self._used: int | None = None
        self._maps: dict[str, Bytes] = {}

    def _map(self, file: LogFile) -> Bytes:
        data = self._maps.get(file.path)
        if data is None:
            data = map_file(file.path)
            if data is None:
                raise StoreError(f"{file.path}: was deleted while it was read")
            self._maps[file.path] = data
        return data

    @property
    def end_unit(self) -> int:
        """The queue offset just past the consume queue's last unit. The first access searches the files for this offset."""
        if self._used is None:
            self._used = next((self._end(file) for file in reversed(self.files) if self._end(file)), 0)
        return self._used

    @property
    def first_unit(self) -> int:
        """The queue offset of the first unit in the consume queue's oldest file."""
        return self.files[0].start // UNIT_BYTES if self.files else 0

    def _end(self, file: LogFile) -> int:
        """Return the queue offset just past the last used unit of a consume queue file; 0 if no unit is used. Used units come
        before unused units, so a binary search finds the offset."""
        data = self._map(file).data
        units = range(file.size // UNIT_BYTES)
        used = bisect_left(units, True, key=lambda unit: UNIT.unpack_from(data, unit * UNIT_BYTES)[1] <= 0)
        return file.start // UNIT_BYTES + used if used else 0

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return position, size and tags code in the consume queue unit with a queue offset; None if the unit does not
        exist."""
        at = queue_offset * UNIT_BYTES
        for file in reversed(self.files):
            if file.start <= at:
                if at + UNIT_BYTES > file.end or queue_offset >= self.end_unit:
                    return None
                position, size, tags = UNIT.unpack_from(self._map(file).data, at - file.start)
                return int(position), int(size), int(tags)
        return None

    def behind_fillers(self, queue_offset: int, limit: int) -> int:
        """Return the first queue offset in [queue_offset, limit) that has a message; ``limit`` if no queue offset in this range
        has a message."""
        return self._real_from(queue_offset, limit)[0]

    def _real_from(self, queue_offset: int, limit: int) -> tuple[int, tuple[int, int, int] | None]:
        """Return the first queue offset in [queue_offset, limit) whose unit is not a filler unit, and this unit. A filler unit
        stands for no message.

        If a queue offset has no unit, the search ends there and returns this queue offset and None. If all units in the range
        are filler units, the result is ``limit`` and None.
        """
        while queue_offset < limit:
            unit = self.unit(queue_offset)
            if unit is None or not (unit[0] == 0 and unit[1] == FILLER_SIZE):
                return queue_offset, unit
            queue_offset += 1
        return queue_offset, None

    def first_at(self, position: int) -> int:
        """Return the first queue offset whose message lies at or after a position of the log; the queue's end if the queue has
        no such message."""
        return self.first_where(lambda unit_position: unit_position >= position)

    def first_where(self, is_behind: Callable[[int], bool]) -> int:
        """Return the first queue offset whose message has a position in the log that fulfills a condition.

        The condition must be false up to some position, and true for all larger positions.
        """
        low, high = self.first_unit, self.end_unit
        while low < high:
            middle = (low + high) // 2
            at, unit = self._real_from(middle, high)
            if unit is None or is_behind(unit[0]):
                high = middle
            else:
                low = at + 1
        return self.behind_fillers(low, self.end_unit)

    def may_have_had(self, start: int, end: int) -> bool:
        """Return whether the queue may have had messages in the range [start, end) of the log. Messages whose units were
        deleted also count."""
        first = self.first_at(start)
        if first < self.first_at(end):
            return True
        oldest = self.behind_fillers(self.first_unit, self.end_unit)
        return first <= oldest and oldest > 0

    def range(self, first: int, end: int, tags_codes: Ints | None = None) -> Units:
        """Return the units of the queue's messages with queue offsets in [first, end). If tags codes are given, messages that
        certainly have other tags are left out."""
        found = []
        for file in self.files:
            low = max(first * UNIT_BYTES, file.start)
            high = min(end * UNIT_BYTES, file.end)
            if low < high:
                raw = self._map(file)[low - file.start : high - file.start].copy().view(_ON_DISK)
                queue_offset = np.arange(low // UNIT_BYTES, high // UNIT_BYTES, dtype=np.int64)
                units = Units(raw["position"].astype(np.int64), raw["size"].astype(np.int64), queue_offset)
                wanted = (units.size > 0) & (units.size != FILLER_SIZE)
                if tags_codes is not None:
                    # A tags code up to MAX_ADDRESS may be the address of a consume queue extension entry with the tag's hash.
                    # Units that may refer to an extension entry are kept, because their tags are unknown without the entry.
                    wanted &= np.isin(raw["tags_code"], tags_codes) | (raw["tags_code"] <= MAX_ADDRESS)
                found.append(units if wanted.all() else units.chosen(wanted))
        return Units.joined(found)

    def within(self, start: int, end: int, tags_codes: Ints | None = None) -> Units:
        """Return the units of the queue's messages in the range [start, end) of the log; see :meth:`range`."""
        return self.range(self.first_at(start), self.first_at(end), tags_codes)


@attrs.frozen
class Step:
    """Some consecutive messages of several queues, as consume queue units in the order of the log."""

    units: Units
    queue: npt.NDArray[np.intp]
    """For each consume queue unit in :attr:`units`, the index of the unit's queue."""
    tips: npt.NDArray[np.intp]
    """Indices, in :attr:`units`, of the first and the last consume queue unit of each queue."""

    def __len__(self) -> int:
        return len(self.units)

    def chosen(self, which: npt.NDArray[np.bool_] | slice) -> Step:
        return Step(self.units.chosen(which), self.queue[which], self.tips[:0])


@attrs.define
class _Cursor:
    """The read position in one consume queue, and the units that were read in advance."""

    queue: QueueUnits
    at: int
    """Queue offset of the next unit to read from the queue."""
    end: int
    units: Units = _NONE

    def fill(self, count: int) -> None:
        """Read more units of the consume queue, until ``count`` units are buffered."""
        while len(self.units) < count and self.at < self.end:
            until = min(self.end, self.at + count - len(self.units))
            self.units = Units.joined([self.units, self.queue.range(self.at, until)])
            self.at = until

    def taken(self, last: int) -> Units:
        """Remove the buffered units of the consume queue up to a position of the log, and return these units."""
        count = int(np.searchsorted(self.units.position, last, side="right"))
        units, self.units = self.units.chosen(slice(count)), self.units.chosen(slice(count, None))
        return units


def merged(queues: Sequence[QueueUnits], start: int, end: int, step_units: int | None = None) -> Iterator[Step]:
    """Merge the units of several consume queues, and yield the units of the messages in the range [start, end) of the log, in
    the log's order.

    Each yielded step has about ``step_units`` units, by default :data:`STEP_UNITS`.
    """
    cursors = [_Cursor(queue, queue.first_at(start), queue.first_at(end)) for queue in queues]
    numbers = [number for number, cursor in enumerate(cursors) if cursor.at < cursor.end]
    count = max(_LEAST_STEP_UNITS, (step_units or STEP_UNITS) // max(1, len(numbers)))
    while True:
        for number in numbers:
            cursors[number].fill(count)
        numbers = [number for number in numbers if len(cursors[number].units)]
        if not numbers:
            return
        open_ends = [cursor for number in numbers if (cursor := cursors[number]).at < cursor.end]
        # ``last`` is the greatest position up to which the units of every queue are in memory.
        last = min((int(cursor.units.position[-1]) for cursor in open_ends), default=end - 1)
        yield _step([cursors[number].taken(last) for number in numbers], np.asarray(numbers, np.intp))


def _step(taken: list[Units], numbers: npt.NDArray[np.intp]) -> Step:
    counts = np.array([len(units) for units in taken])
    units = Units.joined(taken)
    # A stable sort merges the sorted positions of the queues three times as fast as the default sort.
    order = np.argsort(units.position, kind="stable")
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    ends = np.cumsum(counts)
    tips = np.unique(place[np.concatenate([(ends - counts)[counts > 0], ends[counts > 0] - 1])])
    return Step(units.chosen(order), np.repeat(numbers, counts)[order], tips)


def list_queues(root: Path, rows: RowFilter | None = None) -> Iterator[QueueUnits]:
    """Yield the consume queues of a store. If ``rows`` is given, only queues are yielded whose messages can become rows, and
    folders of other topics are not opened.

    Raises:
        StoreError: a folder cannot be read.
    """
    for topic in list_topics(root):
        if rows is not None and not rows.wants(topic):
            continue
        folder = root / "consumequeue" / topic
        names: list[str] = []
        with reading(folder), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            names += [path.name for path in folder.iterdir() if _QUEUE_NAME.fullmatch(path.name)]
        for name in sorted(names, key=int):
            if rows is None or rows.wants_queue(topic, int(name)):
                yield QueueUnits(topic, int(name), folder / name)


def list_topics(root: Path) -> list[str]:
    """Return the topics of a store that have consume queues, sorted."""
    folder = root / "consumequeue"
    with reading(folder), contextlib.suppress(FileNotFoundError):
        return sorted(path.name for path in folder.iterdir())
    return []

"""Consume queues, read for two purposes: which records are a queue's, and where records begin at all.

A unit is ``physicalOffset 8 | size 4 | tagsCode 8``. Files are as long as they will ever be; what is not used yet is zero, and
units of messages that are not there (fillers) have position 0 and the largest size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from flintmq.core.errors import StoreError
from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT, UNIT_BYTES
from flintmq.plugins.spark.store.log_files import Bytes, LogFile, list_files, map_file

Ints = npt.NDArray[np.int64]

_UNIT: Final = np.dtype([("position", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
_QUEUE_NAME: Final = re.compile(r"0|[1-9][0-9]{0,9}")


@attrs.frozen
class Units:
    """Units of messages, in the order of their queue or of the log; native numbers, fillers left out."""

    position: Ints
    size: Ints
    tags_code: Ints

    def __len__(self) -> int:
        return len(self.position)

    @classmethod
    def none(cls) -> Units:
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty)

    @classmethod
    def merged(cls, several: list[Units]) -> Units:
        """All of them in the order of the log; a place that comes twice counts once."""
        several = [units for units in several if len(units)]
        if len(several) == 1:
            return several[0]
        if not several:
            return cls.none()
        position = np.concatenate([units.position for units in several])
        place, index = np.unique(position, return_index=True)
        size = np.concatenate([units.size for units in several])[index]
        return cls(place, size, np.concatenate([units.tags_code for units in several])[index])

    def chosen(self, mask: Any) -> Units:
        return Units(self.position[mask], self.size[mask], self.tags_code[mask])


class QueueUnits:
    """One queue's units, as its files hold them now."""

    def __init__(self, topic: str, queue_id: int, folder: Path) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = list_files(folder)
        self._used: int | None = None
        self._maps: dict[str, Bytes] = {}

    def _map(self, file: LogFile) -> Bytes:
        data = self._maps.get(file.path)
        if data is None:
            data = self._maps[file.path] = map_file(file.path)
        return data

    @property
    def end_unit(self) -> int:
        """The queue offset behind the last unit; searched once."""
        if self._used is None:
            self._used = next((self._end(file) for file in reversed(self.files) if self._end(file)), 0)
        return self._used

    @property
    def first_unit(self) -> int:
        """The queue offset with which the oldest file begins."""
        return self.files[0].start // UNIT_BYTES if self.files else 0

    def _end(self, file: LogFile) -> int:
        """The queue offset behind a file's last used unit; 0 when none is used. Used ones come first: binary search."""
        data = self._map(file)
        low, high = 0, file.size // UNIT_BYTES
        while low < high:
            middle = (low + high) // 2
            _position, size, _tags = UNIT.unpack_from(data.data, middle * UNIT_BYTES)
            if size > 0:
                low = middle + 1
            else:
                high = middle
        return file.start // UNIT_BYTES + low if low else 0

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return position, size and tags code; None when the unit does not exist."""
        at = queue_offset * UNIT_BYTES
        for file in reversed(self.files):
            if file.start <= at:
                if at + UNIT_BYTES > file.end or queue_offset >= self.end_unit:
                    return None
                position, size, tags = UNIT.unpack_from(self._map(file).data, at - file.start)
                return int(position), int(size), int(tags)
        return None

    def behind_fillers(self, queue_offset: int, limit: int) -> int:
        """The first queue offset from one on that has a message; the limit when there is none."""
        return self._real_from(queue_offset, limit)[0]

    def _real_from(self, queue_offset: int, limit: int) -> tuple[int, tuple[int, int, int] | None]:
        """Return the first queue offset that has a message, and its unit; None for a unit that is missing."""
        while queue_offset < limit:
            unit = self.unit(queue_offset)
            if unit is None or not (unit[0] == 0 and unit[1] == FILLER_SIZE):
                return queue_offset, unit
            queue_offset += 1
        return queue_offset, None

    def first_at(self, position: int) -> int:
        """The first queue offset whose message lies at a position of the log or behind; the end when there is none."""
        return self.first_where(lambda unit_position: unit_position >= position)

    def first_where(self, is_behind: Callable[[int], bool]) -> int:
        """The first queue offset whose message's position is behind something; never says no behind a yes."""
        low, high = self.first_unit, self.end_unit
        while low < high:
            middle = (low + high) // 2
            at, unit = self._real_from(middle, high)
            if unit is None or is_behind(unit[0]):
                high = middle
            else:
                low = at + 1
        return self.behind_fillers(low, self.end_unit)

    def range(self, first: int, end: int) -> Units:
        """The messages of queue offsets [first, end)."""
        return self.numbered(first, end)[1]

    def numbered(self, first: int, end: int) -> tuple[Ints, Units]:
        """The messages of queue offsets [first, end), and their queue offsets."""
        parts = []
        numbers = []
        for file in self.files:
            low = max(first * UNIT_BYTES, file.start)
            high = min(end * UNIT_BYTES, file.end)
            if low < high:
                data = self._map(file)
                parts.append(data[low - file.start : high - file.start].tobytes())
                numbers.append(np.arange(low // UNIT_BYTES, high // UNIT_BYTES, dtype=np.int64))
        raw = np.frombuffer(b"".join(parts), _UNIT)
        units = Units(raw["position"].astype(np.int64), raw["size"].astype(np.int64), raw["tags_code"].astype(np.int64))
        queue_offsets = np.concatenate(numbers) if numbers else np.empty(0, np.int64)
        real = (units.size > 0) & (units.size != FILLER_SIZE)
        return (queue_offsets, units) if real.all() else (queue_offsets[real], units.chosen(real))

    def within(self, start: int, end: int) -> Units:
        """The messages in [start, end) of the log."""
        return self.range(self.first_at(start), self.first_at(end))


def list_queues(root: Path, wants: Callable[[str, int], bool] | None = None) -> Iterator[QueueUnits]:
    """The queues of a store, of all topics or of those that are wanted.

    Raises:
        StoreError: a folder cannot be read.
    """
    for topic in list_topics(root):
        folder = root / "consumequeue" / topic
        try:
            names = [path.name for path in folder.iterdir() if _QUEUE_NAME.fullmatch(path.name)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise StoreError(f"{folder}: cannot be read: {error.strerror or error}") from error
        for name in sorted(names, key=int):
            if wants is None or wants(topic, int(name)):
                yield QueueUnits(topic, int(name), folder / name)


def list_topics(root: Path) -> list[str]:
    """The topics that have consume queues."""
    folder = root / "consumequeue"
    try:
        return sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{folder}: cannot be read: {error.strerror or error}") from error

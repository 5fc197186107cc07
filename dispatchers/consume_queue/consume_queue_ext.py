"""ConsumeQueueExt: more about a message than a consume queue unit has room for.

A unit is ``size 2 | tagsCode 8 | msgStoreTime 8 | bitMapSize 2 | bitmap``. Its place is kept in the consume queue instead of
the tags code, as an *address*: the position in this stream plus the least long, which no hash of a tag and no time ever is.
The last four bytes of a file hold no unit; where the next one does not fit, ``-1`` as a size ends the file.

Nothing is lost with these files: a unit that cannot be read lets its message pass, and the client filters. But a position
is never used twice while an address of it stands in the queue, or a message would be filtered by another one's tag. So the
queue says where this stream ends (:meth:`ConsumeQueueExt.end_after`), and whatever lies behind is zeroed. Loop thread.

See docs/internals/store-format.md, Consume queue extension.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from flintmq.core.io.disk import Disk
from flintmq.core.io.paths import queue_folder, topic_folder
from flintmq.core.kernel.ports import BitMapFilter, DispatchRequest, MessageFilter
from flintmq.core.log.mapped_file_queue import MappedFile, MappedFileQueue
from flintmq.core.record.queue_unit import MAX_ADDRESS, is_address

_HEAD: Final = struct.Struct(">hqqh")
_SIZE: Final = struct.Struct(">h")
_LEAST_LONG: Final = -(2**63)
_MAX_OFFSET_BYTES: Final = MAX_ADDRESS - _LEAST_LONG
_MAX_UNIT_BYTES: Final = 32_767
_END_BYTES: Final = 4
_FULL: Final = _SIZE.pack(-1)
_SIZE_KEY: Final = "store.consume_queue_ext_file_bytes (mappedFileSizeConsumeQueueExt)"
_STEP_BYTES: Final = 64 * 1024
FOLDER: Final = "consumequeue_ext"


class ExtUnit(msgspec.Struct, frozen=True, gc=False):
    """What one unit holds."""

    tags_code: int
    """What a queue without such files has in its own unit."""
    store_timestamp_ms: int
    bit_map: bytes | None
    """Which groups' filters the message fits; None when that was not computed."""


class ExtFiles(msgspec.Struct, frozen=True):
    """Where such files are, and whether new units are written."""

    root: Path
    """``consumequeue_ext`` in the store."""
    file_bytes: int
    writes: bool
    """False reads what is there."""


class ConsumeQueueExt:
    """The units of one queue."""

    def __init__(self, disk: Disk, root: Path, topic: str, queue_id: int, file_bytes: int) -> None:
        self._disk = disk
        self._topic_folder = topic_folder(root, topic)
        folder = queue_folder(root, topic, queue_id)
        self.files = MappedFileQueue(disk, folder, file_bytes, step_bytes=_STEP_BYTES, size_key=_SIZE_KEY)
        self._begin = 0
        """Where the next file starts while there is none."""

    def load(self, *, crashed: bool = False) -> None:
        """Map the files; :meth:`end_after` must follow. Raises StoreFormatError."""
        self.files.load(crashed=crashed)

    # write

    def put(self, requests: Sequence[DispatchRequest]) -> list[int]:
        """Append units. Return the values for their queue units: addresses, or the tags code where no room is left.

        Raises:
            StoreFullError: no room on the disk. Units may have been appended: :meth:`end_after` takes them back.
        """
        codes: list[int] = []
        waiting: list[bytes] = []
        file = self.files.last()
        at = file.wrote if file is not None else 0
        limit_bytes = self.files.file_bytes - _END_BYTES
        for request in requests:
            bit_map = request.bit_map or b""
            size = _HEAD.size + len(bit_map)
            if size > _MAX_UNIT_BYTES or size > limit_bytes:
                codes.append(request.tags_code)
                continue
            if file is None or at + size > limit_bytes:
                self._append(file, waiting, full=True)
                waiting = []
                file = self._next_file(file)
                at = 0
            if file.start + at + size > _MAX_OFFSET_BYTES:
                codes.append(request.tags_code)
                continue
            waiting.append(_HEAD.pack(size, request.tags_code, request.store_timestamp_ms, len(bit_map)) + bit_map)
            codes.append(file.start + at + _LEAST_LONG)
            at += size
        self._append(file, waiting, full=False)
        return codes

    def _next_file(self, file: MappedFile | None) -> MappedFile:
        return self.files.roll(self._begin if file is None else file.start + file.size)

    @staticmethod
    def _append(file: MappedFile | None, units: list[bytes], *, full: bool) -> None:
        """Write units into a file, and with ``full`` the mark that ends it."""
        if file is None or file.wrote == file.size:
            return
        data = b"".join(units)
        file.grow(file.wrote + len(data) + (len(_FULL) if full else 0))
        if data:
            file.append(data)
        if full:
            file.region.write(file.wrote, _FULL)
            file.wrote = file.size

    # read

    def get(self, address: int) -> ExtUnit | None:
        """Return the unit at an address; None where none can be read."""
        position = address - _LEAST_LONG
        file = self.files.find(position)
        if file is None or not is_address(address):
            return None
        at = position - file.start
        if at + _HEAD.size > file.wrote:
            return None
        size, tags_code, store_timestamp_ms, bit_map_bytes = _HEAD.unpack_from(file.view, at)
        if size < _HEAD.size or at + size > file.size or bit_map_bytes > size - _HEAD.size:
            return None
        bit_map = bytes(file.view[at + _HEAD.size : at + _HEAD.size + bit_map_bytes]) if bit_map_bytes > 0 else None
        return ExtUnit(tags_code, store_timestamp_ms, bit_map)

    # recovery and deletion

    def end_after(self, address: int | None) -> None:
        """End the stream behind the last unit that its queue knows; None when the queue knows of none.

        Where that unit cannot be read the rest of its file is given up, because its end is unknown.
        """
        if address is None:
            if not self.files.files:
                return
            end = self.files.min_offset_bytes
        else:
            position = address - _LEAST_LONG
            end = position + self._unit_bytes(position)
        last = self.files.last()
        if last is None or end > last.start + last.size:
            # Units before it were lost, and with them their file: no address may meet a later unit.
            self.destroy()
            self._begin = -(-end // self.files.file_bytes) * self.files.file_bytes
            return
        self._zero_from(end)
        self.files.truncate(end)

    def _unit_bytes(self, position: int) -> int:
        """Return the size of the unit at a position; where there is none, the rest of its file."""
        file = self.files.find(position)
        if file is not None:
            at = position - file.start
            size = int(_SIZE.unpack_from(file.view, at)[0]) if at + _SIZE.size <= file.size else 0
            if size >= _HEAD.size and at + size <= file.size - _END_BYTES:
                return size
        return self.files.file_bytes - position % self.files.file_bytes

    def _zero_from(self, end: int) -> None:
        """Overwrite what is cut with zeros, which a later start, or RocketMQ's, would take for units; delete the files
        behind."""
        file = self.files.find(end)
        if file is None:
            return
        begin = at = end - file.start
        size = 1
        while size > 0 and at + _SIZE.size <= file.size:
            size = int(_SIZE.unpack_from(file.view, at)[0])
            at += max(size, _SIZE.size if size else 0)
        at = min(at, file.size)
        if at > begin:
            file.grow(at)
            file.region.write(begin, bytes(at - begin))
            file.unsynced = True

    def delete_before(self, address: int) -> None:
        """Delete files that end before a unit. Raises OSError."""
        self.files.delete_before(address - _LEAST_LONG)

    def destroy(self) -> None:
        """Delete every file and the folder."""
        self.files.destroy()
        self._disk.remove_folder(self._topic_folder)

    def close(self) -> None:
        self.files.close()


class ResolvingFilter:
    """A message filter over a queue whose units hold addresses: it is asked about what lies there."""

    __slots__ = ("_ext", "_filter", "_with_bit_map", "matches_properties", "needs_properties")

    def __init__(self, message_filter: MessageFilter, ext: ConsumeQueueExt) -> None:
        self._filter = message_filter
        self._ext = ext
        self._with_bit_map = message_filter if isinstance(message_filter, BitMapFilter) else None
        self.needs_properties = message_filter.needs_properties
        self.matches_properties = message_filter.matches_properties

    def matches_tags_code(self, tags_code: int) -> bool:
        """By the unit at the address; a unit that cannot be read lets its message pass."""
        if tags_code > MAX_ADDRESS:
            return self._filter.matches_tags_code(tags_code)
        unit = self._ext.get(tags_code)
        if unit is None:
            return True
        if self._with_bit_map is not None and unit.bit_map is not None:
            return self._with_bit_map.matches_bit_map(unit.bit_map, unit.store_timestamp_ms)
        return self._filter.matches_tags_code(unit.tags_code)

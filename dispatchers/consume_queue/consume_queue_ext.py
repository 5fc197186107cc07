"""ConsumeQueueExt: extension units with data about messages for which a consume queue unit has no space.

An extension unit is ``size 2 | tagsCode 8 | msgStoreTime 8 | bitMapSize 2 | bitmap``. The consume queue unit has the *address*
of the extension unit in place of the tags code. An address is the position in the stream of extension files plus the smallest
64-bit integer, so that it differs from all hashes of tags and all times. The last four bytes of an extension file contain no
unit. If the next unit does not fit into the file, the size ``-1`` ends the file.

A loss of extension files causes no loss of messages. If an extension unit cannot be read, its message passes the filter, and
the client filters the message. But the position of an extension unit must not be reused while a unit of the consume queue has
its address. Otherwise a message would be filtered by another message's tag. So the consume queue sets the end of the files
(:meth:`ConsumeQueueExt.end_after`), and the bytes after this end are zeroed. For the loop thread only.

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
    """A decoded extension unit of a consume queue."""

    tags_code: int
    """Tags code of the message. In a queue without extension files, the message's unit contains the tags code."""
    store_timestamp_ms: int
    bit_map: bytes | None
    """Bit map of the groups whose filters the message matches; None if the bit map was not computed."""


class ExtFiles(msgspec.Struct, frozen=True):
    """The location of the extension files of consume queues, and whether new extension units are written."""

    root: Path
    """The folder ``consumequeue_ext`` of the store."""
    file_bytes: int
    writes: bool
    """Whether new extension units are written. If False, existing extension units are only read."""


class ConsumeQueueExt:
    """The extension units of one consume queue, in files."""

    def __init__(self, disk: Disk, root: Path, topic: str, queue_id: int, file_bytes: int) -> None:
        self._disk = disk
        self._topic_folder = topic_folder(root, topic)
        folder = queue_folder(root, topic, queue_id)
        self.files = MappedFileQueue(disk, folder, file_bytes, step_bytes=_STEP_BYTES, size_key=_SIZE_KEY)
        self._begin = 0
        """Position at which the first extension file of the queue will begin; used only while the queue has no extension
        file."""

    def load(self, *, crashed: bool = False) -> None:
        """Map the existing extension files. The caller must call :meth:`end_after` afterwards. Raises StoreFormatError."""
        self.files.load(crashed=crashed)

    # --- writes ---

    def put(self, requests: Sequence[DispatchRequest]) -> list[int]:
        """Append an extension unit for each dispatch request. Return, for each request, the value of the field for the tags
        code in its consume queue unit.

        The value is the address of the extension unit. It is the tags code itself if the extension unit is too large or the
        files are full.

        Raises:
            StoreFullError: the disk has no space. Some units may have been appended; :meth:`end_after` removes them.
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
        """Append extension units to a file, and with ``full`` also the mark that ends the file."""
        if file is None or file.wrote == file.size:
            return
        data = b"".join(units)
        file.grow(file.wrote + len(data) + (len(_FULL) if full else 0))
        if data:
            file.append(data)
        if full:
            file.region.write(file.wrote, _FULL)
            file.wrote = file.size

    # --- reads ---

    def get(self, address: int) -> ExtUnit | None:
        """Return the extension unit at an address; None if the unit cannot be read."""
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

    # --- recovery and deletion of extension units ---

    def end_after(self, address: int | None) -> None:
        """Remove the extension units after the extension unit at an address, or all extension units if the address is None.

        If the extension unit at the address cannot be read, the rest of its file stays unused, because the unit's end is not
        known.

        Args:
            address: the last address that a unit of the consume queue has in place of a tags code; None if no unit has an
                address.
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
            # The last unit's file was lost. New units go to a later file, so that no old address refers to a new unit.
            self.destroy()
            self._begin = -(-end // self.files.file_bytes) * self.files.file_bytes
            return
        self._zero_from(end)
        self.files.truncate(end)

    def _unit_bytes(self, position: int) -> int:
        """Return the size of the extension unit at a position of a file; if no unit begins there, the size of the rest of the
        file."""
        file = self.files.find(position)
        if file is not None:
            at = position - file.start
            size = int(_SIZE.unpack_from(file.view, at)[0]) if at + _SIZE.size <= file.size else 0
            if size >= _HEAD.size and at + size <= file.size - _END_BYTES:
                return size
        return self.files.file_bytes - position % self.files.file_bytes

    def _zero_from(self, end: int) -> None:
        """Overwrite removed extension units with zeros, so that neither FlintMQ nor RocketMQ reads these units later. Delete
        the extension files after the file of the first removed unit."""
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
        """Delete the extension files that end before the extension unit at an address. Raises OSError."""
        self.files.delete_before(address - _LEAST_LONG)

    def destroy(self) -> None:
        """Delete all extension files of the queue, and their folder."""
        self.files.destroy()
        self._disk.remove_folder(self._topic_folder)

    def close(self) -> None:
        self.files.close()


class ResolvingFilter:
    """A message filter for a queue whose units may have the address of an extension unit in place of a tags code. It reads the
    tags code at the address, and calls the wrapped filter with it."""

    __slots__ = ("_ext", "_filter", "_with_bit_map", "matches_properties", "needs_properties")

    def __init__(self, message_filter: MessageFilter, ext: ConsumeQueueExt) -> None:
        self._filter = message_filter
        self._ext = ext
        self._with_bit_map = message_filter if isinstance(message_filter, BitMapFilter) else None
        self.needs_properties = message_filter.needs_properties
        self.matches_properties = message_filter.matches_properties

    def matches_tags_code(self, tags_code: int) -> bool:
        """Return whether a message may match the filter, according to the extension unit at an address; True if the extension
        unit cannot be read."""
        if tags_code > MAX_ADDRESS:
            return self._filter.matches_tags_code(tags_code)
        unit = self._ext.get(tags_code)
        if unit is None:
            return True
        if self._with_bit_map is not None and unit.bit_map is not None:
            return self._with_bit_map.matches_bit_map(unit.bit_map, unit.store_timestamp_ms)
        return self._filter.matches_tags_code(unit.tags_code)

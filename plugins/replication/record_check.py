"""Checks what a slave appends to its log: whole records that are valid at their place, and the blank ends of files.

Frames cut records anywhere. Bytes are kept until a record is whole, then it is checked as a recovery would: magic, lengths that
add up, body checksum, its own position, a topic that may become a folder. What passes is appended byte for byte.
"""

from __future__ import annotations

from flintmq.core.errors import ReplicationError
from flintmq.core.limits import HA_RECORD_MAX_BYTES
from flintmq.core.log.log_chunk import LogChunk
from flintmq.core.record.check import RecordCheck
from flintmq.core.record.record import BLANK_MIN_BYTES, MAGIC_BLANK, RECORD_MIN_BYTES, SIZE_AND_MAGIC, RecordError


class RecordChecker:
    """Takes the bytes of a log in order and returns what may be appended.

    Args:
        end_offset_bytes: the end of the slave's log.
        file_bytes: size of one file of it.
    """

    def __init__(self, end_offset_bytes: int, file_bytes: int) -> None:
        self._at = end_offset_bytes
        self._file_bytes = file_bytes
        self._buffer = bytearray()
        self._blank_until = 0
        self._records = RecordCheck()

    @property
    def received_offset_bytes(self) -> int:
        """The position of the next byte that is expected."""
        return self._at + len(self._buffer)

    def receive(self, offset_bytes: int, data: bytes) -> list[LogChunk]:
        """Take the next bytes.

        Args:
            offset_bytes: their place, as the master says.
            data: the bytes.

        Returns:
            What is checked now, at most one chunk for each file; none while a record is not whole.

        Raises:
            ReplicationError: not the bytes that are expected, or no valid record. Nothing of it was given back.
        """
        if offset_bytes != self.received_offset_bytes:
            raise ReplicationError(
                f"the master sent position {offset_bytes}, and this log goes on at {self.received_offset_bytes}"
            )
        buffer = self._buffer
        buffer += data
        chunks: list[LogChunk] = []
        done = 0
        while done < len(buffer):
            taken, stored_ms, messages, size_bytes = self._take(memoryview(buffer)[done:], self._at + done)
            if not taken:
                break
            data = bytes(memoryview(buffer)[done : done + taken])
            chunks.append(LogChunk(self._at + done, data, stored_ms, messages, size_bytes))
            done += taken
        del buffer[:done]
        self._at += done
        return chunks

    def _take(self, view: memoryview, start: int) -> tuple[int, int, int, int]:
        """Return how much of a view may be appended to the file that holds ``start``.

        Returns:
            The number of bytes from the front, the last store time, the number of records, and the sum of their sizes.
        """
        room = self._file_bytes - start % self._file_bytes
        view = view[: min(room, len(view))]
        at = stored_ms = messages = size_bytes = 0
        while at < len(view):
            if start + at < self._blank_until:
                at = len(view)  # the view ends with the file, and so does the blank
                break
            if len(view) - at < BLANK_MIN_BYTES:
                if room - at < BLANK_MIN_BYTES:
                    at = len(view)  # nothing fits there: no queue has what lies there
                break
            size, magic = SIZE_AND_MAGIC.unpack_from(view, at)
            if magic == MAGIC_BLANK:
                self._blank_until = start + room
                continue
            if not RECORD_MIN_BYTES <= size <= min(room - at, HA_RECORD_MAX_BYTES):
                raise ReplicationError(
                    f"no record at position {start + at}: size {size}, magic 0x{magic:08X}, and the file ends after "
                    f"{room - at} bytes (is store.commit_log_file_bytes that of the master?)"
                )
            if len(view) - at < size:
                break
            stored_ms = self._check(view, at, start + at)
            at += size
            messages += 1
            size_bytes += size
        return at, stored_ms, messages, size_bytes

    def _check(self, view: memoryview, at: int, physical_offset_bytes: int) -> int:
        """Return the store time of the record at a place of a view that holds all of it. Raises ReplicationError."""
        plain = self._records.plain(view, at, len(view), physical_offset_bytes)
        if plain is not None:
            return plain[2]
        try:
            return self._records.record(view, at, physical_offset_bytes).store_timestamp_ms
        except RecordError as error:
            raise ReplicationError(
                f"the master's record at position {physical_offset_bytes} is damaged: {error} "
                "(with the master stopped, flintmq store repair takes it out)"
            ) from error

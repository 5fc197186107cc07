"""Encodes and decodes RocketMQ's replication stream (docs/internals/store-format.md, Replication stream).

::

    slave → master   end of the slave's log 8            the first is a request, every further one an acknowledgement
    master → slave   physical offset 8 | size 4 | bytes of the log; size 0 is a heartbeat

Big-endian. A frame never crosses the end of a file of the log; records may be cut anywhere.
"""

from __future__ import annotations

import struct
from typing import Final

import attrs

from flintmq.core.errors import ReplicationError
from flintmq.core.limits import HA_FRAME_MAX_BYTES

REPORT: Final = struct.Struct(">q")
HEADER: Final = struct.Struct(">qi")


@attrs.frozen
class Frame:
    """A piece of the master's log."""

    offset_bytes: int
    """Physical position of its first byte."""
    body: bytes
    """The bytes of the log; a heartbeat has none."""
    confirmed_offset_bytes: int | None = None
    """The position up to which the master has promised or shown its log; None where the stream does not say it."""


class Reports:
    """Decodes the reports of a slave, of which only the newest whole one counts."""

    def __init__(self) -> None:
        self._rest = b""

    def receive(self, data: bytes) -> int | None:
        """Take bytes; return the newest report among them, or None without a whole one.

        Raises:
            ReplicationError: a negative position.
        """
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        (newest,) = REPORT.unpack_from(data, whole - REPORT.size)
        if newest < 0:
            raise ReplicationError(f"the slave reports position {newest}")
        return int(newest)


class Frames:
    """Decodes the frames of a master."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive(self, data: bytes) -> list[Frame]:
        """Take bytes; return the frames that are whole now.

        Raises:
            ReplicationError: a negative or enormous size, a negative position.
        """
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        at = 0
        while len(buffer) - at >= HEADER.size:
            offset, size = HEADER.unpack_from(buffer, at)
            if offset < 0 or not 0 <= size <= HA_FRAME_MAX_BYTES:
                raise ReplicationError(f"the master sent a frame of {size} bytes at position {offset}")
            end = at + HEADER.size + size
            if end > len(buffer):
                break
            frames.append(Frame(offset, bytes(buffer[at + HEADER.size : end])))
            at = end
        del buffer[:at]
        return frames


def encode_report(offset_bytes: int) -> bytes:
    """Return a slave's request or acknowledgement."""
    return REPORT.pack(offset_bytes)


def encode_header(offset_bytes: int, size_bytes: int) -> bytes:
    """Return the header of a frame with so many bytes of the log."""
    return HEADER.pack(offset_bytes, size_bytes)

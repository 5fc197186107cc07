"""Splits a stream of bytes into frames, without a socket (docs/internals/protocol.md, Frame).

::

    int32  frame length      number of the following bytes
    byte[] frame             header word, header, body: see flintmq.remoting.wire.command

A decoder is fed the bytes read from a socket, and returns every complete frame in them, without the length field.
"""

from __future__ import annotations

import struct
from typing import Final

from flintmq.core import limits
from flintmq.core.errors import FrameError
from flintmq.remoting.wire.lenient_header import frame_error

LENGTH_BYTES: Final = 4
FRAME_MIN_BYTES: Final = 4
"""Minimum length of a frame, which is the length of the frame's header word."""
_REST_BYTES: Final = 64 * 1024
"""Number of bytes that are kept of a frame with a wrong length, so that the server can identify and refuse the frame's
request."""

_unpack_length = struct.Struct(">i").unpack_from


class FrameDecoder:
    """Splits the bytes of one connection into frames. It does no I/O, and is not thread-safe.

    Complete frames are sliced out of the fed bytes. Only an incomplete frame is buffered; each byte of this frame is copied
    twice, however small the pieces are. After a :class:`FrameError` the decoder must not be used any more.

    Args:
        max_frame_bytes: the maximum length of a frame, without its length field.
    """

    __slots__ = ("_max_frame_bytes", "_needed_bytes", "_pending")

    def __init__(self, max_frame_bytes: int = limits.FRAME_MAX_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pending = bytearray()
        self._needed_bytes = 0
        """Number of bytes that the buffer must contain before the decoder can continue; 0 if the buffer is empty. If the buffer
        has only a part of a length field, this is the size of the length field. Otherwise, this is the size of the incomplete
        frame, including its length field."""

    @property
    def pending_bytes(self) -> int:
        """Number of buffered bytes of an incomplete frame, including its length field."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes that were read from a connection, and return the frames that are now complete, in order.

        Raises:
            FrameError: a length is below 4 or above the maximum. The error is raised as soon as the wrong length field is
                complete; frames that the same call has completed before are lost.
        """
        if self._needed_bytes:
            return self._feed_pending(data)
        frames: list[bytes] = []
        position = 0
        end_of_data = len(data)
        body_start = LENGTH_BYTES
        max_frame_bytes = self._max_frame_bytes
        while body_start <= end_of_data:
            (length,) = _unpack_length(data, position)
            if not FRAME_MIN_BYTES <= length <= max_frame_bytes:
                raise self._bad_length(length, data[body_start : body_start + _REST_BYTES])
            end = body_start + length
            if end > end_of_data:
                self._needed_bytes = end - position
                break
            frames.append(data[body_start:end])
            position = end
            body_start = end + LENGTH_BYTES
        if position < end_of_data:
            self._pending += memoryview(data)[position:]
            self._needed_bytes = self._needed_bytes or LENGTH_BYTES
        return frames

    def _feed_pending(self, data: bytes) -> list[bytes]:
        pending = self._pending
        taken = 0
        while True:
            missing = self._needed_bytes - len(pending)
            available = len(data) - taken
            if available < missing:
                pending += memoryview(data)[taken:]
                return []
            pending += memoryview(data)[taken : taken + missing]
            taken += missing
            if self._needed_bytes > LENGTH_BYTES:
                break
            (length,) = _unpack_length(pending, 0)
            if not FRAME_MIN_BYTES <= length <= self._max_frame_bytes:
                raise self._bad_length(length, data[taken : taken + _REST_BYTES])
            self._needed_bytes = LENGTH_BYTES + length
        with memoryview(pending) as view:
            frame = bytes(view[LENGTH_BYTES:])
        self._pending = bytearray()
        self._needed_bytes = 0
        if taken == len(data):
            return [frame]
        return [frame, *self.feed(data[taken:])]

    def _bad_length(self, length: int, rest: bytes) -> FrameError:
        return frame_error(
            f"a frame of {length} bytes is announced, {FRAME_MIN_BYTES} to {self._max_frame_bytes} are possible",
            reason="frame.length",
            measured=f"{length} bytes",
            key="listen.max_frame_bytes",
            rest=rest,
        )

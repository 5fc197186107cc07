"""Compression and decompression of message bodies, with limits on the decompressed size."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

from flintmq.core.errors import FlintError
from flintmq.core.limits import FRAME_MAX_BYTES
from flintmq.core.record.sys_flag import COMPRESSED

METHOD_MASK: Final = 0x700
LZ4: Final = 0x100
ZSTD: Final = 0x200
ZLIB: Final = 0x300
"""Value of the system flag's method bits for a body compressed with zlib. The value 0 also means zlib, because older clients
had only zlib and did not set these bits."""

DECOMPRESSED_MAX_BYTES: Final = 4 * FRAME_MAX_BYTES
"""Maximum size of a decompressed body. Without this limit, a few kilobytes could expand to gigabytes."""
PART_BYTES: Final = 64 * 1024
"""Number of compressed bytes of a body that are read at a time, and the approximate size of a decompressed part."""
_ZSTD_HEADER_MAX_BYTES: Final = 18
_ZSTD_RLE: Final = 1
"""The type of a zstd block that consists of one repeated byte."""
_ZSTD_WINDOW_MAX_BYTES: Final = 8 * 1024 * 1024
"""Maximum window size of a zstd frame. A decoder needs as much memory as the window.

RFC 8878 recommends that every decoder support this size. Common encoders use no larger windows."""


class UnreadableError(FlintError):
    """The body of a message cannot be read; the error's text gives the reason."""


class CompressionError(UnreadableError):
    """A body cannot be decompressed: it is damaged, too long, or its method needs a package that is not installed."""


class TooLongError(CompressionError):
    """The decompressed body of a message would exceed the maximum size."""


def compress(body: bytes, level: int = 5) -> tuple[bytes, int]:
    """Return a body compressed with zlib, and the bits to set in the message's system flag."""
    return zlib.compress(body, level), COMPRESSED | ZLIB


def decompress(body: bytes, sys_flag: int, max_bytes: int | None = None) -> bytes:
    """Return a decompressed body; an uncompressed or empty body is returned unchanged.

    Args:
        body: the stored body.
        sys_flag: the message's system flag, which says whether and how the body is compressed.
        max_bytes: the maximum size of the result; None: :data:`DECOMPRESSED_MAX_BYTES`. Decompression stops beyond this size.

    Raises:
        TooLongError: the result would exceed ``max_bytes``.
        CompressionError: the body is damaged, or the package for its method is not installed.
    """
    if max_bytes is None:
        max_bytes = DECOMPRESSED_MAX_BYTES
    if not sys_flag & COMPRESSED or not body:
        return body
    method = sys_flag & METHOD_MASK
    if method in (0, ZLIB):
        return _inflate(body, max_bytes)
    return b"".join(decompressed_parts(body, sys_flag, max_bytes))


def decompressed_parts(body: bytes, sys_flag: int, max_bytes: int | None = None) -> Iterator[bytes]:
    """Yield a decompressed body in parts of at most 128 KiB, each decompressed on demand.

    Args:
        body, sys_flag, max_bytes: as for :func:`decompress`.

    Raises:
        TooLongError, CompressionError: as :func:`decompress`; some parts may already have been yielded.
    """
    if max_bytes is None:
        max_bytes = DECOMPRESSED_MAX_BYTES
    if not sys_flag & COMPRESSED or not body:
        for at in range(0, len(body), PART_BYTES):
            yield body[at : at + PART_BYTES]
        return
    method = sys_flag & METHOD_MASK
    if method in (0, ZLIB):
        yield from _bounded(_zlib_parts(body), max_bytes)
    elif method == LZ4:
        yield from _bounded(_package_parts("lz4", "lz4.frame", body, _lz4_parts), max_bytes)
    elif method == ZSTD:
        yield from _bounded(_package_parts("zstandard", "zstandard", body, _zstd_parts), max_bytes)
    else:
        raise CompressionError(f"unknown compression method 0x{method:x}")


def _bounded(parts: Iterator[bytes], max_bytes: int) -> Iterator[bytes]:
    plain_bytes = 0
    for part in parts:
        plain_bytes += len(part)
        if plain_bytes > max_bytes:
            raise TooLongError(f"the decompressed body is longer than {max_bytes} bytes")
        yield part


def _zlib_parts(body: bytes) -> Iterator[bytes]:
    stream, source = zlib.decompressobj(), io.BytesIO(body)
    rest = source.read(PART_BYTES)
    try:
        while not stream.eof:
            part = stream.decompress(rest, PART_BYTES)
            if part:
                yield part
            rest = stream.unconsumed_tail or source.read(PART_BYTES)
            if not part and not rest and not stream.eof:
                raise CompressionError("the compressed body is cut off")
    except zlib.error as failure:
        raise CompressionError(f"the body is not a zlib stream: {failure}") from failure


def _lz4_parts(lz4: Any, body: bytes) -> Iterator[bytes]:
    stream = lz4.LZ4FrameDecompressor()
    part = stream.decompress(body, PART_BYTES)
    while True:
        if part:
            yield part
        if stream.eof:
            return
        if stream.needs_input:
            raise CompressionError("the compressed body is cut off")
        part = stream.decompress(b"", PART_BYTES)


def _zstd_parts(zstd: Any, body: bytes) -> Iterator[bytes]:
    """Decompress a body in the Zstandard format block by block, and yield each decompressed block.

    A decompressed block has at most 128 KiB; even a block of four bytes can expand to 128 KiB (RFC 8878, 3.1.1).
    """
    stream = zstd.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX_BYTES).decompressobj()
    begin = 0
    try:
        at = zstd.frame_header_size(body)
    except zstd.ZstdError:
        # A body with an incomplete or invalid frame header cannot be split into blocks.
        # If the frame header is damaged, only the header's bytes are decompressed, which raises a CompressionError.
        at, body = len(body), body[:_ZSTD_HEADER_MAX_BYTES]
    while not stream.eof and begin < len(body):
        head = int.from_bytes(body[at : at + 3], "little")
        is_last, kind, size = head & 1, head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == _ZSTD_RLE else size)
        # A checksum can follow the last block, so the last block is decompressed together with all bytes that follow the block.
        end = len(body) if is_last else min(at, len(body))
        if part := stream.decompress(body[begin:end]):
            yield part
        begin = end
    if not stream.eof:
        raise CompressionError("the compressed body is cut off")


def _inflate(body: bytes, max_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, max_bytes + 1)
    except zlib.error as failure:
        raise CompressionError(f"the body is not a zlib stream: {failure}") from failure
    if len(plain) > max_bytes:
        raise TooLongError(f"the decompressed body is longer than {max_bytes} bytes")
    if not stream.eof:
        raise CompressionError("the compressed body is cut off")
    return plain


def _package_parts(
    package: str, module: str, body: bytes, parts: Callable[[Any, bytes], Iterator[bytes]]
) -> Iterator[bytes]:
    try:
        found = import_module(module)
    except ImportError as failure:
        remedy = "install the extra: pip install '.[compression]' in FlintMQ's folder"
        raise CompressionError(f"the body is compressed with {package}, which is not installed; {remedy}") from failure
    try:
        yield from parts(found, body)
    except CompressionError:
        raise
    except Exception as failure:
        # If the input is damaged, each compression package raises its own types of exceptions.
        raise CompressionError(f"the body is not a valid {package} stream: {failure}") from failure

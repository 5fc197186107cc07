"""Compresses and decompresses the bodies of messages, within bounds."""

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
"""0 is zlib too: what was written before there were methods."""

DECOMPRESSED_MAX_BYTES: Final = 4 * FRAME_MAX_BYTES
"""A few kilobytes can decompress to gigabytes."""
PART_BYTES: Final = 64 * 1024
"""How much of a body is read, and about how much is made, at a time."""
_ZSTD_HEADER_MAX_BYTES: Final = 18
_ZSTD_RLE: Final = 1
"""The kind of a block of one byte that is repeated."""
_ZSTD_WINDOW_MAX_BYTES: Final = 8 * 1024 * 1024
"""A frame says how much memory its reader keeps. Every reader should take so much (RFC 8878); common writers need no more."""


class UnreadableError(FlintError):
    """The body of a message is wanted, and cannot be read; says why."""


class CompressionError(UnreadableError):
    """A body cannot be decompressed: it is damaged, too long, or its method needs a package that is not installed."""


class TooLongError(CompressionError):
    """A body is longer than it may be when it is decompressed."""


def compress(body: bytes, level: int = 5) -> tuple[bytes, int]:
    """Return a body compressed with zlib, and the system flag's bits that say so."""
    return zlib.compress(body, level), COMPRESSED | ZLIB


def decompress(body: bytes, sys_flag: int, max_bytes: int | None = None) -> bytes:
    """Return a body as it was before it was compressed; itself when it was not, or is empty.

    Args:
        body: as it is stored.
        sys_flag: of the message.
        max_bytes: how long the result may be; None: :data:`DECOMPRESSED_MAX_BYTES`. A longer one is not made.

    Raises:
        TooLongError, CompressionError: see there.
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
    """Yield a body as it was before it was compressed, in parts of at most 128 KiB, each made when it is asked for.

    Args:
        body, sys_flag, max_bytes: as for :func:`decompress`.

    Raises:
        TooLongError, CompressionError: as :func:`decompress`; parts may have come before.
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
            raise TooLongError(f"decompressed the body is longer than {max_bytes} bytes")
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
    """Yield what each block makes, which is at most 128 KiB: four bytes may make as much. See RFC 8878, section 3.1.1."""
    stream = zstd.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX_BYTES).decompressobj()
    begin = 0
    try:
        at = zstd.frame_header_size(body)
    except zstd.ZstdError:  # it is too short for a header, or none: nothing comes of it
        at, body = len(body), body[:_ZSTD_HEADER_MAX_BYTES]
    while not stream.eof and begin < len(body):
        head = int.from_bytes(body[at : at + 3], "little")
        is_last, kind, size = head & 1, head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == _ZSTD_RLE else size)
        end = len(body) if is_last else min(at, len(body))  # behind the last block may be a checksum
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
        raise TooLongError(f"decompressed the body is longer than {max_bytes} bytes")
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
    except Exception as failure:  # whatever the package raises for damaged input
        raise CompressionError(f"the body is no {package} stream: {failure}") from failure

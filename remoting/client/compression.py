"""Compressed bodies: bit 0 of a message's system flag, with the method in bits 8 to 10.

See docs/internals/protocol.md, Flag words.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
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
_ONE_MORE: Final = DECOMPRESSED_MAX_BYTES + 1
"""One byte more than is allowed, which distinguishes a body that is too long from one that fits."""


class CompressionError(FlintError):
    """A body cannot be decompressed: it is damaged, too long, or its method needs a package that is not installed."""


def compress(body: bytes, level: int = 5) -> tuple[bytes, int]:
    """A body compressed with zlib, and the system flag's bits that say so."""
    return zlib.compress(body, level), COMPRESSED | ZLIB


def decompress(body: bytes, sys_flag: int) -> bytes:
    """A body as it was before it was compressed; itself when it was not.

    Raises:
        CompressionError: see there.
    """
    if not sys_flag & COMPRESSED:
        return body
    method = sys_flag & METHOD_MASK
    if method in (0, ZLIB):
        return _inflate(body)
    if method == LZ4:
        return _with_package("lz4.frame", "lz4", lambda lz4: _unlz4(lz4.LZ4FrameDecompressor(), body))
    if method == ZSTD:
        return _with_package(
            "zstandard", "zstandard", lambda zstandard: zstandard.ZstdDecompressor().stream_reader(body).read(_ONE_MORE)
        )
    raise CompressionError(f"unknown compression method 0x{method:x}")


def _inflate(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, DECOMPRESSED_MAX_BYTES)
    except zlib.error as failure:
        raise CompressionError(f"the body is not a zlib stream: {failure}") from failure
    if not stream.eof:
        raise CompressionError(f"the body's zlib stream is cut off, or longer than {DECOMPRESSED_MAX_BYTES} bytes")
    return plain


def _unlz4(stream: Any, body: bytes) -> bytes:
    plain: bytes = stream.decompress(body, _ONE_MORE)
    if not stream.eof and len(plain) < _ONE_MORE:
        raise ValueError("it is cut off")
    return plain


def _with_package(module: str, package: str, undo: Callable[[Any], bytes]) -> bytes:
    try:
        found = import_module(module)
    except ImportError as failure:
        raise CompressionError(f"the body is compressed with {package}, which is not installed") from failure
    try:
        plain = undo(found)
    except Exception as failure:  # whatever the package raises for damaged input
        raise CompressionError(f"the body is no {package} stream: {failure}") from failure
    if len(plain) > DECOMPRESSED_MAX_BYTES:
        raise CompressionError(f"the body's {package} stream is longer than {DECOMPRESSED_MAX_BYTES} bytes")
    return plain

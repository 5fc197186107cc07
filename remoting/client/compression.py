"""Compresses and decompresses the bodies of messages, within bounds."""

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
_STEP_BYTES: Final = 1024 * 1024
"""How much of it is made before its length is looked at."""
_ZSTD_STEP_BYTES: Final = 512
"""How much of a stream is read before the length of what came of it is looked at: four bytes can make 128 KiB, so 16 MiB."""


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
    if method == LZ4:
        return _with_package("lz4", "lz4.frame", lambda lz4: _unlz4(lz4.LZ4FrameDecompressor(), body, max_bytes))
    if method == ZSTD:
        return _with_package("zstandard", "zstandard", lambda zstd: _unzstd(zstd.ZstdDecompressor(), body, max_bytes))
    raise CompressionError(f"unknown compression method 0x{method:x}")


def _inflate(body: bytes, max_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, max_bytes + 1)
    except zlib.error as failure:
        raise CompressionError(f"the body is not a zlib stream: {failure}") from failure
    return _whole([plain], len(plain), stream.eof, max_bytes)


def _unlz4(stream: Any, body: bytes, max_bytes: int) -> bytes:
    parts = [stream.decompress(body, _STEP_BYTES)]
    plain_bytes = len(parts[0])
    while not stream.eof and not stream.needs_input and plain_bytes <= max_bytes:
        parts.append(stream.decompress(b"", _STEP_BYTES))
        plain_bytes += len(parts[-1])
    return _whole(parts, plain_bytes, stream.eof, max_bytes)


def _unzstd(decompressor: Any, body: bytes, max_bytes: int) -> bytes:
    stream = decompressor.decompressobj()
    parts: list[bytes] = []
    at = plain_bytes = 0
    while at < len(body) and not stream.eof and plain_bytes <= max_bytes:
        parts.append(stream.decompress(body[at : at + _ZSTD_STEP_BYTES]))
        plain_bytes += len(parts[-1])
        at += _ZSTD_STEP_BYTES
    return _whole(parts, plain_bytes, stream.eof, max_bytes)


def _whole(parts: list[bytes], plain_bytes: int, is_whole: bool, max_bytes: int) -> bytes:
    """Return a body in one piece. Raises :class:`CompressionError` if it is too long, or not all of it."""
    if plain_bytes > max_bytes:
        raise TooLongError(f"decompressed the body is longer than {max_bytes} bytes")
    if not is_whole:
        raise CompressionError("the compressed body is cut off")
    return b"".join(parts)


def _with_package(package: str, module: str, undo: Callable[[Any], bytes]) -> bytes:
    try:
        found = import_module(module)
    except ImportError as failure:
        remedy = "install the extra: pip install '.[compression]' in FlintMQ's folder"
        raise CompressionError(f"the body is compressed with {package}, which is not installed; {remedy}") from failure
    try:
        return undo(found)
    except CompressionError:
        raise
    except Exception as failure:  # whatever the package raises for damaged input
        raise CompressionError(f"the body is no {package} stream: {failure}") from failure

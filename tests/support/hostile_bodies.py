"""Bodies that are made to cost their readers far more than themselves, each with the system flag that it is stored with."""

from __future__ import annotations

import importlib.util
import zlib
from collections.abc import Iterator
from importlib import import_module

KIB, MIB = 1024, 1024 * 1024
LARGEST_BYTES = 4 * MIB - 4096


def _nested(open_: bytes, close: bytes, depth: int, size_bytes: int) -> bytes:
    one = open_ * depth + close * depth
    count = (size_bytes - 2) // (len(one) + 1)
    return b"[" + b",".join([one] * count) + b"]"


def zlib_bomb(plain_bytes: int) -> bytes:
    stream = zlib.compressobj(9)
    zeros = bytes(MIB)
    return b"".join([*(stream.compress(zeros) for _ in range(plain_bytes // MIB)), stream.flush()])


def hostile_bodies() -> Iterator[tuple[str, bytes, int]]:
    """Yield name, stored body and sysFlag of each."""
    yield "nested lists", _nested(b"[", b"]", 900, 256 * KIB), 0
    yield "nested objects", _nested(b'{"a":[', b"]}", 400, 256 * KIB), 0
    yield "nested as deep as is shown", _nested(b"[", b"]", 62, 256 * KIB), 0
    yield "open brackets", b"[" * (256 * KIB), 0
    yield "empty objects", b"[" + b"{}," * (85 * KIB) + b"0]", 0
    yield "numbers", b"[" + b"1.5e7," * (42 * KIB) + b"0]", 0
    yield "a long number", b"1" * (256 * KIB), 0
    yield "a long fraction", b"0." + b"1" * (255 * KIB), 0
    yield "escapes", b'"' + b"\\ud800" * (42 * KIB) + b'"', 0
    yield "marks of direction", "\u202e".encode() * (85 * KIB), 0
    yield "markup", b"<&'\"" * (64 * KIB), 0
    yield "an emoji among letters", b'["' + b"x" * (250 * KIB) + "\U0001f600".encode() + b'"]', 0
    yield "controls", b"\x1b[2J\x9b" * (LARGEST_BYTES // 5), 0
    yield "the longest list", b"[" + b"0," * (LARGEST_BYTES // 2 - 1) + b"0]", 0
    yield "zeros", bytes(LARGEST_BYTES), 0
    yield "16 MiB of zeros", zlib_bomb(16 * MIB), 0x301
    yield "64 MiB of zeros", zlib_bomb(64 * MIB), 0x301
    yield "2 GiB of zeros", zlib_bomb(2048 * MIB), 0x301
    if importlib.util.find_spec("lz4") is not None:
        yield "256 MiB of zeros in LZ4", import_module("lz4.frame").compress(bytes(256 * MIB)), 0x101
    if importlib.util.find_spec("zstandard") is not None:
        yield (
            "256 MiB of zeros in Zstandard",
            import_module("zstandard").ZstdCompressor().compress(bytes(256 * MIB)),
            0x201,
        )


def hostile_properties() -> dict[str, str]:
    """Return as many properties as a message may have."""
    return {f"{number:x}": "" for number in range(5_400)}

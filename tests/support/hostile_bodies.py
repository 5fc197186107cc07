"""Bodies that are made to cost their readers far more than themselves, each with the system flag that it is stored with."""

from __future__ import annotations

import functools
import importlib.util
import zlib
from collections.abc import Callable
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


BODIES: dict[str, tuple[Callable[[], bytes], int]] = {
    "nested lists": (lambda: _nested(b"[", b"]", 900, 256 * KIB), 0),
    "nested objects": (lambda: _nested(b'{"a":[', b"]}", 400, 256 * KIB), 0),
    "nested as deep as is shown": (lambda: _nested(b"[", b"]", 62, 256 * KIB), 0),
    "open brackets": (lambda: b"[" * (256 * KIB), 0),
    "empty objects": (lambda: b"[" + b"{}," * (85 * KIB) + b"0]", 0),
    "numbers": (lambda: b"[" + b"1.5e7," * (42 * KIB) + b"0]", 0),
    "a long number": (lambda: b"1" * (256 * KIB), 0),
    "a long fraction": (lambda: b"0." + b"1" * (255 * KIB), 0),
    "escapes": (lambda: b'"' + b"\\ud800" * (42 * KIB) + b'"', 0),
    "marks of direction": (lambda: "\u202e".encode() * (85 * KIB), 0),
    "markup": (lambda: b"<&'\"" * (64 * KIB), 0),
    "an emoji among letters": (lambda: b'["' + b"x" * (250 * KIB) + "\U0001f600".encode() + b'"]', 0),
    "controls": (lambda: b"\x1b[2J\x9b" * (LARGEST_BYTES // 5), 0),
    "the longest list": (lambda: b"[" + b"0," * (LARGEST_BYTES // 2 - 1) + b"0]", 0),
    "zeros": (lambda: bytes(LARGEST_BYTES), 0),
    "16 MiB of zeros": (lambda: zlib_bomb(16 * MIB), 0x301),
    "64 MiB of zeros": (lambda: zlib_bomb(64 * MIB), 0x301),
    "2 GiB of zeros": (lambda: zlib_bomb(2048 * MIB), 0x301),
    "256 MiB of zeros in LZ4": (lambda: import_module("lz4.frame").compress(bytes(256 * MIB)), 0x101),
}
"""Name → what makes the stored body, and the sysFlag."""
NEEDS = {"256 MiB of zeros in LZ4": "lz4", "256 MiB of zeros in Zstandard": "zstandard"}


@functools.cache
def hostile_body(name: str) -> tuple[bytes, int]:
    """Return the stored body of a name and its sysFlag."""
    make, sys_flag = BODIES[name]
    return make(), sys_flag


def hostile_names() -> list[str]:
    """Return the names of those that can be made here."""
    return [name for name in BODIES if name not in NEEDS or importlib.util.find_spec(NEEDS[name]) is not None]


def hostile_properties() -> dict[str, str]:
    """Return as many properties as a message may have."""
    return {f"{number:x}": "" for number in range(5_400)}

"""Bodies that others compressed: what they are told to be, whole, or an error; never a part, never gigabytes."""

from __future__ import annotations

import asyncio
import tracemalloc
import zlib
from typing import Any

import pytest

from flintmq.remoting.client import compression
from flintmq.remoting.client.compression import (
    CompressionError,
    TooLongError,
    compress,
    decompress,
    decompressed_parts,
)
from flintmq.remoting.client.message import (
    CUT,
    PACKED,
    MessageExt,
    body_parts,
    decode_messages,
    keep_packed,
    shortened,
    unpacked_messages,
)
from flintmq.tests.support.costs import turns
from flintmq.tests.support.records import RecordFields, encode_all


def test_a_compressed_body_is_decompressed_by_the_method_in_the_flags_of_its_message() -> None:
    """A body without these flags is returned unchanged."""
    for body in (b"", b"hello", b"x" * 100_000):
        packed, flags = compress(body)
        assert decompress(packed, flags) == body
        assert decompress(packed, 0) is packed


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_damaged_zlib_stream_is_refused(cut: int) -> None:
    """A part of a body must not pass for the whole."""
    packed, flags = compress(bytes(range(256)) * 10)
    with pytest.raises(CompressionError, match=r"cut off|no zlib"):
        decompress(packed[:-cut], flags)
    with pytest.raises(CompressionError, match="method"):
        decompress(packed, flags | 0x700)


def test_a_decompression_bomb_is_refused_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB of zeros fit into 64 KB; what is beyond the limit is not made."""
    monkeypatch.setattr(compression, "DECOMPRESSED_MAX_BYTES", 1_000_000)
    with pytest.raises(CompressionError, match="longer than 1000000"):
        decompress(zlib.compress(bytes(64 * 1024 * 1024)), 0x301)


@pytest.mark.parametrize(("package", "flags"), [("lz4.frame", 0x101), ("zstandard", 0x201)])
def test_the_error_about_a_missing_compression_package_names_the_extra_to_install(
    package: str, flags: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message itself cannot say which package it needs."""

    def missing(name: str) -> Any:
        assert name == package
        raise ImportError(name)

    monkeypatch.setattr(compression, "import_module", missing)
    with pytest.raises(CompressionError, match=r"not installed; install the extra: pip install '\.\[compression\]'"):
        decompress(b"x", flags)


def packed_with(package: str, body: bytes) -> bytes:
    module: Any = pytest.importorskip(package)
    return bytes(module.compress(body) if package == "lz4.frame" else module.ZstdCompressor().compress(body))


@pytest.mark.parametrize(("package", "flags"), [("lz4.frame", 0x101), ("zstandard", 0x201)])
def test_lz4_and_zstd_bodies_are_decompressed_and_damaged_bodies_are_refused(package: str, flags: int) -> None:
    """Round trip, and damage: a part of a body must not pass for the whole."""
    body = b"hello " * 100_000 + bytes(range(256)) * 1_000
    packed = packed_with(package, body)
    assert decompress(packed, flags) == body
    assert decompress(packed_with(package, b""), flags) == b""
    for cut in (1, 4, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CompressionError, match=r"cut off"):
            decompress(packed[:-cut], flags)
    for junk in (b"damaged" + packed, b"x", bytes(100), packed[:20] + b"junk" * 20 + packed[100:]):
        with pytest.raises(CompressionError):
            decompress(junk, flags)


@pytest.mark.parametrize(("package", "flags"), [("lz4.frame", 0x101), ("zstandard", 0x201)])
def test_a_body_in_lz4_or_zstd_is_refused_if_its_decompressed_size_exceeds_the_limit(
    package: str, flags: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body of exactly the limit is whole, one byte more is refused, and a bomb takes little more memory than the limit."""
    monkeypatch.setattr(compression, "DECOMPRESSED_MAX_BYTES", 3 * 1024 * 1024)
    assert len(decompress(packed_with(package, bytes(3 * 1024 * 1024)), flags)) == 3 * 1024 * 1024
    with pytest.raises(CompressionError, match="longer than 3145728"):
        decompress(packed_with(package, bytes(3 * 1024 * 1024 + 1)), flags)
    bomb = packed_with(package, bytes(256 * 1024 * 1024))
    tracemalloc.start()
    with pytest.raises(CompressionError, match="longer than 3145728"):
        decompress(bomb, flags)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 32 * 1024 * 1024


JAVA_5_BODIES = {
    0x101: "04224d18607073240000003f6162630300" + "ff" * 23 + "6c50626361626300000000",
    0x201: "28b52ffd00585400001861626301006a67ef86010000",
}


@pytest.mark.parametrize("flags", JAVA_5_BODIES)
def test_lz4_and_zstd_bodies_of_the_java_client_are_decompressed(flags: int) -> None:
    """Bodies as a producer of RocketMQ 5.3.3 sent them."""
    pytest.importorskip("lz4.frame" if flags == 0x101 else "zstandard")
    packed = bytes.fromhex(JAVA_5_BODIES[flags])
    assert decompress(packed, flags) == b"abc" * 2_000
    for length in range(1, len(packed)):
        with pytest.raises(CompressionError):
            decompress(packed[:length], flags)


@pytest.mark.parametrize(("package", "flags"), [("", 0x301), ("lz4.frame", 0x101), ("zstandard", 0x201)])
def test_reading_the_first_part_of_a_compressed_body_does_not_decompress_the_rest_of_the_body(
    package: str, flags: int
) -> None:
    """Only the parts that are read are unpacked; damage is found at the end, as by :func:`decompress`."""
    body = bytes(range(256)) * 4_000 + bytes(100_000_000)
    packed = packed_with(package, body) if package else zlib.compress(body)
    tracemalloc.start()
    parts = decompressed_parts(packed, flags)
    assert next(parts)[:256] == body[:256]
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 1024 * 1024
    with pytest.raises(TooLongError):
        list(parts)
    short = body[:1_000_000]
    packed = packed_with(package, short) if package else zlib.compress(short)
    assert b"".join(decompressed_parts(packed, flags)) == short
    with pytest.raises(CompressionError, match="cut off"):
        list(decompressed_parts(packed[:-5], flags))


def message_with(body: bytes, sys_flag: int) -> MessageExt:
    return MessageExt("T", body, b"", 0, 0, "", 0, 0, 0, sys_flag, 0, b"", 0, b"", 0, 0)


def test_a_message_that_keeps_its_compressed_body_is_marked_as_not_decompressed() -> None:
    """Its bytes must not pass for what was sent; its parts, its beginning and a copy with that do not unpack twice."""
    packed, flags = compress(b"x" * 300_000)
    message = keep_packed(message_with(packed, flags))
    assert (message.body, message.body_error) == (packed, PACKED)
    assert b"".join(body_parts(message)) == b"x" * 300_000
    assert shortened(message, 1_000_000).body_error == ""
    cut = shortened(message, 10)
    assert (cut.body, cut.body_error) == (b"x" * 10, CUT)
    assert shortened(cut, 10) is cut
    assert shortened(keep_packed(message_with(b"junk", flags)), 10).body_error.startswith(
        "the body is not a zlib stream"
    )
    plain = message_with(b"plain", 0)
    assert keep_packed(plain) is plain
    assert shortened(plain, 3).body == b"pla"


def test_long_bodies_are_decompressed_in_a_thread() -> None:
    """The loop goes on meanwhile, and what comes of it is the same."""
    bodies = [b"x", zlib.compress(bytes(40_000_000)), zlib.compress(b"y")]
    fields = [RecordFields(body=body, sys_flag=0x301 if at else 0) for at, body in enumerate(bodies)]
    records, _ = encode_all(fields)

    async def run() -> list[MessageExt]:
        with turns() as cost:
            found = await unpacked_messages(records)
        assert cost.turn_ms < 50
        return found

    found = asyncio.run(run())
    assert found == decode_messages(records)
    assert [len(one.body) for one in found] == [1, 40_000_000, 1]

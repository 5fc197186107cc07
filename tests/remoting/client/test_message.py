"""Bodies that others compressed: what they are told to be, whole, or an error; never a part, never gigabytes."""

from __future__ import annotations

import zlib
from types import ModuleType
from typing import Any

import pytest

from flintmq.remoting.client import message
from flintmq.remoting.client.message import CompressionError, compress, decompress


def test_what_was_compressed_comes_back() -> None:
    """With the flags that say so, and without them as it is."""
    for body in (b"", b"hello", b"x" * 100_000):
        packed, flags = compress(body)
        assert decompress(packed, flags) == body
        assert decompress(packed, 0) is packed


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_damaged_stream_is_refused(cut: int) -> None:
    """A part of a body must not pass for the whole."""
    packed, flags = compress(bytes(range(256)) * 10)
    with pytest.raises(CompressionError, match=r"cut off|no zlib"):
        decompress(packed[:-cut], flags)
    with pytest.raises(CompressionError, match="method"):
        decompress(packed, flags | 0x700)


def test_a_bomb_is_refused_before_it_goes_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB of zeros fit into 64 KB; what is beyond the limit is not made."""
    monkeypatch.setattr(message, "DECOMPRESSED_MAX_BYTES", 1_000_000)
    with pytest.raises(CompressionError, match="longer than 1000000"):
        decompress(zlib.compress(bytes(64 * 1024 * 1024)), 0x301)


@pytest.mark.parametrize(("package", "flags"), [("lz4.frame", 0x101), ("zstandard", 0x201)])
def test_other_methods_are_bounded_too(package: str, flags: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the package gives, more than asked for or exactly the limit: a body is whole, or refused. Where it is not
    installed, a message says so."""
    monkeypatch.setattr(message, "DECOMPRESSED_MAX_BYTES", 1_000)
    monkeypatch.setattr(message, "_ONE_MORE", 1_001)
    asked: list[int] = []

    class Stream:
        def __init__(self, plain_bytes: int) -> None:
            self._plain = b"x" * plain_bytes
            self.eof = True

        def decompress(self, _body: bytes, max_length: int) -> bytes:
            asked.append(max_length)
            return self._plain[:max_length]

        def read(self, size: int) -> bytes:
            asked.append(size)
            return self._plain[:size]

    def having(plain_bytes: int) -> Any:
        module: Any = ModuleType(package)
        stream = Stream(plain_bytes)
        module.LZ4FrameDecompressor = lambda: stream
        module.ZstdDecompressor = lambda: type("Decompressor", (), {"stream_reader": lambda _self, _body: stream})()
        return module

    monkeypatch.setattr(message, "import_module", lambda name: having(1_000))
    assert decompress(b"", flags) == b"x" * 1_000
    monkeypatch.setattr(message, "import_module", lambda name: having(10_000))
    with pytest.raises(CompressionError, match="longer than"):
        decompress(b"", flags)
    assert asked == [1_001, 1_001]

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(message, "import_module", missing)
    with pytest.raises(CompressionError, match="not installed"):
        decompress(b"", flags)


@pytest.mark.parametrize(("package", "flags"), [("lz4.frame", 0x101), ("zstandard", 0x201)])
def test_the_real_packages(package: str, flags: int) -> None:
    """Where they are installed: round trip, and damage."""
    module: Any = pytest.importorskip(package)
    body = b"hello " * 1_000
    packed = module.compress(body) if flags == 0x101 else module.ZstdCompressor().compress(body)
    assert decompress(packed, flags) == body
    with pytest.raises(CompressionError):
        decompress(b"damaged" + packed, flags)
    if package == "lz4.frame":
        with pytest.raises(CompressionError, match="cut off"):
            decompress(packed[:-4], flags)

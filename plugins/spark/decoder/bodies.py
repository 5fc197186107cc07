"""Makes columns of message bodies, as stored or decompressed, and checks bodies against their CRC."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.core.limits import FRAME_MAX_BYTES
from flintmq.core.record.heads import Heads
from flintmq.core.record.sys_flag import COMPRESSED
from flintmq.plugins.spark.decoder.slices import Bools, replaced, take_slices

_METHOD_MASK: Final = 0x700
_CODECS: Final = {0x100: "lz4", 0x200: "zstd"}
_ZLIB: Final = (0, 0x300)
_PLAIN_MAX_BYTES: Final = 4 * FRAME_MAX_BYTES
"""Maximum size of a decompressed message body in bytes. The limit is needed because a body of a few kilobytes can decompress to
gigabytes."""


def is_compressed(heads: Heads) -> Bools:
    """Return, for each record, whether the record has a body that its flag marks as compressed."""
    found: Bools = (heads.sys_flag & COMPRESSED != 0) & (heads.body_length > 0)
    return found


def plain_runs(data: npt.NDArray[np.uint8], heads: Heads, max_bytes: int) -> Iterator[tuple[slice, list[bytes | None]]]:
    """Divide records into runs of consecutive records, so that the decompressed bodies of a run have together at most
    ``max_bytes``. A run has at least one record.

    Yield each run as a slice of the records, together with the decompressed bodies of the run's compressed records
    (:func:`is_compressed`). None replaces a body that cannot be decompressed.
    """
    packed = is_compressed(heads)
    begin = size_bytes = 0
    plain: list[bytes | None] = []
    for row, (at, length, flag) in enumerate(
        zip(heads.body_at.tolist(), heads.body_length.tolist(), heads.sys_flag.tolist(), strict=True)
    ):
        body = _decompressed(bytes(data[at : at + length]), flag & _METHOD_MASK) if packed[row] else None
        row_bytes = length if body is None else len(body)
        if row > begin and size_bytes + row_bytes > max_bytes:
            yield slice(begin, row), plain
            begin, size_bytes, plain = row, 0, []
        size_bytes += row_bytes
        if packed[row]:
            plain.append(body)
    yield slice(begin, len(heads)), plain


def body_column(data: npt.NDArray[np.uint8], heads: Heads, plain: list[bytes | None]) -> pa.Array:
    """Return the body of each record. The bodies in ``plain`` (:func:`plain_runs`) replace compressed bodies; other bodies are
    returned as stored.

    A body that is marked as compressed but cannot be decompressed stays as stored. Clients set the mark, so a wrong mark must
    not stop a pipeline.
    """
    bodies = take_slices(data, heads.body_at, heads.body_length)
    if not plain:
        return bodies
    packed = np.flatnonzero(is_compressed(heads))
    done = [number for number, body in enumerate(plain) if body is not None]
    return replaced(bodies, packed[done], [body for body in plain if body is not None]) if done else bodies


def wrong_crc(data: npt.NDArray[np.uint8], heads: Heads) -> Bools | None:
    """Return, for each record, whether the CRC of its body differs from the CRC that the record stores; None if no body has a
    wrong CRC."""
    view = data.data
    crcs = heads.raw["body_crc"].astype(np.int32)
    found = np.fromiter(
        (
            length > 0 and zlib.crc32(view[at : at + length]) & 0x7FFFFFFF != crc
            for at, length, crc in zip(heads.body_at.tolist(), heads.body_length.tolist(), crcs.tolist(), strict=True)
        ),
        np.bool_,
        len(heads),
    )
    return found if found.any() else None


def _decompressed(body: bytes, method: int) -> bytes | None:
    if method in _ZLIB:
        return _inflated(body)
    codec = _CODECS.get(method)
    if codec is None:
        return None
    try:
        with pa.input_stream(pa.py_buffer(body), compression=codec) as stream:
            plain = stream.read(_PLAIN_MAX_BYTES + 1)
    except OSError:
        return None
    return plain if len(plain) <= _PLAIN_MAX_BYTES else None


def _inflated(body: bytes) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, _PLAIN_MAX_BYTES)
    except zlib.error:
        return None
    return plain if stream.eof else None

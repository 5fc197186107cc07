"""Bodies: as they are stored, decompressed where a record says so, and checked against their CRC."""

from __future__ import annotations

import zlib
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
"""A few kilobytes can decompress to gigabytes."""


BATCH_PLAIN_MAX_BYTES: Final = 32 * 1024 * 1024
"""Of a batch's bodies together; a batch of one record may have one that is longer."""


class BatchTooLargeError(Exception):
    """The bodies of some records are too long together when they are decompressed: fewer records make a batch."""


def body_column(data: npt.NDArray[np.uint8], heads: Heads, *, raw: bool) -> pa.Array:
    """Return the body of each record.

    A body whose record claims a compression that it does not have stays as it is stored: a client chooses the flag, and no
    client can stop a pipeline with it.

    Raises:
        BatchTooLargeError: see there.
    """
    bodies = take_slices(data, heads.body_at, heads.body_length)
    if raw:
        return bodies
    rows = np.flatnonzero((heads.sys_flag & COMPRESSED != 0) & (heads.body_length > 0))
    if not len(rows):
        return bodies
    plain: list[bytes] = []
    plain_bytes = 0
    for at, length, flag in zip(
        heads.body_at[rows].tolist(), heads.body_length[rows].tolist(), heads.sys_flag[rows].tolist(), strict=True
    ):
        plain.append(_decompressed(bytes(data[at : at + length]), flag & _METHOD_MASK))
        plain_bytes += len(plain[-1])
        if plain_bytes > BATCH_PLAIN_MAX_BYTES and len(heads) > 1:
            raise BatchTooLargeError
    return replaced(bodies, rows, plain)


def wrong_crc(data: npt.NDArray[np.uint8], heads: Heads) -> Bools | None:
    """Return which bodies do not have the CRC that their record says; None when all have."""
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


def _decompressed(body: bytes, method: int) -> bytes:
    if method in _ZLIB:
        return _inflated(body)
    codec = _CODECS.get(method)
    if codec is None:
        return body
    try:
        with pa.input_stream(pa.py_buffer(body), compression=codec) as stream:
            plain = stream.read(_PLAIN_MAX_BYTES + 1)
    except OSError:
        return body
    return plain if len(plain) <= _PLAIN_MAX_BYTES else body


def _inflated(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, _PLAIN_MAX_BYTES)
    except zlib.error:
        return body
    return plain if stream.eof else body

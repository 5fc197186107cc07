"""Arrow arrays of values that lie scattered over some bytes: one copy per value, nothing in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flintmq.plugins.spark.decoder.heads import Ints

_INT32_MAX = 2**31 - 1


def take_slices(data: npt.NDArray[np.uint8], at: Ints, length: Ints) -> pa.Array:
    """The values ``data[at:at+length]`` as a binary array.

    The offsets of an Arrow array over *all* the bytes alternate value, gap, value, gap …; its even items are the values.

    Args:
        data: the bytes.
        at: ascending, and no value overlaps the next.
        length: at least 0, within the bytes.
    """
    count = len(at)
    if count == 0:
        return pa.array([], pa.binary())
    base = int(at[0])
    end = int(at[-1] + length[-1])
    if end - base > _INT32_MAX:
        half = count // 2
        if half == 0:
            raise ValueError(f"one value of {end - base} bytes is more than an Arrow array holds")
        return pa.concat_arrays(
            [take_slices(data, at[:half], length[:half]), take_slices(data, at[half:], length[half:])]
        )
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = at - base
    offsets[1::2] = at + length - base
    buffer = pa.py_buffer(data[base : max(end, base + 1)])
    scattered = pa.BinaryArray.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), buffer])
    return scattered.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def as_text(values: pa.Array) -> pa.Array:
    """UTF-8 as a string array; bytes that are none become U+FFFD, as a reader of one record has it."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if one is None else one.decode("utf-8", "replace") for one in values.to_pylist()]
        return pa.array(texts, pa.string())


def parts(values: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """A binary array's own offsets and bytes."""
    _validity, offsets, content = values.buffers()
    at = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    return at, np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)


def placed(values: pa.Array, rows: Ints, items: Ints, count: int) -> pa.Array:
    """An array of ``count`` items with ``values[items]`` in some rows and null in the others."""
    if len(rows) == count:
        return values.take(pa.array(items))
    index = np.zeros(count, np.int64)
    index[rows] = items
    missing = np.ones(count, np.bool_)
    missing[rows] = False
    return values.take(pa.array(index, mask=missing))


def replaced(values: pa.Array, rows: Ints, by: list[Any]) -> pa.Array:
    """Return an array with other values in some rows."""
    mask = np.zeros(len(values), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(values, pa.array(mask), pa.array(by, values.type))

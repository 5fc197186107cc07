"""Makes Arrow arrays of values that lie at separate positions in a buffer, without a Python step per value.

Each value is copied once. Each distinct address is converted to text once, because few hosts send many messages.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flintmq.core.record.heads import Heads
from flintmq.core.record.host import V4_BYTES, V6_BYTES, host_text
from flintmq.core.record.layout import HEAD_AT, V6_MORE_BYTES

_INT32_MAX = 2**31 - 1


def take_slices(data: npt.NDArray[np.uint8], at: Ints, length: Ints) -> pa.Array:
    """Return the values ``data[at:at+length]`` as a binary array.

    An Arrow array over all the bytes is made first. Its items are alternately a value and the gap that follows the value. The
    items with even numbers are then taken.

    Args:
        data: the bytes.
        at: the positions of the values, ascending and without overlap.
        length: the lengths of the values, at least 0 and within the bytes.
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
    """Convert a binary array of UTF-8 values to a string array. Invalid bytes become U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if one is None else one.decode("utf-8", "replace") for one in values.to_pylist()]
        return pa.array(texts, pa.string())


def parts(values: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return the two buffers of an Arrow binary array: the offsets of the values, and the values' bytes."""
    _validity, offsets, content = values.buffers()
    at = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    return at, np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)


def placed(values: pa.Array, rows: Ints, items: Ints, count: int) -> pa.Array:
    """Return an array of ``count`` items that has ``values[items]`` at the indices ``rows`` and null elsewhere."""
    if len(rows) == count:
        return values.take(pa.array(items))
    index = np.zeros(count, np.int64)
    index[rows] = items
    missing = np.ones(count, np.bool_)
    missing[rows] = False
    return values.take(pa.array(index, mask=missing))


def replaced(values: pa.Array, rows: Ints, by: list[Any]) -> pa.Array:
    """Return a copy of an Arrow array in which the values in ``by`` replace the values at the indices ``rows``."""
    mask = np.zeros(len(values), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(values, pa.array(mask), pa.array(by, values.type))


Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def born_host_at(heads: Heads) -> Ints:
    """Return, for each record, the position of the producer's address (born host)."""
    return heads.start + HEAD_AT["born_host"]


def store_host_at(heads: Heads) -> Ints:
    """Return, for each record, the position of the broker's address (store host)."""
    at = heads.start + HEAD_AT["store_host"]
    return at if heads.born_v6 is None else at + np.where(heads.born_v6, V6_MORE_BYTES, 0)


_HEX: Final = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)
"""Table with the two hex digits of each byte value, as one 16-bit number. The index is the byte value."""


def host_column(data: npt.NDArray[np.uint8], at: Ints, v6: Bools | None) -> pa.Array:
    """Return the address ``ip:port`` at each of the given positions. Each distinct address is converted to text once."""
    length = np.full(len(at), V4_BYTES, np.int64) if v6 is None else np.where(v6, V6_BYTES, V4_BYTES)
    encoded = take_slices(data, at, length).dictionary_encode()
    texts = [host_text(packed) for packed in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def message_id_column(data: npt.NDArray[np.uint8], heads: Heads) -> pa.Array:
    """Return the message id of each record: the broker's address and the physical offset in upper-case hex."""
    if heads.store_v6 is None or not heads.store_v6.any():
        return _message_ids(data, heads, V4_BYTES)
    if heads.store_v6.all():
        return _message_ids(data, heads, V6_BYTES)
    count = len(heads)
    widths = (~heads.store_v6, V4_BYTES), (heads.store_v6, V6_BYTES)
    both = [_message_ids(data, heads.chosen(mask), width) for mask, width in widths]
    place = np.empty(count, np.int64)
    place[~heads.store_v6] = np.arange(len(both[0]))
    place[heads.store_v6] = len(both[0]) + np.arange(len(both[1]))
    return pa.concat_arrays(both).take(pa.array(place))


def _message_ids(data: npt.NDArray[np.uint8], heads: Heads, host_bytes: int) -> pa.Array:
    count, width = len(heads), host_bytes + 8
    packed = np.empty((count, width), np.uint8)
    window = np.ndarray((max(0, len(data) - host_bytes + 1), host_bytes), np.uint8, data, 0, (1, 1))
    packed[:, :host_bytes] = window[store_host_at(heads)]
    packed[:, host_bytes:] = np.ascontiguousarray(heads.raw["physical_offset"]).view(np.uint8).reshape(count, 8)
    digits = _HEX[packed]
    offsets = np.arange(0, (count + 1) * width * 2, width * 2, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(digits))

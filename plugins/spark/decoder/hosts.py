"""Addresses as text, and message ids: few different hosts, many messages."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.core.record.heads import Heads
from flintmq.core.record.host import V4_BYTES, V6_BYTES, host_text
from flintmq.plugins.spark.decoder.heads import Bools, Ints, store_host_at
from flintmq.plugins.spark.decoder.slices import take_slices

_HEX: Final = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)
"""A byte to its two hex digits."""


def host_column(data: npt.NDArray[np.uint8], at: Ints, v6: Bools | None) -> pa.Array:
    """``ip:port`` of each record; each different address is made text once."""
    length = np.full(len(at), V4_BYTES, np.int64) if v6 is None else np.where(v6, V6_BYTES, V4_BYTES)
    encoded = take_slices(data, at, length).dictionary_encode()
    texts = [host_text(packed) for packed in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def message_id_column(data: npt.NDArray[np.uint8], heads: Heads) -> pa.Array:
    """The broker's message ids: store host and physical offset in upper-case hex."""
    if heads.store_v6 is None or not heads.store_v6.any():
        return _message_ids(data, heads, V4_BYTES)
    if heads.store_v6.all():
        return _message_ids(data, heads, V6_BYTES)
    count = len(heads)
    both = [_message_ids(data, heads.chosen(mask), width) for mask, width in _widths(heads.store_v6)]
    place = np.empty(count, np.int64)
    place[~heads.store_v6] = np.arange(len(both[0]))
    place[heads.store_v6] = len(both[0]) + np.arange(len(both[1]))
    return pa.concat_arrays(both).take(pa.array(place))


def _widths(store_v6: Bools) -> tuple[tuple[Bools, int], tuple[Bools, int]]:
    return (~store_v6, V4_BYTES), (store_v6, V6_BYTES)


def _message_ids(data: npt.NDArray[np.uint8], heads: Heads, host_bytes: int) -> pa.Array:
    count, width = len(heads), host_bytes + 8
    packed = np.empty((count, width), np.uint8)
    window = np.ndarray((max(0, len(data) - host_bytes + 1), host_bytes), np.uint8, data, 0, (1, 1))
    packed[:, :host_bytes] = window[store_host_at(heads)]
    packed[:, host_bytes:] = np.ascontiguousarray(heads.raw["physical_offset"]).view(np.uint8).reshape(count, 8)
    digits = _HEX[packed]
    offsets = np.arange(0, (count + 1) * width * 2, width * 2, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(digits))

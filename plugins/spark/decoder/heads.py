"""Where everything of many records lies, checked; numpy arrays with one item per record."""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from flintmq.core.record.record import MAGIC_V1, MAGIC_V2, RECORD_MIN_BYTES
from flintmq.core.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_HEAD: Final = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_host", "V8"),
        ("store_timestamp", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
"""Everything before the body of a record between IPv4 hosts."""
_V6_MORE: Final = 12
_BORN_HOST_AT: Final = 48


@attrs.define(slots=True)
class Heads:
    """The fixed fields of records, and where their variable parts lie; positions are indices of the bytes."""

    raw: npt.NDArray[Any]
    """The fixed fields as between IPv4 hosts, big-endian; from ``born_host`` on wrong where a host is IPv6."""
    start: Ints
    size: Ints
    sys_flag: npt.NDArray[np.int32]
    is_v2: Bools
    born_v6: Bools | None
    """None where no host of these records is IPv6."""
    store_v6: Bools | None
    shift: Ints | None
    """How much further back the fields behind both hosts lie."""
    body_at: Ints
    body_length: Ints
    topic_at: Ints
    topic_length: Ints
    properties_at: Ints
    properties_length: Ints
    bad: Bools | None
    """Which are no records; None where all are."""

    def __len__(self) -> int:
        return len(self.start)

    def chosen(self, mask: Bools) -> Heads:
        """The same for some of the records."""
        return Heads(
            *(None if value is None else value[mask] for value in attrs.astuple(self, recurse=False))  # type: ignore[arg-type]
        )

    @property
    def store_timestamp_ms(self) -> Ints:
        """Needs the bytes for IPv6, so :func:`read_heads` puts the right ones into :attr:`raw`."""
        return self.raw["store_timestamp"].astype(np.int64)


def read_heads(data: npt.NDArray[np.uint8], starts: Ints) -> Heads:
    """Reads the heads of the records at ascending positions.

    Args:
        data: the bytes.
        starts: where records begin; each at least :data:`RECORD_MIN_BYTES` before the end.

    Returns:
        The heads; :attr:`Heads.bad` tells which of them are no records. Their positions lie within the bytes all the same.
    """
    end_of_data = len(data)
    if len(starts) and (starts[0] < 0 or starts[-1] + RECORD_MIN_BYTES > end_of_data):
        raise ValueError(f"records from {starts[0]} to {starts[-1]} do not begin in {end_of_data} bytes")
    view = np.ndarray((max(0, end_of_data - _HEAD.itemsize + 1),), _HEAD, data, 0, (1,))
    raw = view[starts]
    size = raw["size"].astype(np.int64)
    magic = raw["magic"].astype(np.uint32)
    sys_flag = raw["sys_flag"].astype(np.int32)
    is_v2 = magic == MAGIC_V2
    ends = starts + size
    bad = ~(is_v2 | (magic == MAGIC_V1)) | (size < RECORD_MIN_BYTES) | (ends > end_of_data)
    ends = np.minimum(np.maximum(ends, starts + RECORD_MIN_BYTES), end_of_data)
    born_v6 = store_v6 = shift = None
    body_at = starts + _HEAD.itemsize
    if (sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)).any():
        born_v6 = (sys_flag & BORN_HOST_V6) != 0
        store_v6 = (sys_flag & STORE_HOST_V6) != 0
        shift = _V6_MORE * (born_v6.astype(np.int64) + store_v6)
        body_at = body_at + shift
        bad |= body_at + 3 > ends
        _mend(data, raw, starts, born_v6, shift)
    body_length = raw["body_length"].astype(np.int64)
    topic_length_at = body_at + body_length
    bad |= (body_length < 0) | (topic_length_at + 3 + is_v2 > ends)
    topic_length, topic_at = _topic(data, topic_length_at, is_v2)
    properties_length_at = topic_at + topic_length
    bad |= (topic_length < 0) | (properties_length_at + 2 > ends)
    properties_length = _two_bytes(data, properties_length_at)
    properties_at = properties_length_at + 2
    bad |= (properties_length < 0) | (properties_at + properties_length != ends)
    return Heads(
        raw,
        starts,
        size,
        sys_flag,
        is_v2,
        born_v6,
        store_v6,
        shift,
        body_at,
        body_length,
        topic_at,
        topic_length,
        properties_at,
        properties_length,
        bad if bad.any() else None,
    )


def _mend(data: npt.NDArray[np.uint8], raw: npt.NDArray[Any], starts: Ints, born_v6: Bools, shift: Ints) -> None:
    """Reads the fields behind a longer host anew, for the records that have one."""
    rows = np.flatnonzero(shift)
    at = starts[rows]
    born_more = np.where(born_v6[rows], _V6_MORE, 0)
    for name, more in (
        ("store_timestamp", born_more),
        ("store_host", born_more),
        ("reconsume_times", shift[rows]),
        ("prepared_transaction_offset", shift[rows]),
        ("body_length", shift[rows]),
    ):
        field, offset = _HEAD.fields[name][:2]  # type: ignore[index]
        view = np.ndarray((len(data) - field.itemsize + 1,), field, data, 0, (1,))
        raw[name][rows] = view[np.minimum(at + offset + more, len(view) - 1)]


def _topic(data: npt.NDArray[np.uint8], at: Ints, is_v2: Bools) -> tuple[Ints, Ints]:
    """Length and position of the topics, whose length has two bytes in V2; all lengths are signed."""
    if not is_v2.any():
        return data[_within(at, data)].astype(np.int8).astype(np.int64), at + 1
    length = np.where(is_v2, _two_bytes(data, at), data[_within(at, data)].astype(np.int8))
    return length.astype(np.int64), at + 1 + is_v2


def _two_bytes(data: npt.NDArray[np.uint8], at: Ints) -> Ints:
    high = data[_within(at, data)].astype(np.int8).astype(np.int64)
    return (high << 8) | data[_within(at + 1, data)]


def _within(at: Ints, data: npt.NDArray[np.uint8]) -> Ints:
    return np.minimum(np.maximum(at, 0), len(data) - 1)


def born_host_at(heads: Heads) -> Ints:
    """Where the producers' addresses lie."""
    return heads.start + _BORN_HOST_AT


def store_host_at(heads: Heads) -> Ints:
    """Where the broker's addresses lie."""
    at = heads.start + _BORN_HOST_AT + 16
    return at if heads.born_v6 is None else at + np.where(heads.born_v6, _V6_MORE, 0)

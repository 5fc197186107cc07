"""Reads the heads (fixed fields) of many records at once with numpy, and checks the positions of their variable parts.

The fields and their places come from :mod:`flintmq.core.record.layout`; the checks are those of
:func:`flintmq.core.record.record.read_fields`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from flintmq.core.io.lazy_numpy import numpy
from flintmq.core.record.layout import HEAD, HEAD_AT, HEAD_V4, V6_MORE_BYTES, head_dtype
from flintmq.core.record.record import MAGIC_V1, MAGIC_V2, RECORD_MIN_BYTES
from flintmq.core.record.sys_flag import BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[numpy.int64]
    Bools = NDArray[numpy.bool_]
    Octets = NDArray[numpy.uint8]

_NAMES: Final = [field.name for field in HEAD]
_BEHIND_BORN_HOST: Final = _NAMES[_NAMES.index("born_host") + 1 : _NAMES.index("store_host") + 1]
_BEHIND_BOTH_HOSTS: Final = _NAMES[_NAMES.index("store_host") + 1 :]


class Heads(msgspec.Struct):
    """The fixed fields of records, and the positions of their variable parts, with one item per record.

    Positions are indices into the bytes passed to :func:`read_heads`.
    """

    raw: NDArray[Any]
    """Structured array of the records' fixed fields, laid out for IPv4 hosts. In a record with an IPv6 host, the hosts in this
    array are wrong."""
    start: Ints
    size: Ints
    sys_flag: NDArray[numpy.int32]
    is_v2: Bools
    born_v6: Bools | None
    """Mask of the records with an IPv6 born host; None if no host of any record is IPv6."""
    store_v6: Bools | None
    shift: Ints | None
    """Number of bytes by which a record's IPv6 hosts shift the fields after both hosts; None if no record has an IPv6 host."""
    body_at: Ints
    body_length: Ints
    topic_at: Ints
    topic_length: Ints
    properties_at: Ints
    properties_length: Ints
    bad: Bools | None
    """For each start position, whether the record at the position is invalid; None if all records are valid."""

    def __len__(self) -> int:
        return len(self.start)

    def chosen(self, mask: Bools | slice) -> Heads:
        """Return the fixed fields of the records that a mask or a slice selects."""
        return Heads(*(None if value is None else value[mask] for value in msgspec.structs.astuple(self)))  # type: ignore[arg-type]

    def first(self, rows: int) -> Heads:
        """Return the fixed fields of the first ``rows`` records."""
        return self if rows == len(self) else self.chosen(slice(rows))

    def column(self, name: str) -> Ints:
        """Return the values of one fixed field of all records; the name is that of a field in :data:`.layout.HEAD`."""
        return self.raw[name].astype(numpy.int64)

    @property
    def store_timestamp_ms(self) -> Ints:
        return self.column("store_timestamp")

    @property
    def ends(self) -> Ints:
        """The end positions of the records, which are also the ends of their properties."""
        return self.start + self.size

    @property
    def end(self) -> int:
        """The end position of the last record; there must be at least one record."""
        return int(self.start[-1] + self.size[-1])


def read_heads(data: Octets, starts: Ints) -> Heads:
    """Return the heads (fixed fields) of the records at some positions, which must ascend.

    Args:
        data: the bytes that contain the records.
        starts: the start positions of the records, each at least :data:`RECORD_MIN_BYTES` before the end of the bytes.

    Returns:
        The heads. :attr:`Heads.bad` marks records that are not valid. Other values of these records, such as the positions of
        topic and properties, must not be used.

    Raises:
        ValueError: a start position is not within the bytes.
    """
    end_of_data = len(data)
    if len(starts) and (starts[0] < 0 or starts[-1] + RECORD_MIN_BYTES > end_of_data):
        raise ValueError(
            f"records cannot begin at positions {starts[0]} to {starts[-1]}: the data has {end_of_data} bytes, and a record "
            f"has at least {RECORD_MIN_BYTES}"
        )
    kind = numpy.dtype(head_dtype())
    view = numpy.ndarray((max(0, end_of_data - kind.itemsize + 1),), kind, data, 0, (1,))
    raw = view[starts]
    size = raw["size"].astype(numpy.int64)
    magic = raw["magic"].astype(numpy.uint32)
    sys_flag = raw["sys_flag"].astype(numpy.int32)
    is_v2 = magic == MAGIC_V2
    ends = starts + size
    bad = ~(is_v2 | (magic == MAGIC_V1)) | (size < RECORD_MIN_BYTES) | (ends > end_of_data)
    ends = numpy.minimum(numpy.maximum(ends, starts + RECORD_MIN_BYTES), end_of_data)
    born_v6 = store_v6 = shift = None
    body_at = starts + HEAD_V4.size
    if (sys_flag & HOSTS_V6).any():
        born_v6 = (sys_flag & BORN_HOST_V6) != 0
        store_v6 = (sys_flag & STORE_HOST_V6) != 0
        shift = V6_MORE_BYTES * (born_v6.astype(numpy.int64) + store_v6)
        body_at = body_at + shift
        bad |= body_at + 3 > ends
        _mend(data, raw, starts, born_v6, shift)
    body_length = raw["body_length"].astype(numpy.int64)
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


def _mend(data: Octets, raw: NDArray[Any], starts: Ints, born_v6: Bools, shift: Ints) -> None:
    """Correct the fields after the hosts in ``raw``, for the records that have an IPv6 host."""
    rows = numpy.flatnonzero(shift)
    at = starts[rows]
    born_more = numpy.where(born_v6[rows], V6_MORE_BYTES, 0)
    for name in _BEHIND_BORN_HOST + _BEHIND_BOTH_HOSTS:
        more = born_more if name in _BEHIND_BORN_HOST else shift[rows]
        field = raw.dtype[name]
        view = numpy.ndarray((len(data) - field.itemsize + 1,), field, data, 0, (1,))
        raw[name][rows] = view[numpy.minimum(at + HEAD_AT[name] + more, len(view) - 1)]


def _topic(data: Octets, at: Ints, is_v2: Bools) -> tuple[Ints, Ints]:
    """Return the lengths and positions of the records' topics. The field of the length is signed, and has two bytes in magic
    V2."""
    if not is_v2.any():
        return data[_within(at, data)].astype(numpy.int8).astype(numpy.int64), at + 1
    length = numpy.where(is_v2, _two_bytes(data, at), data[_within(at, data)].astype(numpy.int8))
    return length.astype(numpy.int64), at + 1 + is_v2


def _two_bytes(data: Octets, at: Ints) -> Ints:
    high = data[_within(at, data)].astype(numpy.int8).astype(numpy.int64)
    return (high << 8) | data[_within(at + 1, data)]


def _within(at: Ints, data: Octets) -> Ints:
    return numpy.minimum(numpy.maximum(at, 0), len(data) - 1)

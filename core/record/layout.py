"""The layout of a record: the table of its fields, and the structs that pack and unpack them, derived from that table.

Integers are big-endian. A host is an IP address and a port of four bytes. If the sysFlag marks a host as IPv6, all fields after
it are shifted by 12 bytes. With magic V2 the topic's length has two bytes.

See docs/internals/store-format.md, Commit log record.
"""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import Final

import msgspec

from flintmq.core.record.host import V4_BYTES, V6_BYTES
from flintmq.core.record.sys_flag import BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6

_LETTERS: Final = {"int8": "b", "int16": "h", "int32": "i", "uint32": "I", "int64": "q"}


class Field(msgspec.Struct, frozen=True):
    """One field in the layout of a commit log record."""

    name: str
    kind: str
    """Type of the field: an integer type, ``host``, or ``bytes`` for a field of variable length."""
    length: str = ""
    """For a field of the type ``bytes``, the name of the field that contains its length; otherwise empty."""

    @property
    def size_bytes(self) -> int:
        """Size in bytes of a record's field that is an integer, or a host with an IPv4 address."""
        return V4_BYTES if self.kind == "host" else struct.calcsize(">" + _LETTERS[self.kind])


FIELDS: Final = (
    Field("size", "int32"),
    Field("magic", "uint32"),
    Field("body_crc", "uint32"),
    Field("queue_id", "int32"),
    Field("flag", "int32"),
    Field("queue_offset", "int64"),
    Field("physical_offset", "int64"),
    Field("sys_flag", "int32"),
    Field("born_timestamp", "int64"),
    Field("born_host", "host"),
    Field("store_timestamp", "int64"),
    Field("store_host", "host"),
    Field("reconsume_times", "int32"),
    Field("prepared_offset", "int64"),
    Field("body_length", "int32"),
    Field("body", "bytes", "body_length"),
    Field("topic_length", "int8"),
    Field("topic", "bytes", "topic_length"),
    Field("properties_length", "int16"),
    Field("properties", "bytes", "properties_length"),
)
"""All fields of a record, in their order."""
HEAD: Final = FIELDS[: next(at for at, field in enumerate(FIELDS) if field.kind == "bytes")]
"""The fields before the body, whose positions are fixed in a record with IPv4 hosts."""
HEAD_AT: Final = dict(
    zip([field.name for field in HEAD], accumulate([field.size_bytes for field in HEAD], initial=0), strict=False)
)
"""The position of each field of :data:`HEAD` in a record with IPv4 hosts, keyed by field name."""
V6_MORE_BYTES: Final = V6_BYTES - V4_BYTES
"""Number of bytes by which an IPv6 host shifts the following fields of a record."""


def head_format(sys_flag: int = 0, first: str = "size", last: str = "body_length") -> str:
    """Return the :mod:`struct` format of the fields of :data:`HEAD` from ``first`` to ``last``. The sysFlag says which hosts
    are IPv6.
    """
    sizes = {
        "born_host": V6_BYTES if sys_flag & BORN_HOST_V6 else V4_BYTES,
        "store_host": V6_BYTES if sys_flag & STORE_HOST_V6 else V4_BYTES,
    }
    names = [field.name for field in HEAD]
    fields = HEAD[names.index(first) : names.index(last) + 1]
    return "".join([f"{sizes[field.name]}s" if field.kind == "host" else _LETTERS[field.kind] for field in fields])


HEAD_V4: Final = struct.Struct(">" + head_format())
"""The struct of all fields of :data:`HEAD`, in a record with IPv4 hosts."""
_HEADS: Final = {bits: struct.Struct(">" + head_format(bits)) for bits in (0, BORN_HOST_V6, STORE_HOST_V6, HOSTS_V6)}


def head_struct(sys_flag: int) -> struct.Struct:
    """Return the struct of all fields of :data:`HEAD`; the bits of the sysFlag say which hosts are IPv6."""
    return _HEADS[sys_flag & HOSTS_V6]


def picked(*names: str) -> struct.Struct:
    """Return a struct that unpacks some integer fields of a commit log record with IPv4 hosts, and skips its other fields.

    ``names`` are names of integer fields in :data:`HEAD`, which are the fields before the body. The struct unpacks the fields
    in the order in which they are stored, whatever the order of ``names`` is.
    """
    parts = [_LETTERS[field.kind] if field.name in names else f"{field.size_bytes}x" for field in HEAD]
    return struct.Struct(">" + "".join(parts).rstrip("x0123456789"))


def hosts_flag(born_host: bytes, store_host: bytes) -> int:
    """Return the sysFlag's bits that mark IPv6 hosts, from the lengths of two packed hosts."""
    born = BORN_HOST_V6 if len(born_host) == V6_BYTES else 0
    return born | (STORE_HOST_V6 if len(store_host) == V6_BYTES else 0)


def head_dtype() -> list[tuple[str, str]]:
    """Return the fields of :data:`HEAD`, with IPv4 hosts, as the description of a numpy structured type."""
    numbers = {"int32": ">i4", "uint32": ">u4", "int64": ">i8"}
    return [(field.name, numbers.get(field.kind, f"V{field.size_bytes}")) for field in HEAD]

"""Encodes and decodes the commit log's records, from which queues, index and all other files can be rebuilt.

The fields are in :mod:`flintmq.core.record.layout`. A file without space for the next record ends with a blank:
``remaining 4 | blank magic 4``. See docs/internals/store-format.md, Commit log record.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from flintmq.core.errors import StoreFormatError
from flintmq.core.io.paths import topic_folder
from flintmq.core.limits import PROPERTIES_MAX_BYTES, TOPIC_MAX_BYTES
from flintmq.core.record import properties as props
from flintmq.core.record.host import PORT_MAX, V4_BYTES, V6_BYTES
from flintmq.core.record.java_hash import tags_hash
from flintmq.core.record.layout import (
    FIELDS,
    HEAD_AT,
    HEAD_V4,
    V6_MORE_BYTES,
    head_struct,
    hosts_flag,
    picked,
)
from flintmq.core.record.sys_flag import BORN_HOST_V6, HOSTS_V6

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194
BLANK_MIN_BYTES: Final = 8
RECORD_MIN_BYTES: Final = sum(field.size_bytes for field in FIELDS if field.kind != "bytes")
"""Size of a record with IPv4 hosts and without body, topic and properties."""

SIZE_AND_MAGIC: Final = picked("size", "magic")
HEAD_V4_BYTES: Final = HEAD_V4.size
"""Size in bytes of the fields before the body, in a record with IPv4 hosts."""
pack_head_v4: Final = HEAD_V4.pack
"""Return the packed fields before the body of a record with IPv4 hosts. Raises ``struct.error`` if a value does not fit its
field."""
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_INT16: Final = struct.Struct(">h")
_SYS_FLAG_AT: Final = HEAD_AT["sys_flag"]
_STORE_TIMESTAMP_AT: Final = HEAD_AT["store_timestamp"]
_WIDE_TOPIC_MAX: Final = 2**15 - 1
"""Maximum length of a topic in a record with magic V2, because Java reads the two bytes that contain the length as a signed
number."""
_ANYWHERE: Final = Path()


About = tuple[int, str, str]
"""The values of a message that consume queues and index need: tags code (0 without tags), KEYS and UNIQ_KEY (each empty if the
message lacks the property)."""


class MessageExtBrokerInner(msgspec.Struct, gc=False):
    """A message to append to the commit log."""

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]
    properties_bytes: bytes
    """Stored form of the message's properties, in UTF-8. It can contain entries that ``properties`` lacks (store-format.md,
    Properties)."""
    born_timestamp_ms: int
    born_host: bytes
    """The sender's address and port, packed in 8 or 20 bytes."""
    store_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset_bytes: int = 0
    wait: bool = True
    """Whether the sender waits until the message is durable (property WAIT)."""
    about: About | None = None
    """Tags code, KEYS and UNIQ_KEY of the message if these values are already known; otherwise None.

    If the values are known, the message is not delayed or transactional, and its properties contain no NUL.
    """

    @property
    def tags_code(self) -> int:
        """The tags code of the message's unit in its consume queue."""
        return tags_hash(self.properties.get(props.TAGS, ""))


class Record(msgspec.Struct):
    """A decoded record of the commit log."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset_bytes: int
    """The physical offset stored in the record, which equals the record's position in the log."""
    size_bytes: int
    flag: int
    sys_flag: int
    body_crc: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset_bytes: int
    body: bytes
    properties_bytes: bytes

    @property
    def properties(self) -> dict[str, str]:
        """The message's properties as a new mapping; the stored properties are parsed at each access."""
        return props.string_to_properties(self.properties_bytes.decode("utf-8", "replace"))

    @property
    def keys(self) -> str:
        """The message's property KEYS, with keys separated by blanks; empty if the message has no KEYS."""
        return self.properties.get(props.KEYS, "")

    @property
    def uniq_key(self) -> str:
        """The message's property UNIQ_KEY; empty if the message has no UNIQ_KEY."""
        return self.properties.get(props.UNIQ_KEY, "")


class RecordError(ValueError):
    """The bytes at a position are not a complete, valid record of the commit log."""


@lru_cache(maxsize=8_192)
def topic_field(topic: str) -> bytes:
    """Return a topic as a record stores it, with its length byte.

    Raises:
        ValueError: the length does not fit a signed byte, or the name cannot be that of a folder.
    """
    raw = topic.encode("utf-8")
    if not 0 < len(raw) <= TOPIC_MAX_BYTES:
        raise ValueError(f"a topic has 1 to {TOPIC_MAX_BYTES} bytes, not {len(raw)}")
    try:
        topic_folder(_ANYWHERE, topic)
    except StoreFormatError as error:
        raise ValueError(str(error)) from error
    return bytes((len(raw),)) + raw


@lru_cache(maxsize=16_384)
def record_tail(topic: str, properties_length: int) -> bytes:
    """Return the bytes of a record between body and properties: the topic and the length of the properties.

    Raises:
        ValueError: the topic is invalid (see :func:`topic_field`), or the length does not fit a signed short.
    """
    if properties_length > PROPERTIES_MAX_BYTES:
        raise ValueError(f"properties have at most {PROPERTIES_MAX_BYTES} bytes, not {properties_length}")
    return topic_field(topic) + _INT16.pack(properties_length)


@lru_cache(maxsize=4_096)
def check_host(packed: bytes) -> None:
    """Check that clients can read a packed host as an address.

    Args:
        packed: the IP and port in the format of a record.

    Raises:
        ValueError: the host does not have 8 or 20 bytes, or its port is out of range.
    """
    if len(packed) not in (V4_BYTES, V6_BYTES):
        raise ValueError(f"a host has {V4_BYTES} or {V6_BYTES} bytes, not {len(packed)}")
    port = int.from_bytes(packed[-4:], "big", signed=True)
    if not 0 <= port <= PORT_MAX:
        raise ValueError(f"a port is 0 to {PORT_MAX}, not {port}")


def check_place(queue_id: int, queue_offset: int) -> None:
    """Raise ValueError if a queue id or a queue offset is negative."""
    if queue_id < 0 or queue_offset < 0:
        raise ValueError(f"a message cannot lie at offset {queue_offset} of queue {queue_id}")


def record_size(message: MessageExtBrokerInner) -> int:
    """Return the size of a message's record, in bytes."""
    return (
        RECORD_MIN_BYTES
        - 17
        + len(message.born_host)
        + len(message.store_host)
        + len(message.body)
        + len(topic_field(message.topic))
        + len(message.properties_bytes)
    )


def encode_record(
    message: MessageExtBrokerInner,
    size_bytes: int,
    queue_offset: int,
    commit_log_offset_bytes: int,
    store_timestamp_ms: int,
) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the record of a message as pieces of bytes, to be joined with the pieces of other records.

    ``size_bytes`` is the :func:`record_size` of the message. The IPv6 bits of the sysFlag are set from the hosts' lengths. The
    message's own bits are ignored, because a client chooses them and they determine the positions of all later fields.

    Raises:
        ValueError, struct.error: a field has a value that some reader of the format refuses.
    """
    body = message.body
    stored = message.properties_bytes
    born_host, store_host = message.born_host, message.store_host
    tail = record_tail(message.topic, len(stored))
    check_place(message.queue_id, queue_offset)
    check_host(born_host)
    check_host(store_host)
    sys_flag = message.sys_flag & ~HOSTS_V6
    pack = pack_head_v4
    if len(born_host) + len(store_host) > 2 * V4_BYTES:
        sys_flag |= hosts_flag(born_host, store_host)
        pack = head_struct(sys_flag).pack
    head = pack(
        size_bytes,
        MAGIC_V1,
        zlib.crc32(body) & 0x7FFFFFFF,
        message.queue_id,
        message.flag,
        queue_offset,
        commit_log_offset_bytes,
        sys_flag,
        message.born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        message.reconsume_times,
        message.prepared_transaction_offset_bytes,
        len(body),
    )
    return head, body, tail, stored


def encode_blank(remaining_bytes: int) -> bytes:
    """Return the blank that marks the end of a commit log file with ``remaining_bytes`` (at least 8) unused bytes."""
    return SIZE_AND_MAGIC.pack(remaining_bytes, MAGIC_BLANK)


Fields = tuple[tuple[Any, ...], int, int, int, int]
"""The values of a record's fixed fields (:data:`~flintmq.core.record.layout.HEAD`), and the positions of body, topic,
properties and the record's end."""


def read_fields(view: memoryview, position: int) -> Fields:
    """Return the fixed fields of the record at a position of a buffer, and the positions of its variable parts.

    Every length is checked against the record's size and the end of the buffer.

    Raises:
        RecordError: the bytes at the position are not a valid record; the message names the failed check.
    """
    left = len(view) - position
    if left < RECORD_MIN_BYTES:
        raise RecordError(f"only {left} bytes are left, but a record has at least {RECORD_MIN_BYTES}")
    values = HEAD_V4.unpack_from(view, position)
    size, magic = values[0], values[1]
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise RecordError(f"magic 0x{magic:08X} is not that of a record")
    if size < RECORD_MIN_BYTES or size > left:
        raise RecordError(f"size {size} does not fit in the {left} bytes that are left")
    fields = _measured(view, position, position + size, values)
    _values, _body_at, topic_at, properties_at, end = fields
    if end - properties_at > PROPERTIES_MAX_BYTES:
        raise RecordError(f"properties length {end - properties_at - 2 * (PROPERTIES_MAX_BYTES + 1)} is negative")
    topic_max = TOPIC_MAX_BYTES if magic == MAGIC_V1 else _WIDE_TOPIC_MAX
    if properties_at - 2 - topic_at > topic_max:
        raise RecordError(f"topic length {properties_at - 2 - topic_at - 2 * (topic_max + 1)} is negative")
    if end != position + size:
        raise RecordError(f"the fields take {end - position} bytes, but the record's size field contains {size}")
    return fields


def inner_end(view: memoryview, position: int) -> int | None:
    """Return the end of the record at a position, computed from the lengths of its parts instead of its stated size; None if
    the end is beyond the buffer."""
    limit = len(view)
    if limit - position < RECORD_MIN_BYTES:
        return None
    try:
        end = _measured(view, position, limit, HEAD_V4.unpack_from(view, position))[4]
    except RecordError:
        return None
    return end if end <= limit else None


def _measured(view: memoryview, position: int, limit: int, values: tuple[Any, ...]) -> Fields:
    """Return the fields of the record at a position, with its lengths read as unsigned numbers.

    Args:
        view: the buffer.
        position: the start of the record.
        limit: the position in the buffer that no field before the properties may exceed.
        values: the fields of the head, unpacked as if both hosts were IPv4.

    Raises:
        RecordError: a length exceeds the limit.
    """
    body_at = position + HEAD_V4_BYTES
    if values[7] & HOSTS_V6:
        head = head_struct(values[7])
        body_at = position + head.size
        if body_at > limit:
            raise RecordError(f"size {values[0]} has no room for the fixed fields")
        values = head.unpack_from(view, position)
    body_length = values[14]
    topic_at = body_at + body_length + 1
    is_wide = values[1] == MAGIC_V2
    if body_length < 0 or topic_at + is_wide > limit:
        raise RecordError(f"body length {body_length} does not fit size {values[0]}")
    topic_length = view[topic_at - 1]
    if is_wide:
        topic_length = topic_length << 8 | view[topic_at]
        topic_at += 1
    properties_at = topic_at + topic_length + 2
    if properties_at > limit:
        raise RecordError(f"topic length {topic_length} does not fit size {values[0]}")
    end = properties_at + (view[properties_at - 2] << 8 | view[properties_at - 1])
    return values, body_at, topic_at, properties_at, end


def decode_record(buffer: bytes | memoryview, position: int = 0, *, check_crc: bool = True) -> Record:
    """Return the decoded record at a position of a buffer.

    Raises:
        RecordError: the bytes at the position are not a valid record; the message names the failed check.
    """
    view = memoryview(buffer)
    values, body_at, topic_at, properties_at, end = read_fields(view, position)
    (
        size,
        _magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_offset,
        body_length,
    ) = values
    body = bytes(view[body_at : body_at + body_length])
    if check_crc and body_length and zlib.crc32(body) & 0x7FFFFFFF != crc:
        raise RecordError(
            f"the body has CRC 0x{zlib.crc32(body) & 0x7FFFFFFF:08X}, but the record contains 0x{crc:08X}"
        )
    return Record(
        read_topic(view, topic_at, properties_at),
        queue_id,
        queue_offset,
        physical,
        size,
        flag,
        sys_flag,
        crc,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_offset,
        body,
        bytes(view[properties_at:end]),
    )


def read_topic(view: memoryview, topic_at: int, properties_at: int) -> str:
    """Return the topic of a record, from the positions of :func:`read_fields`. Raises RecordError if the topic is not UTF-8."""
    try:
        return str(view[topic_at : properties_at - 2], "utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"the topic is not UTF-8: {error}") from error


def decode_records(buffer: bytes | memoryview) -> list[Record]:
    """Return the decoded records of a buffer with consecutive records, such as the body of a pull's answer.

    Raises:
        RecordError: one of the records is not valid.
    """
    records = []
    position = 0
    view = memoryview(buffer)
    while position < len(view):
        record = decode_record(view, position)
        records.append(record)
        position += record.size_bytes
    return records


def sys_flag_at(buffer: bytes | memoryview, position: int) -> int:
    """Return the sysFlag of the record at a position of a buffer; the record must be valid."""
    return int(_INT32.unpack_from(buffer, position + _SYS_FLAG_AT)[0])


def store_timestamp_at(buffer: memoryview, position: int) -> int:
    """Return the store time, in ms since 1970, of the record at a position of a buffer, without decoding the rest. The record
    must be valid."""
    v6 = sys_flag_at(buffer, position) & BORN_HOST_V6
    (timestamp,) = _INT64.unpack_from(buffer, position + _STORE_TIMESTAMP_AT + (V6_MORE_BYTES if v6 else 0))
    return int(timestamp)

"""The commit log record (docs/internals/store-format.md, Commit log record), the one format everything else is derived from.

::

    size 4 | magic 4 | body crc 4 | queueId 4 | flag 4 | queueOffset 8 | physicalOffset 8 | sysFlag 4 | bornTimestamp 8 |
    bornHost 8|20 | storeTimestamp 8 | storeHost 8|20 | reconsumeTimes 4 | preparedTransactionOffset 8 |
    bodyLength 4, body | topicLength 1, topic | propertiesLength 2, properties

Big-endian. Magic V2 differs in one thing: topicLength has two bytes. A file that has no room for the next record ends in a
BLANK: ``remaining 4 | blank magic 4``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from flintmq.core.errors import StoreFormatError
from flintmq.core.io.paths import topic_folder
from flintmq.core.limits import PROPERTIES_MAX_BYTES, TOPIC_MAX_BYTES
from flintmq.core.record import properties as props
from flintmq.core.record.host import PORT_MAX, V4_BYTES, V6_BYTES
from flintmq.core.record.java_hash import tags_hash
from flintmq.core.record.sys_flag import BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194
BLANK_MIN_BYTES: Final = 8
RECORD_MIN_BYTES: Final = 91
"""An IPv4 record without body, topic and properties."""

SIZE_AND_MAGIC: Final = struct.Struct(">II")
_HEAD_V4: Final = struct.Struct(">iIIiiqqiq8sq8siqi")
_HEAD_START: Final = struct.Struct(">iIIiiqqiq")
_HEAD_END: Final = struct.Struct(">iqi")
HEAD_V4_BYTES: Final = _HEAD_V4.size
"""Everything before the body, of a record between IPv4 hosts."""
pack_head_v4: Final = _HEAD_V4.pack
"""Packs it, from the fields in their order; struct.error where one has a value that the record cannot hold."""
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_INT16: Final = struct.Struct(">h")
_INT8: Final = struct.Struct(">b")
_ANYWHERE: Final = Path()


About = tuple[int, str, str]
"""What queues and index want of a message's properties: tags code, KEYS, UNIQ_KEY; 0 and empty where there is none."""


class MessageExtBrokerInner(msgspec.Struct, gc=False):
    """A message on its way into the commit log."""

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]
    properties_bytes: bytes
    """What is stored, UTF-8. May say more than ``properties`` (see docs/internals/store-format.md, Properties)."""
    born_timestamp_ms: int
    born_host: bytes
    """Packed, 8 or 20 bytes."""
    store_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset_bytes: int = 0
    wait: bool = True
    """False when the sender does not wait for durability (property WAIT)."""
    about: About | None = None
    """Where it is known without a look at the properties; such a message waits for nothing else, and has no NUL in it."""

    @property
    def tags_code(self) -> int:
        """The consume queue's tags code."""
        tags = self.properties.get(props.TAGS)
        return tags_hash(tags) if tags else 0


class Record(msgspec.Struct):
    """A record read back."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset_bytes: int
    """As written in the record; equals its place in the log."""
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
        """Parsed anew at each call."""
        return props.string_to_properties(self.properties_bytes.decode("utf-8", "replace"))


class RecordError(ValueError):
    """Bytes that are no whole, valid record."""


@lru_cache(maxsize=8_192)
def topic_field(topic: str) -> bytes:
    """The record's topic with its length byte.

    Raises:
        ValueError: its length is no signed byte's, or its queues could have no folder.
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
    """What lies between body and properties: the topic, and the properties' length.

    Raises:
        ValueError: the topic is none (see :func:`topic_field`), or the length is no signed short.
    """
    if properties_length > PROPERTIES_MAX_BYTES:
        raise ValueError(f"properties have at most {PROPERTIES_MAX_BYTES} bytes, not {properties_length}")
    return topic_field(topic) + _INT16.pack(properties_length)


@lru_cache(maxsize=4_096)
def check_host(packed: bytes) -> None:
    """Refuses what clients cannot take for an address.

    Args:
        packed: IP and port, as in the record.

    Raises:
        ValueError: it has neither 8 nor 20 bytes, or its port is none.
    """
    if len(packed) not in (V4_BYTES, V6_BYTES):
        raise ValueError(f"a host has {V4_BYTES} or {V6_BYTES} bytes, not {len(packed)}")
    port = int.from_bytes(packed[-4:], "big", signed=True)
    if not 0 <= port <= PORT_MAX:
        raise ValueError(f"a port is 0 to {PORT_MAX}, not {port}")


def check_place(queue_id: int, queue_offset: int) -> None:
    """Refuses a place that no queue has. Raises ValueError."""
    if queue_id < 0 or queue_offset < 0:
        raise ValueError(f"a message cannot lie at offset {queue_offset} of queue {queue_id}")


def record_size(message: MessageExtBrokerInner) -> int:
    """How many bytes the record will take."""
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
    """The record's pieces, to be joined with those of other records.

    ``size_bytes`` is :func:`record_size` of the message. The IPv6 bits of the flag are set from the hosts' lengths,
    whatever the message says: a client chooses its sysFlag, and the bits decide where every later field lies.

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
    if len(born_host) == 8 and len(store_host) == 8:
        head = _HEAD_V4.pack(
            size_bytes,
            MAGIC_V1,
            zlib.crc32(body) & 0x7FFFFFFF,
            message.queue_id,
            message.flag,
            queue_offset,
            commit_log_offset_bytes,
            message.sys_flag & ~HOSTS_V6,
            message.born_timestamp_ms,
            born_host,
            store_timestamp_ms,
            store_host,
            message.reconsume_times,
            message.prepared_transaction_offset_bytes,
            len(body),
        )
    else:
        sys_flag = message.sys_flag & ~HOSTS_V6
        sys_flag |= BORN_HOST_V6 if len(born_host) == 20 else 0
        sys_flag |= STORE_HOST_V6 if len(store_host) == 20 else 0
        head = b"".join(
            (
                _HEAD_START.pack(
                    size_bytes,
                    MAGIC_V1,
                    zlib.crc32(body) & 0x7FFFFFFF,
                    message.queue_id,
                    message.flag,
                    queue_offset,
                    commit_log_offset_bytes,
                    sys_flag,
                    message.born_timestamp_ms,
                ),
                born_host,
                _INT64.pack(store_timestamp_ms),
                store_host,
                _HEAD_END.pack(message.reconsume_times, message.prepared_transaction_offset_bytes, len(body)),
            )
        )
    return head, body, tail, stored


def encode_blank(remaining_bytes: int) -> bytes:
    """The end-of-file mark for a file with so many bytes left (at least 8)."""
    return SIZE_AND_MAGIC.pack(remaining_bytes, MAGIC_BLANK)


def decode_record(buffer: bytes | memoryview, position: int = 0, *, check_crc: bool = True) -> Record:
    """Reads the record at a position of a buffer.

    Every length is checked against the record's own size and the buffer's end, so that garbage raises and is never followed.

    Raises:
        RecordError: no valid record is there; says which check failed.
    """
    view = memoryview(buffer)
    end_of_buffer = len(view)
    if end_of_buffer - position < RECORD_MIN_BYTES:
        raise RecordError(f"{end_of_buffer - position} bytes left, a record has at least {RECORD_MIN_BYTES}")
    size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born_timestamp = _HEAD_START.unpack_from(
        view, position
    )
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordError(f"magic 0x{magic:08X} is no record's")
    end = position + size
    if size < RECORD_MIN_BYTES or end > end_of_buffer:
        raise RecordError(f"size {size} does not fit the {end_of_buffer - position} bytes there")
    at = position + _HEAD_START.size
    born_bytes = 20 if sys_flag & BORN_HOST_V6 else 8
    store_bytes = 20 if sys_flag & STORE_HOST_V6 else 8
    if at + born_bytes + 8 + store_bytes + _HEAD_END.size > end:
        raise RecordError(f"size {size} has no room for the fixed fields")
    born_host = bytes(view[at : at + born_bytes])
    at += born_bytes
    (store_timestamp,) = _INT64.unpack_from(view, at)
    at += 8
    store_host = bytes(view[at : at + store_bytes])
    at += store_bytes
    reconsume_times, prepared_offset, body_length = _HEAD_END.unpack_from(view, at)
    at += _HEAD_END.size
    topic_length_bytes = 1 if magic == MAGIC_V1 else 2
    if body_length < 0 or at + body_length + topic_length_bytes > end:
        raise RecordError(f"body length {body_length} does not fit size {size}")
    body = bytes(view[at : at + body_length])
    at += body_length
    if check_crc and body_length and zlib.crc32(body) & 0x7FFFFFFF != crc:
        raise RecordError(f"body CRC 0x{zlib.crc32(body) & 0x7FFFFFFF:08X}, the record says 0x{crc:08X}")
    topic_length = _INT8.unpack_from(view, at)[0] if topic_length_bytes == 1 else _INT16.unpack_from(view, at)[0]
    at += topic_length_bytes
    if topic_length < 0:
        raise RecordError(f"topic length {topic_length} is negative")
    if at + topic_length + 2 > end:
        raise RecordError(f"topic length {topic_length} does not fit size {size}")
    try:
        topic = str(view[at : at + topic_length], "utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"the topic is not UTF-8: {error}") from error
    at += topic_length
    (properties_length,) = _INT16.unpack_from(view, at)
    at += 2
    if properties_length < 0:
        raise RecordError(f"properties length {properties_length} is negative")
    if at + properties_length != end:
        raise RecordError(f"the fields take {at + properties_length - position} bytes, the record says {size}")
    return Record(
        topic,
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
        bytes(view[at:end]),
    )


def decode_records(buffer: bytes | memoryview) -> list[Record]:
    """Reads records that lie one behind the other, as a pull's answer carries them."""
    records = []
    position = 0
    view = memoryview(buffer)
    while position < len(view):
        record = decode_record(view, position)
        records.append(record)
        position += record.size_bytes
    return records


def sys_flag_at(buffer: bytes | memoryview, position: int) -> int:
    """The flag of a record known to be valid, or of its head."""
    return int(_INT32.unpack_from(buffer, position + 36)[0])


def store_timestamp_at(buffer: memoryview, position: int) -> int:
    """The store timestamp of a record known to be valid, without decoding the rest."""
    v6 = sys_flag_at(buffer, position) & BORN_HOST_V6
    (timestamp,) = _INT64.unpack_from(buffer, position + (68 if v6 else 56))
    return int(timestamp)

"""Encodes the records of a batch by columns: the bytes that all records share are encoded once.

See docs/internals/store-format.md, Batch item.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, count, repeat
from typing import Final
from zlib import crc32

from flintmq.core.record.batch import MessageBatch
from flintmq.core.record.layout import HEAD_AT, head_format, hosts_flag
from flintmq.core.record.properties import AlikeProperties, has_nul, nul_error
from flintmq.core.record.record import MAGIC_V1, RECORD_MIN_BYTES, check_host, check_place, record_tail, topic_field
from flintmq.core.record.rows import rows_struct
from flintmq.core.record.sys_flag import BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6

_SHARED: Final = {
    bits: struct.Struct(">" + head_format(bits, "sys_flag", "prepared_offset"))
    for bits in (0, BORN_HOST_V6, STORE_HOST_V6, HOSTS_V6)
}
"""Structs of the fields that all records of a batch share, keyed by the IPv6 bits of the sysFlag."""
_HEADS: Final = {
    shared.size: struct.Struct(
        f">{head_format(last='physical_offset')}{shared.size}s{head_format(first='body_length')}"
    )
    for shared in _SHARED.values()
}
"""Structs that pack the fields of a record before its body. Some of these fields have the same values in all records of a
batch. The struct takes these fields as one bytes object, which is packed once for the batch. The structs are keyed by the size
of this object in bytes, which depends on whether the record's hosts have IPv4 or IPv6 addresses."""
_CRC_AT: Final = HEAD_AT["body_crc"]
_QUEUE_ID_AT: Final = HEAD_AT["queue_id"]
_QUEUE_OFFSET_AT: Final = HEAD_AT["queue_offset"]
_SYS_FLAG_AT: Final = HEAD_AT["sys_flag"]
_CRC_MASK: Final = 0x7FFFFFFF

Records = tuple[Sequence[bytes], Sequence[int]]
"""Bytes of consecutive records, in pieces that are to be joined, and the physical offset of each record."""


def record_sizes(batch: MessageBatch) -> list[int]:
    """Return the size in bytes of the record of each message in a batch."""
    overhead, stored = _overhead(batch), batch.stored_properties
    body_lengths = [*map(len, batch.bodies)]
    if not isinstance(stored, AlikeProperties):
        return [overhead + body + properties for body, properties in zip(body_lengths, map(len, stored), strict=True)]
    overhead += stored.length
    if body_lengths.count(body_lengths[0]) == len(body_lengths):
        return [overhead + body_lengths[0]] * len(body_lengths)
    return [overhead + body for body in body_lengths]


def batch_sys_flag(batch: MessageBatch) -> int:
    """Return the sysFlag to store for a batch, with its IPv6 bits set by the hosts (see :func:`.record.encode_record`)."""
    return batch.sys_flag & ~HOSTS_V6 | hosts_flag(batch.born_host, batch.store_host)


def batch_records(
    batch: MessageBatch,
    sizes: Sequence[int],
    first_queue_offset: int,
    physical_offset_bytes: int,
    store_timestamp_ms: int,
) -> Records:
    """Return the encoded records of a batch, which follow each other without gaps.

    Args:
        batch: the messages.
        sizes: the result of :func:`record_sizes`.
        first_queue_offset, physical_offset_bytes: the queue offset and physical offset of the first record.
        store_timestamp_ms: the store time of all records.

    Raises:
        ValueError, struct.error: a field has a value that some reader of the format refuses, or the properties contain the
            character NUL.
    """
    bodies, stored = batch.bodies, batch.stored_properties
    if has_nul(stored):
        raise nul_error()
    check_place(batch.queue_id, first_queue_offset)
    check_host(batch.born_host)
    check_host(batch.store_host)
    pack_head, shared = _head_packer(batch, store_timestamp_ms)
    size, flag, number = sizes[0], batch.flags[0], len(bodies)
    if isinstance(stored, AlikeProperties) and sizes.count(size) == number and batch.flags.count(flag) == number:
        at = range(physical_offset_bytes, physical_offset_bytes + size * number, size)
        head = pack_head(size, MAGIC_V1, 0, batch.queue_id, flag, 0, 0, shared, len(bodies[0]))
        return [_of_one_size(batch, stored, head, first_queue_offset, at)], at
    positions = [*accumulate(sizes[:-1], initial=physical_offset_bytes)]
    heads = [
        pack_head(size, MAGIC_V1, crc & _CRC_MASK, batch.queue_id, flag, queue_offset, at, shared, body_length)
        for size, crc, flag, queue_offset, at, body_length in zip(
            sizes, map(crc32, bodies), batch.flags, count(first_queue_offset), positions, map(len, bodies), strict=False
        )
    ]
    tails = map(record_tail, repeat(batch.topic), map(len, stored))
    return [*chain.from_iterable(zip(heads, bodies, tails, stored, strict=True))], positions


def _of_one_size(
    batch: MessageBatch, stored: AlikeProperties, head: bytes, first_queue_offset: int, positions: range
) -> bytes:
    """Return the records of a batch by one pack call. The records must differ only in body, UNIQ_KEY and offsets.

    Args:
        batch: the messages.
        stored: the properties of the messages.
        head: the bytes before the body of any record; the varying fields are replaced.
        first_queue_offset: the queue offset of the first record.
        positions: the physical offsets of the records.
    """
    tail = record_tail(batch.topic, stored.length) + stored.before
    parts = (
        head[:_CRC_AT],
        0,
        head[_QUEUE_ID_AT:_QUEUE_OFFSET_AT],
        0,
        0,
        head[_SYS_FLAG_AT:],
        b"",
        tail,
        b"",
        stored.behind,
    )
    lengths = (
        len(head) - _SYS_FLAG_AT,
        len(batch.bodies[0]),
        len(tail),
        len(stored.uniq_keys[0]),
        len(stored.behind),
    )
    number = len(positions)
    fields: list[bytes | int] = [*parts] * number
    columns = len(parts)
    fields[1::columns] = [crc & _CRC_MASK for crc in map(crc32, batch.bodies)]
    fields[3::columns] = range(first_queue_offset, first_queue_offset + number)
    fields[4::columns] = positions
    fields[6::columns] = batch.bodies
    fields[8::columns] = stored.uniq_keys
    return rows_struct(number, "8sI8sqq%ds%ds%ds%ds%ds", *lengths).pack(*fields)


def _overhead(batch: MessageBatch) -> int:
    """Return the size of a record of the batch without its body and properties, in bytes."""
    return RECORD_MIN_BYTES - 17 + len(batch.born_host) + len(batch.store_host) + len(topic_field(batch.topic))


def _head_packer(batch: MessageBatch, store_timestamp_ms: int) -> tuple[Callable[..., bytes], bytes]:
    """Return a function that encodes the fields before the body of a record, and the encoded fields that are equal in all
    records of the batch: sysFlag, born time and host, store time and host, reconsume times and preparedOffset.

    The function's arguments are: size, magic, body CRC, queue id, flag, queue offset, physical offset, the encoded equal
    fields, body length.

    Raises:
        struct.error: one of the equal fields has a value that a record cannot hold.
    """
    born_host, store_host = batch.born_host, batch.store_host
    sys_flag = batch_sys_flag(batch)
    shared = _SHARED[sys_flag & HOSTS_V6].pack(
        sys_flag,
        batch.born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        batch.reconsume_times,
        0,
    )
    return _HEADS[len(shared)].pack, shared

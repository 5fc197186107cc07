"""The body of a batch send: several messages of one topic and queue (docs/internals/store-format.md, Batch item)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

import msgspec

from flintmq.core.limits import BATCH_MAX_MESSAGES, PROPERTIES_MAX_BYTES
from flintmq.core.record.bulk_texts import tags_hashes
from flintmq.core.record.java_hash import tags_hash
from flintmq.core.record.properties import AlikeProperties, index_columns, uniq_key_place
from flintmq.core.record.rows import rows_struct

_ITEM_HEAD: Final = struct.Struct(">iiiii")
_HEAD_BYTES: Final = _ITEM_HEAD.size
_ITEM_MIN_BYTES: Final = _HEAD_BYTES + 2
_INT16: Final = struct.Struct(">h")
_PART: Final = 256


class BatchItem(msgspec.Struct, gc=False):
    """A message of a batch send, as an item in the body of the request."""

    flag: int
    body: bytes
    properties_bytes: bytes

    @property
    def size_bytes(self) -> int:
        """Size of the item in the body of a batch, in bytes."""
        return _ITEM_MIN_BYTES + len(self.body) + len(self.properties_bytes)


class BatchError(ValueError):
    """The body of a batch send cannot be decoded into messages."""


Found = tuple[Sequence[int], Sequence[str], Sequence[bytes]]
"""Three columns with an item per message: tags codes, KEYS, and UNIQ_KEY in UTF-8."""


class MessageBatch(msgspec.Struct, gc=False):
    """The messages of a batch send, which are stored together in one queue. Fields that differ between messages are columns."""

    topic: str
    queue_id: int
    flags: Sequence[int]
    bodies: Sequence[bytes]
    """Bodies of the batch's messages, at least one. All columns of the batch have the same length."""
    stored_properties: Sequence[bytes]
    """Stored properties of each message of the batch, in UTF-8."""
    born_timestamp_ms: int
    born_host: bytes
    """The sender's address and port, packed in 8 or 20 bytes."""
    store_host: bytes
    sys_flag: int = 0
    """System flag of all messages of the batch; a batch cannot contain transactional messages."""
    reconsume_times: int = 0
    wait: bool = True
    """Whether the sender waits until its messages are durable (property WAIT)."""
    may_wait: bool = True
    """Whether a message of the batch may ask for a delay, a time of delivery or a transaction
    (:func:`.properties.may_wait`)."""
    found: Found | None = None
    """Tags codes, KEYS and UNIQ_KEYs of the batch, as cached by :func:`look_into`; None before the first call."""


def look_into(batch: MessageBatch) -> Found:
    """Return the tags codes, KEYS and UNIQ_KEYs of a batch, which consume queues and index need; the batch caches them."""
    if batch.found is None:
        batch.found = _look_into(batch.stored_properties)
    return batch.found


def look_into_steps(batch: MessageBatch) -> Iterator[Callable[[], None]]:
    """Yield functions that together examine a batch as :func:`look_into` does; the caller calls them in order.

    Examining a large batch takes long, so the caller can do other work between two functions.
    """
    all_stored = batch.stored_properties
    # A batch whose messages differ only in UNIQ_KEY is examined by one function, without pauses for other work.
    # Examining messages that differ only in UNIQ_KEY is fast, because their other properties are parsed only once.
    part = len(all_stored) if isinstance(all_stored, AlikeProperties) else _PART
    parts: list[Found] = []

    def look(at: int) -> None:
        parts.append(_look_into(all_stored[at : at + part]))

    def join() -> None:
        tags_codes, keys, uniq_keys = zip(*parts, strict=True)
        batch.found = (
            [*chain.from_iterable(tags_codes)],
            [*chain.from_iterable(keys)],
            [*chain.from_iterable(uniq_keys)],
        )

    yield from (partial(look, at) for at in range(0, len(all_stored), part))
    yield join


def _look_into(all_stored: Sequence[bytes]) -> Found:
    tags, keys, uniq_keys = index_columns(all_stored)
    count = len(tags)
    if tags.count(tags[0]) == count:
        return [tags_hash(tags[0])] * count, keys, uniq_keys
    return [*tags_hashes(tags)], keys, uniq_keys


Columns = tuple[Sequence[int], Sequence[bytes], Sequence[bytes]]
"""Three columns with an item per message: flags, bodies and stored properties."""


def decode_batch(body: bytes) -> list[BatchItem]:
    """Return the items in the body of a batch.

    Raises:
        BatchError: a length is inconsistent, or there are more than ``BATCH_MAX_MESSAGES`` items.
    """
    return list(map(BatchItem, *decode_columns(body)))


def decode_columns(body: bytes) -> Columns:
    """Return the items in the body of a batch as columns, without an object for each message; see :func:`decode_batch`."""
    alike = _decode_alike(body)
    if alike is not None:
        return alike
    flags: list[int] = []
    bodies: list[bytes] = []
    properties: list[bytes] = []
    position, end = 0, len(body)
    unpack_head = _ITEM_HEAD.unpack_from
    for _ in range(BATCH_MAX_MESSAGES):
        if position >= end:
            break
        if end - position < _ITEM_MIN_BYTES:
            raise BatchError(
                f"only {end - position} bytes are left at position {position}, but an item has at least {_ITEM_MIN_BYTES}"
            )
        total, _magic, _crc, flag, body_length = unpack_head(body, position)
        body_start = position + _HEAD_BYTES
        properties_start = body_start + body_length + 2
        if body_length < 0 or properties_start > end:
            raise BatchError(f"body length {body_length} of the item at {position} does not fit in the batch")
        properties_length = body[properties_start - 2] << 8 | body[properties_start - 1]
        item_end = properties_start + properties_length
        if properties_length > PROPERTIES_MAX_BYTES or item_end > end or total != item_end - position:
            raise BatchError(
                f"the size field of the item at {position} is {total}, but the item's fields have {item_end - position} bytes"
            )
        flags.append(flag)
        bodies.append(body[body_start : properties_start - 2])
        properties.append(body[properties_start:item_end])
        position = item_end
    if position < end:
        raise BatchError(f"more than {BATCH_MAX_MESSAGES} messages in one batch")
    return flags, bodies, AlikeProperties.found_in(properties) or properties if properties else properties


def _decode_alike(body: bytes) -> Columns | None:
    """Return the columns of a batch's items by one unpack call if all items have the flag and the lengths of the first item;
    otherwise None."""
    if len(body) < _ITEM_MIN_BYTES:
        return None
    total, _magic, _crc, flag, body_length = _ITEM_HEAD.unpack_from(body)
    properties_length = total - _ITEM_MIN_BYTES - body_length
    if not 0 <= body_length <= len(body) or not 0 <= properties_length <= min(len(body), PROPERTIES_MAX_BYTES):
        return None
    count, rest = divmod(len(body), total)
    if rest or not 1 < count <= BATCH_MAX_MESSAGES:
        return None
    begin, end = uniq_key_place(body[total - properties_length : total])
    if begin < end:
        alike = _decode_all_alike(body, count, total, body_length, total - properties_length + begin, end - begin)
        if alike is not None:
            return [flag] * count, *alike
    fields = rows_struct(count, "i8xii%dsh%ds", body_length, properties_length).unpack(body)
    totals, flags, body_lengths, bodies, properties_lengths, properties = (fields[at::6] for at in range(6))
    if (
        totals.count(total) == count
        and body_lengths.count(body_length) == count
        and properties_lengths.count(properties_length) == count
    ):
        return flags, bodies, properties
    return None


def _decode_all_alike(
    body: bytes, count: int, total: int, body_length: int, key_at: int, key_length: int
) -> tuple[Sequence[bytes], AlikeProperties] | None:
    """Return the bodies and properties of a batch's items if the items differ only in body and UNIQ_KEY; otherwise None.

    Args:
        body: the body of the batch.
        count: the number of items.
        total: the size of each item in bytes.
        body_length: the size of each item's body.
        key_at: the position of the value of UNIQ_KEY in an item.
        key_length: the length of that value.
    """
    body_end = _HEAD_BYTES + body_length
    key_end = key_at + key_length
    lengths = _HEAD_BYTES, body_length, key_at - body_end, key_length, total - key_end
    fields = rows_struct(count, "%dx%ds%dx%ds%dx", *lengths).unpack(body)
    bodies, keys = fields[0::2], fields[1::2]
    # The batch is rebuilt from each item's body and UNIQ_KEY, and from the other bytes of the first item.
    # If the rebuilt batch differs from ``body``, the items of the batch differ in more than body and UNIQ_KEY.
    parts = [b"", body[body_end:key_at], b"", body[key_end:total] + body[:_HEAD_BYTES]] * count
    parts[0::4], parts[2::4] = bodies, keys
    parts[-1] = body[key_end:total]
    if body[:_HEAD_BYTES] + b"".join(parts) != body:
        return None
    properties = AlikeProperties.of(body[body_end + 2 : key_at], keys, body[key_end:total])
    return None if properties is None else (bodies, properties)


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """Return the body of a batch that contains the given items; the inverse of :func:`decode_batch`."""
    parts: list[bytes] = []
    for item in items:
        total = _ITEM_HEAD.size + len(item.body) + 2 + len(item.properties_bytes)
        parts += (
            _ITEM_HEAD.pack(total, 0, 0, item.flag, len(item.body)),
            item.body,
            _INT16.pack(len(item.properties_bytes)),
            item.properties_bytes,
        )
    return b"".join(parts)

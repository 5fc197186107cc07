"""The body of a batch send: several messages of one topic and queue (reference: store-format 2.3)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from flintmq.core.limits import BATCH_MAX_MESSAGES

_ITEM_HEAD: Final = struct.Struct(">iiiii")
_INT16: Final = struct.Struct(">h")


class BatchItem(msgspec.Struct, gc=False):
    """One message of a batch."""

    flag: int
    body: bytes
    properties_bytes: bytes


class BatchError(ValueError):
    """A batch body that cannot be taken apart."""


def decode_batch(body: bytes) -> list[BatchItem]:
    """Takes a batch body apart.

    Raises:
        BatchError: lengths that do not fit, or more than ``BATCH_MAX_MESSAGES`` items.
    """
    items: list[BatchItem] = []
    position, end = 0, len(body)
    while position < end:
        if end - position < _ITEM_HEAD.size + 2:
            raise BatchError(f"{end - position} bytes left at {position}, an item has at least {_ITEM_HEAD.size + 2}")
        total, _magic, _crc, flag, body_length = _ITEM_HEAD.unpack_from(body, position)
        body_start = position + _ITEM_HEAD.size
        properties_start = body_start + body_length + 2
        if body_length < 0 or properties_start > end:
            raise BatchError(f"body length {body_length} of the item at {position} does not fit")
        (properties_length,) = _INT16.unpack_from(body, properties_start - 2)
        item_end = properties_start + properties_length
        if properties_length < 0 or item_end > end or total != item_end - position:
            raise BatchError(f"the item at {position} says {total} bytes, its fields take {item_end - position}")
        items.append(BatchItem(flag, body[body_start : body_start + body_length], body[properties_start:item_end]))
        if len(items) > BATCH_MAX_MESSAGES:
            raise BatchError(f"more than {BATCH_MAX_MESSAGES} messages in one batch")
        position = item_end
    return items


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The inverse of :func:`decode_batch`."""
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

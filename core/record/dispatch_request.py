"""The values that describe stored records to the dispatchers: a single record, or the records of a batch send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, repeat
from typing import cast

import msgspec

from flintmq.core.record.properties import stored_properties


class DispatchRequest(msgspec.Struct, gc=False):
    """A description of a stored record, which dispatchers receive. Read-only by convention.

    The description does not contain the message's body. A dispatcher reads bodies from the log with ``context.bodies(batch)``,
    where ``context`` is the argument of the dispatcher's factory.

    See docs/internals/algorithms.md, Dispatch.
    """

    topic: str
    queue_id: int
    commit_log_offset_bytes: int
    """Physical offset of the record."""
    message_size_bytes: int
    tags_code: int
    """Tags code of the message: the Java hash of TAGS as a signed 64-bit number, or 0 without tags; in the schedule topic, the
    delivery time in ms."""
    store_timestamp_ms: int
    queue_offset: int
    """Number of the message in its queue, from 0."""
    keys: str
    """Property KEYS of the message, with keys separated by blanks; empty if the message has no KEYS."""
    uniq_key: str
    """Property UNIQ_KEY of the message; empty if the message has no UNIQ_KEY."""
    sys_flag: int
    prepared_transaction_offset_bytes: int
    properties: Mapping[str, str]
    bit_map: bytes | None = None
    """Bit map of the groups whose filters the record matches; None unless a dispatcher has computed it.

    See docs/internals/store-format.md, Bloom filter.
    """


class AppendedBatch(msgspec.Struct, gc=False):
    """The consecutive records of a batch send, in one object instead of a :class:`DispatchRequest` for each message. Read-only.

    The sequences contain one value for each message. The fields that a :class:`DispatchRequest` also has describe the whole
    batch: for example, ``queue_offset`` is the queue offset of the first message, and ``message_size_bytes`` is the size of all
    records.
    """

    topic: str
    queue_id: int
    commit_log_offset_bytes: int
    """Physical offset of the batch's first record."""
    message_size_bytes: int
    """Total size of all records of the batch, in bytes."""
    store_timestamp_ms: int
    queue_offset: int
    """Queue offset of the batch's first message; the other messages have the following queue offsets."""
    sys_flag: int
    positions: Sequence[int]
    """Physical offsets of the batch's records, at least one. All columns of the batch have the same length."""
    sizes: Sequence[int]
    """Sizes of the batch's records, in bytes."""
    tags_codes: Sequence[int]
    all_keys: Sequence[str]
    """KEYS of each message of the batch, with keys separated by blanks; empty for a message without KEYS."""
    keys: str
    """KEYS of all messages of the batch, joined; used only for their total length."""
    uniq_keys: Sequence[bytes]
    """UNIQ_KEY of each message of the batch in UTF-8; empty for a message without UNIQ_KEY."""
    all_stored_properties: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, begin: int, end: int) -> AppendedBatch:
        """Return the batch's messages from index ``begin`` to ``end`` as a batch; the range must not be empty."""
        sizes, all_keys = self.sizes[begin:end], self.all_keys[begin:end]
        return AppendedBatch(
            self.topic,
            self.queue_id,
            self.positions[begin],
            sum(sizes),
            self.store_timestamp_ms,
            self.queue_offset + begin,
            self.sys_flag,
            self.positions[begin:end],
            sizes,
            self.tags_codes[begin:end],
            all_keys,
            "".join(all_keys),
            self.uniq_keys[begin:end],
            self.all_stored_properties[begin:end],
        )

    def requests(self) -> list[DispatchRequest]:
        """Return a dispatch request for each message of the batch send."""
        return [
            *map(
                DispatchRequest,
                repeat(self.topic),
                repeat(self.queue_id),
                self.positions,
                self.sizes,
                self.tags_codes,
                repeat(self.store_timestamp_ms),
                count(self.queue_offset),
                self.all_keys,
                [key.decode() for key in self.uniq_keys],
                repeat(self.sys_flag),
                repeat(0),
                map(stored_properties, self.all_stored_properties),
            )
        ]


AppendUnit = DispatchRequest | AppendedBatch
"""Records that were appended together: a single record, or those of a batch send."""


def count_messages(units: Sequence[AppendUnit]) -> int:
    """Return the total number of messages in ``units``. Each unit is one message (a dispatch request) or a batch send, which
    contains several messages."""
    return sum([len(unit.positions) if isinstance(unit, AppendedBatch) else 1 for unit in units])


def requests_of(units: Sequence[AppendUnit]) -> list[DispatchRequest]:
    """Return a dispatch request for each message of some appended units (single messages and batch sends), in order."""
    if AppendedBatch not in map(type, units):
        return cast("list[DispatchRequest]", [*units])
    requests: list[DispatchRequest] = []
    for unit in units:
        if isinstance(unit, AppendedBatch):
            requests += unit.requests()
        else:
            requests.append(unit)
    return requests

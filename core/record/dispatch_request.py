"""The values that say what was stored: one record, or the records of a batch send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, repeat
from typing import cast

import msgspec

from flintmq.core.record.properties import stored_properties


class DispatchRequest(msgspec.Struct, gc=False):
    """One stored record, as dispatchers see it. Read-only by convention; made per message.

    Its body is in the log: a dispatcher gets it with ``context.bodies(batch)``, of the context that its factory was given.

    See docs/internals/algorithms.md, Dispatch.
    """

    topic: str
    queue_id: int
    commit_log_offset_bytes: int
    """Physical offset of the record."""
    message_size_bytes: int
    tags_code: int
    """Signed 64-bit: Java hash of TAGS, 0 without; in the schedule topic the delivery time in ms."""
    store_timestamp_ms: int
    queue_offset: int
    """Logical offset within topic and queue, in messages."""
    keys: str
    """KEYS as stored, separated by blanks; empty without."""
    uniq_key: str
    """UNIQ_KEY, empty without."""
    sys_flag: int
    prepared_transaction_offset_bytes: int
    properties: Mapping[str, str]
    bit_map: bytes | None = None
    """Which groups' filters the record fits; set by the dispatcher that computes it, None without.

    See docs/internals/store-format.md, Bloom filter.
    """


class AppendedBatch(msgspec.Struct, gc=False):
    """The records of a batch send, which follow one another in the log: what as many requests say, in columns. Read-only.

    Its first fields are named as those of a request, and mean the batch as a whole.
    """

    topic: str
    queue_id: int
    commit_log_offset_bytes: int
    """Physical offset of the first record."""
    message_size_bytes: int
    """Of all records."""
    store_timestamp_ms: int
    queue_offset: int
    """Of the first message; those of the others follow."""
    sys_flag: int
    positions: Sequence[int]
    """Physical offsets of the records. Here and below: at least one, and all columns of one length."""
    sizes: Sequence[int]
    """Of the records."""
    tags_codes: Sequence[int]
    all_keys: Sequence[str]
    """KEYS of each message, separated by blanks; empty without."""
    keys: str
    """KEYS of all messages, joined: as long as they are together."""
    uniq_keys: Sequence[bytes]
    """UNIQ_KEY of each message in UTF-8, empty without."""
    all_stored_properties: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, begin: int, end: int) -> AppendedBatch:
        """Return the messages of a range; at least one."""
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
        """Return a request for each message."""
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
"""What was appended in one piece: a record, or those of a batch send."""


def count_messages(units: Sequence[AppendUnit]) -> int:
    """Return how many messages some units are together."""
    return sum([len(unit.positions) if isinstance(unit, AppendedBatch) else 1 for unit in units])


def requests_of(units: Sequence[AppendUnit]) -> list[DispatchRequest]:
    """Return a request for each message of some units, in order."""
    if AppendedBatch not in map(type, units):
        return cast("list[DispatchRequest]", [*units])
    requests: list[DispatchRequest] = []
    for unit in units:
        if isinstance(unit, AppendedBatch):
            requests += unit.requests()
        else:
            requests.append(unit)
    return requests

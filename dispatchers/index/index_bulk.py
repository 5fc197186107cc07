"""Computes index entries in bulk with numpy: the hashes, slots and chains of a thousand keys at a time.

It is used once numpy is loaded (:mod:`flintmq.core.io.lazy_numpy`). The loops of :mod:`.index_file` write the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from flintmq.core.io import lazy_numpy
from flintmq.core.io.lazy_numpy import numpy
from flintmq.core.kernel.ports import AppendedBatch, AppendUnit, DispatchRequest
from flintmq.core.record.bulk_texts import absolute_hashes, falling_powers, index_key_hashes
from flintmq.core.record.java_hash import topic_head_hash
from flintmq.core.record.message_keys import MORE_KEYS, index_keys
from flintmq.core.record.properties import AlikeProperties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.core.record.bulk_columns import RecordColumns
    from flintmq.core.record.bulk_scan import Column

LEAST: Final = 64
"""Minimum number of index entries for which numpy is faster than a loop over the entries."""
_PLAIN_MAX: Final = 64
"""Maximum length of a UNIQ_KEY for which numpy computes the hashes of a whole batch at once. RocketMQ's clients create shorter
UNIQ_KEYs."""


def is_worth_it(count: int) -> bool:
    """Return whether numpy is loaded and faster than a loop for ``count`` index entries. The first call with at least
    :data:`LEAST` entries starts to load numpy."""
    return count >= LEAST and lazy_numpy.ready()


class EntryColumns(msgspec.Struct, frozen=True, eq=False):
    """Columns of index entries to add, in order."""

    key_hash: Column
    physical: Column
    """Physical offset of each entry's record, in bytes."""
    store_timestamp_ms: Column

    @classmethod
    def of(cls, entries: Sequence[tuple[int, int, int]]) -> EntryColumns:
        """Return index entries as columns. Each entry is given as (key hash, physical offset, store time in ms)."""
        table = numpy.array(entries, numpy.int64)
        return cls(table[:, 0], table[:, 1], table[:, 2])

    @classmethod
    def joined(cls, parts: Sequence[EntryColumns]) -> EntryColumns:
        """Return the concatenation of several columns of index entries."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            numpy.concatenate([part.key_hash for part in parts]),
            numpy.concatenate([part.physical for part in parts]),
            numpy.concatenate([part.store_timestamp_ms for part in parts]),
        )

    @classmethod
    def of_records(cls, columns: RecordColumns) -> EntryColumns:
        """Return the index entries for all keys of records that are given as columns; rolled back records have no entries."""
        row, key_hash = columns.key_row, columns.key_hash
        indexed = columns.indexed
        if not indexed.all():
            kept = indexed[row]
            row, key_hash = row[kept], key_hash[kept]
        return cls(key_hash, columns.physical[row], columns.store_timestamp_ms[row])

    @classmethod
    def of_requests(cls, requests: Sequence[DispatchRequest]) -> EntryColumns:
        """Return the index entries for all keys of records that are not rolled back."""
        keys, more_keys = [one.uniq_key for one in requests], [one.keys for one in requests]
        if MORE_KEYS or not all(keys) or any(more_keys):
            pairs = [(one, key) for one in requests for key in index_keys(one)]
            requests, keys = [one for one, _ in pairs], [key for _, key in pairs]
        return cls(
            numpy.array(index_key_hashes([one.topic for one in requests], keys), numpy.int64),
            numpy.array([one.commit_log_offset_bytes for one in requests], numpy.int64),
            numpy.array([one.store_timestamp_ms for one in requests], numpy.int64),
        )

    @classmethod
    def of_units(cls, units: Sequence[AppendUnit]) -> EntryColumns:
        """Return the index entries for all keys of appended units, which are single records or batch sends."""
        one_by_one: list[DispatchRequest] = []
        plain: dict[int, list[AppendedBatch]] = {}
        for unit in units:
            if not isinstance(unit, AppendedBatch):
                one_by_one.append(unit)
            elif _is_plain(unit):
                plain.setdefault(len(unit.uniq_keys[0]), []).append(unit)
            else:
                one_by_one += unit.requests()
        parts = [cls._of_plain(batches, length) for length, batches in plain.items()]
        if one_by_one:
            parts.append(cls.of_requests(one_by_one))
        joined = cls.joined(parts)
        if len(parts) == 1:
            return joined
        # The sort is stable, because the entries of one record have equal physical offsets and must keep their order.
        order = numpy.argsort(joined.physical, kind="stable")
        return cls(joined.key_hash[order], joined.physical[order], joined.store_timestamp_ms[order])

    @classmethod
    def _of_plain(cls, batches: Sequence[AppendedBatch], length: int) -> EntryColumns:
        """Return the index entries of batch sends whose messages have no keys except UNIQ_KEYs of a given length, in ASCII."""
        counts = [len(batch) for batch in batches]
        text = b"".join([b"".join(batch.uniq_keys) for batch in batches])
        characters = numpy.frombuffer(text, numpy.uint8).reshape(-1, length)
        # For integers, numpy.einsum() is faster than numpy.dot().
        hashes = numpy.einsum("ij,j->i", characters, falling_powers(length))
        power = pow(31, length, 1 << 32)
        heads = [topic_head_hash(batch.topic) * power & 0xFFFFFFFF for batch in batches]
        hashes += numpy.repeat(numpy.array(heads, numpy.uint32), counts)
        physical = numpy.concatenate([_column(batch.positions) for batch in batches])
        store_timestamp_ms = numpy.array([batch.store_timestamp_ms for batch in batches], numpy.int64)
        return cls(absolute_hashes(hashes), physical, numpy.repeat(store_timestamp_ms, counts))

    def __len__(self) -> int:
        return len(self.key_hash)

    def part(self, begin: int, end: int | None = None) -> EntryColumns:
        """Return the index entries from number ``begin`` to ``end`` of these columns."""
        return EntryColumns(self.key_hash[begin:end], self.physical[begin:end], self.store_timestamp_ms[begin:end])

    def at(self, number: int) -> tuple[int, int, int]:
        """Return one index entry as (key hash, physical offset, store time in ms)."""
        return int(self.key_hash[number]), int(self.physical[number]), int(self.store_timestamp_ms[number])

    def from_physical(self, offset_bytes: int) -> EntryColumns:
        """Return the index entries of records at or after a physical offset."""
        kept = self.physical >= offset_bytes
        if kept.all():
            return self
        return EntryColumns(self.key_hash[kept], self.physical[kept], self.store_timestamp_ms[kept])


def _is_plain(batch: AppendedBatch) -> bool:
    """Return whether all messages of a batch have ASCII UNIQ_KEYs of the same length, and no other key."""
    is_alike = isinstance(batch.all_stored_properties, AlikeProperties) and not MORE_KEYS
    return is_alike and not batch.all_keys[0] and len(batch.uniq_keys[0]) <= _PLAIN_MAX


def _column(positions: Sequence[int]) -> Column:
    if isinstance(positions, range):
        column: Column = numpy.arange(positions.start, positions.stop, positions.step, dtype=numpy.int64)
        return column
    return numpy.array(positions, numpy.int64)


def chain(hashes: Any, slots: Any, stored: Any, first_index: int) -> tuple[Any, Any, Any, int]:
    """Return the chains that new index entries form in the hash slots of an index file.

    Args:
        hashes: the hashes of the entries, in order.
        slots: the number of slots.
        stored: the current value of each entry's slot; 0 for an empty slot.
        first_index: the number of the first new entry.

    Returns:
        The previous entry in the slot of each entry; the changed slots; their new values; the number of slots that were empty.
    """
    slot = hashes % slots
    order = numpy.argsort(slot, kind="stable")
    in_order = slot[order]
    is_first = numpy.empty(len(order), bool)
    is_first[0] = True
    numpy.not_equal(in_order[1:], in_order[:-1], out=is_first[1:])
    previous = numpy.empty(len(order), numpy.int64)
    previous[order[1:]] = order[:-1] + first_index
    firsts = order[is_first]
    previous[firsts] = stored[firsts]
    is_last = numpy.empty(len(order), bool)
    is_last[-1] = True
    is_last[:-1] = is_first[1:]
    lasts = order[is_last]
    empty = int((stored[firsts] == 0).sum())
    return previous, slot[lasts], lasts + first_index, empty


def pack_entries(hashes: Any, physical: Any, seconds: Any, previous: Any) -> bytes:
    """Return the bytes of index entries in the format of the index file."""
    packed = numpy.empty(len(hashes), _ENTRY)
    packed["hash"] = hashes
    packed["physical"] = physical
    packed["seconds"] = seconds
    packed["previous"] = previous
    return packed.tobytes()


_ENTRY: Final = [("hash", ">i4"), ("physical", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]

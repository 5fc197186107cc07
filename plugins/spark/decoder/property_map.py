"""Parses the properties of many records at once: ``name 0x01 value 0x02 name 0x01 value`` to maps.

The rules are those of :func:`flintmq.core.record.properties.string_to_properties`. An entry without a name or a value is
ignored, a value may contain 0x01, and the last of equal names counts. In UTF-8, 0x01 and 0x02 are never part of another
character, so the parser works on bytes.

See docs/internals/store-format.md, Properties.
"""

from __future__ import annotations

import itertools
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.core.record.heads import Heads
from flintmq.plugins.spark.decoder.slices import Bools, Ints, as_text, parts, placed, take_slices

_MASK_BITS = 62


class PropertyMap:
    """The parsed properties of some records.

    Args:
        data: the bytes of the records.
        heads: the fixed fields of the records.
    """

    def __init__(self, data: npt.NDArray[np.uint8], heads: Heads) -> None:
        self._count = len(heads)
        offsets, content = parts(take_slices(data, heads.properties_at, heads.properties_length))
        rows, name_at, name_end, value_end = _entries(offsets, content)
        self._content = content
        self._encoded = take_slices(content, name_at, name_end - name_at).dictionary_encode()
        codes = self._encoded.indices.to_numpy(zero_copy_only=True)
        keep = _last_of_equals(rows, codes, len(self._encoded.dictionary))
        if keep is not None:
            rows, codes, name_end, value_end = rows[keep], codes[keep], name_end[keep], value_end[keep]
        self._rows = rows
        self._codes = codes
        self._value_at = name_end + 1
        self._value_end = value_end

    @cached_property
    def _names(self) -> list[bytes]:
        return list(self._encoded.dictionary.to_pylist())

    @cached_property
    def _values(self) -> pa.Array:
        """The values of all property entries, as text."""
        return as_text(take_slices(self._content, self._value_at, self._value_end - self._value_at))

    def column(self, name: str) -> pa.Array:
        """Return the value of one property for each record; null if the record lacks it."""
        wanted = name.encode()
        if wanted not in self._names:
            return pa.nulls(self._count, pa.string())
        items = np.flatnonzero(self._codes == self._names.index(wanted))
        at, end = self._value_at[items], self._value_end[items]
        values = as_text(take_slices(self._content, at, end - at))
        return placed(values, self._rows[items], np.arange(len(items)), self._count)

    def maps(self) -> pa.Array:
        """Return, for each record, an Arrow map of the record's message properties."""
        names = as_text(self._encoded.dictionary).take(pa.array(self._codes))
        return pa.MapArray.from_arrays(pa.array(self._bounds(), pa.int32()), names, self._values)

    def dictionaries(self) -> list[dict[str, str]]:
        """Return, for each record, a dictionary of the record's message properties."""
        names = as_text(self._encoded.dictionary).take(pa.array(self._codes)).to_pylist()
        pairs = list(zip(names, self._values.to_pylist(), strict=True))
        bounds = self._bounds().tolist()
        return [dict(pairs[start:end]) for start, end in itertools.pairwise(bounds)]

    def _bounds(self) -> npt.NDArray[np.int32]:
        counts = np.bincount(self._rows, minlength=self._count)
        bounds = np.zeros(self._count + 1, np.int32)
        np.cumsum(counts, out=bounds[1:])
        return bounds


def _entries(offsets: Ints, content: npt.NDArray[np.uint8]) -> tuple[Ints, Ints, Ints, Ints]:
    """Find the ``name 0x01 value`` entries of all records. Return, for each entry, the record's number, the start and end of
    the name, and the end of the value."""
    count = len(offsets) - 1
    content = content[: offsets[-1]]
    breaks = np.flatnonzero(content == 2)
    breaks_before = np.searchsorted(breaks, offsets)
    ends = np.empty(len(breaks) + count, np.int64)
    is_break = np.ones(len(ends), np.bool_)
    row_ends = breaks_before[1:] + np.arange(count)
    is_break[row_ends] = False
    ends[row_ends] = offsets[1:]
    ends[is_break] = breaks
    starts = np.zeros(len(ends), np.int64)
    starts[1:] = ends[:-1] + is_break[:-1]
    rows = np.repeat(np.arange(count), np.diff(breaks_before) + 1)
    long_enough = ends - starts >= 3
    if not long_enough.all():
        starts, ends, rows = starts[long_enough], ends[long_enough], rows[long_enough]
    separators = np.flatnonzero(content == 1)
    if len(separators) != len(starts) or not ((separators > starts) & (separators + 1 < ends)).all():
        index = np.searchsorted(separators, starts)
        there = index < len(separators)
        separators = separators[np.minimum(index, max(0, len(separators) - 1))] if len(separators) else starts
        good = there & (separators > starts) & (separators + 1 < ends)
        starts, ends, rows, separators = starts[good], ends[good], rows[good], separators[good]
    return rows, starts, separators, ends


def _last_of_equals(rows: Ints, codes: npt.NDArray[np.int32], names: int) -> Bools | None:
    """Return, for each property entry, whether it is the record's last entry with its name; None if no record has a name twice.

    If a record has several entries with one name, only the last of these entries counts. If there are few names, a fast check
    finds out whether any record has a name twice.
    """
    if len(rows) == 0:
        return None
    if names <= _MASK_BITS:
        bits = np.int64(1) << codes.astype(np.int64)
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        if (np.add.reduceat(bits, first) == np.bitwise_or.reduceat(bits, first)).all():
            return None
    key = rows * names + codes
    _unique, from_behind = np.unique(key[::-1], return_index=True)
    if len(_unique) == len(key):
        return None
    keep = np.zeros(len(key), np.bool_)
    keep[len(key) - 1 - from_behind] = True
    return keep

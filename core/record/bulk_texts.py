"""Finds the tags and keys of many records in their stored properties with numpy, and hashes them as Java does.

The properties of all records are joined into one text, with a separator before and after every property. A property with a
wanted name is found by comparing the first eight bytes of every property, all at once. Other properties are not examined
further. Texts that are not ASCII are hashed one by one, because Java hashes UTF-16 units.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from flintmq.core.io import lazy_numpy
from flintmq.core.io.lazy_numpy import numpy
from flintmq.core.record.bulk_scan import Topics, rows_of_bytes
from flintmq.core.record.heads import Heads
from flintmq.core.record.java_hash import index_key_hash, java_hash, powers, tags_hash, topic_head_hash
from flintmq.core.record.message_keys import MORE_KEYS

if TYPE_CHECKING:
    from flintmq.core.record.bulk_scan import Column

_SEPARATOR: Final = b"\x02"
_PADDING: Final = 10 * _SEPARATOR
"""Bytes appended to the joined properties of records, so that eight bytes can be read at the start of every property."""
_BLANK: Final = 0x20
_UNIQ_KEY: Final = b"UNIQ_KEY\x01"
_KEYS: Final = b"KEYS\x01"
_TAGS: Final = b"TAGS\x01"
_LENGTH_MAX: Final = 65_535
"""Maximum length of a text in a record's properties, because the length of the properties is stored in two bytes."""
_USUAL_TAGS_LENGTH: Final = 64
_TOGETHER_MAX: Final = 64
"""Maximum length of a text that is hashed together with other texts of the same length; longer texts are hashed one by one."""


class Properties:
    """The joined properties of some records, in which tags and keys are found."""

    def __init__(self, view: memoryview, rows: Heads) -> None:
        begins, ends = rows.properties_at.tolist(), rows.ends.tolist()
        pieces = [view[begin:end] for begin, end in zip(begins, ends, strict=True)]
        self._text = b"".join((_SEPARATOR, _SEPARATOR.join(pieces), _PADDING))
        self._octets = numpy.frombuffer(self._text, numpy.uint8)
        lengths = rows.properties_length
        self._row_begin = numpy.cumsum(lengths + 1) - lengths
        separators = numpy.flatnonzero(self._octets[: -len(_PADDING) + 1] == _SEPARATOR[0])
        self._begin = separators[:-1] + 1
        self._end = separators[1:]
        words = numpy.ndarray((len(self._text) - 7,), numpy.uint64, self._text, strides=(1,))
        self._word = words[self._begin]

    def tags(self) -> Texts:
        """Return the values of the property TAGS of all records, at most one per record."""
        return self._last_of_equals(_TAGS)

    def index_keys(self) -> list[Texts]:
        """Return the index keys of all records as a list of texts. A record's keys have the order of
        :func:`.message_keys.index_keys`."""
        more = [self._last_of_equals(b"%b\x01" % name.encode()) for name in MORE_KEYS]
        return [self._last_of_equals(_UNIQ_KEY), self._keys(), *more]

    def _keys(self) -> Texts:
        """Return the single keys in the property KEYS of all records, in order."""
        found = self._last_of_equals(_KEYS)
        blanks = numpy.flatnonzero(self._octets == _BLANK)
        if not len(blanks) or not len(found.row):
            return found
        within = numpy.searchsorted(found.begin, blanks, "right") - 1
        blanks = blanks[(within >= 0) & (blanks < found.end[within])]
        # Texts do not overlap, so the sorted begins and the sorted ends match pairwise.
        begin = numpy.sort(numpy.concatenate((found.begin, blanks + 1)))
        end = numpy.sort(numpy.concatenate((found.end, blanks)))
        kept = begin < end
        begin, end = begin[kept], end[kept]
        return Texts(self._text, self._row(begin), begin, end)

    def _last_of_equals(self, name: bytes) -> Texts:
        """Return the value of a property in each record that has it. If a record has several values, the last non-empty value
        counts, as in a map."""
        wanted = numpy.frombuffer(name[:8].ljust(8, b"\0"), numpy.uint64)[0]
        mask = numpy.frombuffer((b"\xff" * min(8, len(name))).ljust(8, b"\0"), numpy.uint64)[0]
        found = numpy.flatnonzero((self._word & mask) == wanted)
        begin, end = self._begin[found] + len(name), self._end[found]
        is_value = begin < end
        if len(name) > 8:
            is_value &= self._octets[begin - 1] == name[-1]
        begin, end = begin[is_value], end[is_value]
        row = self._row(begin)
        last = numpy.ones(len(row), bool)
        numpy.not_equal(row[1:], row[:-1], out=last[:-1])
        return Texts(self._text, row[last], begin[last], end[last])

    def _row(self, places: Column) -> Column:
        return numpy.searchsorted(self._row_begin, places, "right") - 1


class Texts(msgspec.Struct, frozen=True, eq=False):
    """Texts that are slices of one joined text, each with the number of the record that it belongs to."""

    text: bytes
    row: Column
    begin: Column
    end: Column

    def tags_codes(self, rows: int) -> Column:
        """Return the Java hash of each record's text as signed 64-bit numbers; 0 for a record without a text."""
        hashes, is_odd = _hashes(self.text, self.begin, self.end)
        codes = numpy.zeros(rows, numpy.int64)
        codes[self.row] = hashes.view(numpy.int32)
        for at in numpy.flatnonzero(is_odd).tolist():
            codes[self.row[at]] = java_hash(self._decoded(at))
        return codes

    def key_hashes(self, topics: Topics, topic_codes: Column) -> Column:
        """Return an array with the index file's hash of each text. Each text is a message key. Its hash is the
        :func:`flintmq.core.record.java_hash.index_key_hash` of the key and of the topic of the key's record."""
        hashes, is_odd = _hashes(self.text, self.begin, self.end)
        codes = topic_codes[self.row]
        hashes += topics.head_hashes()[codes] * powers(_LENGTH_MAX + 1)[self.end - self.begin]
        signed: Column = absolute_hashes(hashes)
        for at in numpy.flatnonzero(is_odd).tolist():
            signed[at] = index_key_hash(topics.names[codes[at]], self._decoded(at))
        return signed

    def _decoded(self, at: int) -> str:
        return self.text[self.begin[at] : self.end[at]].decode("utf-8", "replace")


def falling_powers(length: int) -> Column:
    """Return the powers of 31 by which Java's hash multiplies the characters of a text, in order; ``length`` is the text's
    length, from 1 to 65,535."""
    factors: Column = _all_falling()[-length:]
    return factors


@functools.cache
def _all_falling() -> Column:
    # The reversed powers of 31 are copied, because a reversed view is not contiguous in memory.
    factors: Column = powers(_LENGTH_MAX)[::-1].copy()
    return factors


def _hashes(text: bytes, begin: Column, end: Column) -> tuple[Column, Column]:
    """Return the unsigned Java hash of each text, and a mask of the texts that are not ASCII. The hashes of texts in the mask
    are not valid."""
    length = end - begin
    hashes = numpy.zeros(len(length), numpy.uint32)
    is_odd = numpy.zeros(len(length), bool)
    view = memoryview(text)
    for one in numpy.flatnonzero(numpy.bincount(numpy.minimum(length, _TOGETHER_MAX + 1))).tolist():
        if not one:
            continue
        rows = numpy.flatnonzero(length == one if one <= _TOGETHER_MAX else length > _TOGETHER_MAX)
        for same in (rows,) if one <= _TOGETHER_MAX else rows.reshape(-1, 1):
            size = int(length[same[0]])
            characters = rows_of_bytes(view, begin[same], size)
            hashes[same] = (characters * falling_powers(size)).sum(axis=1, dtype=numpy.uint32)
            is_odd[same] = characters.max(axis=1) > 127
    return hashes, is_odd


def _ascii_hashes(texts: Sequence[str], joined: str) -> tuple[Column, Column]:
    """Return the unsigned Java hashes of ASCII texts, and the lengths of the texts; ``joined`` is all texts joined."""
    lengths = numpy.fromiter(map(len, texts), numpy.int64, len(texts))
    size = len(texts[0])
    if 0 < size <= _TOGETHER_MAX and len(joined) == size * len(texts) and (lengths == size).all():
        # Texts of equal length, such as UNIQ_KEYs, form a matrix, so that one multiplication computes all hashes.
        characters = numpy.frombuffer(joined.encode("ascii"), numpy.uint8).reshape(-1, size)
        return (characters * falling_powers(size)).sum(axis=1, dtype=numpy.uint32), lengths
    ends = lengths.cumsum()
    return _hashes(joined.encode("ascii"), ends - lengths, ends)[0], lengths


def index_key_hashes(topics: Sequence[str], keys: Sequence[str]) -> list[int]:
    """Return the :func:`flintmq.core.record.java_hash.index_key_hash` of many (topic, key) pairs, with numpy."""
    joined = "".join(keys)
    if not joined.isascii() or not keys:
        return list(map(index_key_hash, topics, keys))
    hashes, lengths = _ascii_hashes(keys, joined)
    heads_of = {topic: topic_head_hash(topic) for topic in set(topics)}
    heads = numpy.fromiter(map(heads_of.__getitem__, topics), numpy.uint32, len(topics))
    found: list[int] = absolute_hashes(hashes + heads * powers(_LENGTH_MAX + 1)[lengths]).tolist()
    return found


def tags_hashes(tags: Sequence[str]) -> Iterable[int]:
    """Return the :func:`flintmq.core.record.java_hash.tags_hash` of many tags; with numpy if they are unusually long."""
    joined = "".join(tags)
    if len(joined) <= _USUAL_TAGS_LENGTH * len(tags) or not joined.isascii() or not lazy_numpy.ready():
        return map(tags_hash, tags)
    hashes: list[int] = _ascii_hashes(tags, joined)[0].view(numpy.int32).tolist()
    return hashes


def absolute_hashes(hashes: Column) -> Column:
    """Return unsigned 32-bit Java hashes in the form that the index stores: the absolute value of the signed hash, and 0 for
    -2**31."""
    absolute = numpy.abs(hashes.view(numpy.int32).astype(numpy.int64))
    absolute[absolute == 1 << 31] = 0
    return absolute

"""Finds the records of a commit log file in bulk with numpy, and reads their fixed fields.

Records are found by following their sizes one by one, because a body can contain bytes that look like a record. The other
fields are read by a few array operations. :func:`whole_heads` makes the checks of
:func:`flintmq.core.record.record.decode_record`, except the checksum, and ends before the first record that fails. To get the
reason of a failure, decode that record alone.

These functions are used if a log is long enough to justify the import of numpy (:mod:`flintmq.core.io.lazy_numpy`). No array
keeps the file's map open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flintmq.core.io import lazy_numpy
from flintmq.core.io.lazy_numpy import numpy
from flintmq.core.record import record as rec
from flintmq.core.record.heads import Heads, read_heads
from flintmq.core.record.java_hash import topic_head_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[Any]
    """A numpy array with one value per record."""

ROWS_MAX: Final = 8_192
"""Number of records that are scanned together. The columns of this number of records stay in the processor's cache."""
ROWS_MIN: Final = 48
"""Minimum number of records for which numpy is used. Fewer records are read faster one by one."""
BYTES_MIN: Final = 64 * 1024
"""Minimum size in bytes of a part of a log for which numpy is used. A smaller part is read faster record by record."""
BYTES_WORTH_NUMPY: Final = 8 * 1024 * 1024
"""Minimum size in bytes of a log for which the import of numpy pays off."""
_ROWS_BYTES: Final = 16 * 1024 * 1024
_TOPICS_TRIED: Final = 12
_ROWS_TRIED: Final = 64
"""Number of records from which the mean record size is estimated."""
_SMALL_BYTES: Final = 512
"""Mean record size in bytes up to which searching a log for the magic of records is faster than following the sizes of
records."""
_MAGIC_FIRST_BYTE: Final = rec.MAGIC_V1 >> 24


def is_worth_it(log_bytes: int) -> bool:
    """Return whether a part of a log with a given size is read faster in bulk than record by record. If so, import numpy."""
    if lazy_numpy.loaded():
        return log_bytes >= BYTES_MIN
    if log_bytes < BYTES_WORTH_NUMPY:
        return False
    lazy_numpy.load()
    return True


def chain(view: memoryview, at: int, end_at: int, rows: int) -> list[int]:
    """Return the positions of at most ``rows`` consecutive records, found by their magic and size alone.

    Args:
        view: the content of the file.
        at: the position of the first record.
        end_at: the position in the file that no record may exceed.
        rows: the maximum number of records.
    """
    last_at = min(end_at - rec.RECORD_MIN_BYTES, at + _ROWS_BYTES)
    places, at = _stepped(view, at, end_at, last_at, min(rows, _ROWS_TRIED))
    if len(places) == _ROWS_TRIED < rows:
        mean_bytes = (at - places[0]) // _ROWS_TRIED
        if mean_bytes <= _SMALL_BYTES:
            linked, at = _linked(view, at, end_at, min(last_at, at + mean_bytes * (rows - _ROWS_TRIED)))
            places += linked
        further, _ = _stepped(view, at, end_at, last_at, rows - len(places))
        places += further
    return places[:rows]


def _stepped(view: memoryview, at: int, end_at: int, last_at: int, rows: int) -> tuple[list[int], int]:
    """Follow the sizes of records up to ``last_at``; return their positions, and the end of the last record."""
    places: list[int] = []
    add = places.append
    unpack = rec.SIZE_AND_MAGIC.unpack_from
    for _ in range(rows):
        if at > last_at:
            break
        size, magic = unpack(view, at)
        if (magic != rec.MAGIC_V1 and magic != rec.MAGIC_V2) or size < rec.RECORD_MIN_BYTES or at + size > end_at:
            break
        add(at)
        at += size
    return places, at


def _linked(view: memoryview, at: int, end_at: int, last_at: int) -> tuple[list[int], int]:
    """Return the positions of consecutive records, and the end of the last record. The function searches all bytes at once for
    the magic number of records. For small records, this is faster than following the records' sizes one by one.

    A magic number marks a record only if the record begins at the end of the previous record. If a record's body contains bytes
    that look like a magic number, this is the last record in the result. The caller finds the records after it by their sizes.
    """
    data = numpy.frombuffer(view[: last_at + 8], numpy.uint8)
    could_be = numpy.flatnonzero(data[at + 4 : -3] == _MAGIC_FIRST_BYTE) + at
    magic = _window(view, ">u4")[could_be + 4]
    begins = could_be[(magic == rec.MAGIC_V1) | (magic == rec.MAGIC_V2)]
    sizes = _window(view, ">i4")[begins].astype(numpy.int64)
    is_next = numpy.concatenate(([at], begins[:-1] + sizes[:-1]))[: len(begins)] == begins
    good = rows_before_false(is_next & (sizes >= rec.RECORD_MIN_BYTES) & (begins + sizes <= end_at))
    return begins[:good].tolist(), int(begins[good - 1] + sizes[good - 1]) if good else at


def whole_heads(view: memoryview, places: list[int]) -> Heads | None:
    """Return the fixed fields of consecutive records in a commit log file, up to the first record with inconsistent lengths.

    ``view`` is the content of the file. ``places`` has the positions of the records, which :func:`chain` found by following the
    records' sizes. The result is None if ``places`` is empty, or if the first record has inconsistent lengths.
    """
    if not places:
        return None
    heads = read_heads(numpy.frombuffer(view, numpy.uint8), numpy.array(places, numpy.int64))
    rows = len(heads) if heads.bad is None else rows_before_false(~heads.bad)
    return heads.first(rows) if rows else None


def _window(part: memoryview, kind: Any) -> Any:
    """Return an array whose item ``n`` is the integer that begins at byte ``n`` of the given bytes. Indexed with the positions
    of a field in all records, the array gives the field's values.
    """
    kind = numpy.dtype(kind)
    return numpy.ndarray((max(0, len(part) - kind.itemsize + 1),), kind, part, strides=(1,))


def rows_before_false(passes: Column) -> int:
    """Return the number of leading rows of a mask that are True."""
    return len(passes) if passes.all() else int(passes.argmin())


def rows_of_bytes(part: memoryview, places: Column, length: int) -> Column:
    """Return a matrix of bytes with a row for each position: the ``length`` bytes (at least 1) from that position."""
    matrix = _window(part, f"V{length}")[places]
    return matrix.view(numpy.uint8).reshape(len(places), length)  # type: ignore[no-any-return]


class Topics:
    """Assigns a number to each topic, so that columns can hold topics as numbers."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """Topic names, indexed by topic number; empty for a topic whose bytes are not UTF-8."""
        self.broken: list[int] = []
        """Numbers that this object assigned to the topics whose names are not valid UTF-8. A number is the topic's index in
        :attr:`names`."""
        self._codes: dict[bytes, int] = {}
        self._heads: list[int] = []

    def code(self, raw: bytes) -> int:
        """Return the number of a topic, given in bytes as stored; a new topic gets the next number."""
        code = self._codes.get(raw)
        if code is None:
            code = self._codes[raw] = len(self.names)
            try:
                name = raw.decode("utf-8")
            except UnicodeDecodeError:
                name = ""
                self.broken.append(code)
            self.names.append(name)
            self._heads.append(topic_head_hash(name))
        return code

    def known(self, topic: str) -> int | None:
        """Return the number of a topic, or None if no number was assigned to the topic."""
        return self._codes.get(topic.encode("utf-8"))

    def head_hashes(self) -> Column:
        """Return, for each topic, the unsigned Java hash of the topic's name with ``#`` appended. All index keys of the topic
        begin with this text. The array is indexed by the numbers that this object has assigned to the topics, from 0 on."""
        return numpy.array(self._heads, numpy.uint32)

    def codes(self, view: memoryview, rows: Heads) -> Column:
        """Return the topic number of each record. Each topic is compared with all records at once, as most logs have few."""
        codes = numpy.empty(len(rows), numpy.int64)
        left = numpy.arange(len(rows))
        part = view[: rows.end]
        for _ in range(_TOPICS_TRIED):
            if not len(left):
                return codes
            at, length = int(rows.topic_at[left[0]]), int(rows.topic_length[left[0]])
            raw = bytes(view[at : at + length])
            same = rows.topic_length[left] == length
            if length:
                matrix = rows_of_bytes(part, rows.topic_at[left[same]], length)
                same[same] = (matrix == numpy.frombuffer(raw, numpy.uint8)).all(axis=1)
            codes[left[same]] = self.code(raw)
            left = left[~same]
        begins = rows.topic_at[left]
        ends = begins + rows.topic_length[left]
        code = self.code
        codes[left] = [code(bytes(view[begin:end])) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        return codes

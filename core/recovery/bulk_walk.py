"""Whole records checked many at a time with numpy, for :mod:`.log_walk`: the same checks, but :mod:`.log_walk`
describes the errors.

Used where :mod:`.bulk_scan` is.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from flintmq.core.io.lazy_numpy import numpy
from flintmq.core.record import bulk_scan
from flintmq.core.record.bulk_scan import Layout, Topics, rows_before_false
from flintmq.core.record.check import why_no_topic
from flintmq.core.record.sys_flag import is_queued
from flintmq.core.recovery.walk_tally import WalkTally

if TYPE_CHECKING:
    from flintmq.core.record.bulk_scan import Column

_ROWS_FIRST: Final = 256
"""So few at first, and again behind damage: a log full of it must not cost a checksum of thousands of records each time."""
_CRC_MASK: Final = 0x7FFFFFFF


class BulkWalk:
    """Walks as long as all is well. ``check_crc``: whether bodies are checked against their CRC."""

    def __init__(self, *, check_crc: bool) -> None:
        self._check_crc = check_crc
        self._topics = Topics()
        self._is_folder: list[bool] = []
        """Whether a topic can have queues, by its number."""

    def walk(self, view: memoryview, start_offset_bytes: int, at: int, tally: WalkTally) -> int:
        """Walks from a place in a file to where no whole record is that could be checked here; returns that place.

        Args:
            view: of the file.
            start_offset_bytes: the file's place in the log.
            at: where a record may begin.
            tally: takes what was walked.
        """
        rows_max = _ROWS_FIRST
        while True:
            places = bulk_scan.chain(view, at, len(view), rows_max)
            rows = bulk_scan.layout(view, places) if len(places) >= bulk_scan.ROWS_MIN else None
            good = self._good(view, start_offset_bytes, rows, tally) if rows is not None else 0
            if rows is None or not good:
                return at
            rows = rows.first(good)
            tally.take_rows(rows)
            at = rows.end_at
            if good < len(places):
                return at
            rows_max = min(4 * rows_max, bulk_scan.ROWS_MAX)

    def _good(self, view: memoryview, start_offset_bytes: int, rows: Layout, tally: WalkTally) -> int:
        """How many records are whole before the first that is not."""
        is_good = rows.physical == start_offset_bytes + rows.begin
        is_good &= self._can_be_queued(view, rows)
        good = rows_before_false(is_good)
        if good and self._check_crc:
            good = rows_before_false(_has_its_checksum(view, rows.first(good)))
        if good:
            good = _before_torn(view, rows.first(good), tally)
        return good

    def _can_be_queued(self, view: memoryview, rows: Layout) -> Column:
        """Whether topic, queue id and queue offset can be those of a queue, or need not be."""
        codes = self._topics.codes(view, rows)
        for name in self._topics.names[len(self._is_folder) :]:
            self._is_folder.append(not why_no_topic(name))
        can_be = numpy.array(self._is_folder)[codes] & (rows.queue_id >= 0) & (rows.queue_offset >= 0)
        can_be |= ~is_queued(rows.sys_flag)
        if self._topics.broken:
            can_be &= ~numpy.isin(codes, self._topics.broken)
        return can_be


def _has_its_checksum(view: memoryview, rows: Layout) -> Column:
    begins = rows.body_at.tolist()
    ends = (rows.body_at + rows.body_length).tolist()
    crc32 = zlib.crc32
    found = numpy.array([crc32(view[begin:end]) for begin, end in zip(begins, ends, strict=True)], numpy.int64)
    return ((found & _CRC_MASK) == rows.body_crc) | (rows.body_length == 0)  # type: ignore[no-any-return]


def _before_torn(view: memoryview, rows: Layout, tally: WalkTally) -> int:
    """How many records come before the first whose properties are torn, as far as the checkpoint does not vouch for them."""
    unsure = numpy.flatnonzero(~tally.vouches_for_rows(rows.store_timestamp_ms))
    begins, ends = rows.properties_at[unsure].tolist(), rows.properties_end[unsure].tolist()
    pieces = [view[begin:end] for begin, end in zip(begins, ends, strict=True)]
    if b"".join(pieces).find(0) < 0:
        return len(rows)
    return next(row for row, piece in zip(unsure.tolist(), pieces, strict=True) if 0 in bytes(piece))

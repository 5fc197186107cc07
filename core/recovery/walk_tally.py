"""What a walk over the log has counted so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.core.io.lazy_numpy import numpy
from flintmq.core.record.record import Record
from flintmq.core.record.sys_flag import is_queued

if TYPE_CHECKING:
    from flintmq.core.record.bulk_scan import Column, Layout

NEVER: Final = 2**63 - 1
MARK_EVERY: Final = 4_096
CLOCK_SLACK_MS: Final = 1_000


class WalkTally:
    """Records, places and times. ``trusted_ms``: up to which store time the checkpoint vouches; :data:`NEVER` after a stop."""

    __slots__ = (
        "clock_went_back",
        "last_ms",
        "marks",
        "newer",
        "newest_ms",
        "queued",
        "records",
        "trusted_ms",
    )

    def __init__(self, trusted_ms: int) -> None:
        self.trusted_ms = trusted_ms
        self.records = 0
        """All that were walked."""
        self.queued = 0
        """Those of the counted part that belong into queues."""
        self.last_ms = 0
        """Store time of the last record."""
        self.newest_ms = 0
        """The latest store time of the counted part."""
        self.marks: list[tuple[int, int]] = []
        """(physical position, records before it that belong into queues), every so many records."""
        self.newer: tuple[int, int] | None = None
        """The same for the first record that the checkpoint does not vouch for."""
        self.clock_went_back = False

    def begin_counting(self) -> None:
        """Here the counted part begins."""
        self.queued, self.newest_ms = 0, 0
        self.newer = None
        self.clock_went_back = False
        self.marks.clear()

    def vouches_for(self, stored_ms: int) -> bool:
        """Whether the next record, stored at a time, is whole because of that alone."""
        return self.trusted_ms == NEVER or self.newest_ms <= stored_ms <= self.trusted_ms

    def vouches_for_rows(self, stored_ms: Column) -> Column:
        """Return for each of the next records, stored at some times, whether it is whole because of that alone."""
        if self.trusted_ms == NEVER:
            return numpy.ones(len(stored_ms), bool)
        return (self._newest_before(stored_ms) <= stored_ms) & (stored_ms <= self.trusted_ms)

    def take(self, record: Record) -> None:
        """Counts a record that is whole."""
        stored_ms = record.store_timestamp_ms
        if self.newer is None and stored_ms > self.trusted_ms:
            self.newer = (record.commit_log_offset_bytes, self.queued)
        if stored_ms < self.newest_ms - CLOCK_SLACK_MS:
            self.clock_went_back = True
        self.newest_ms = max(self.newest_ms, stored_ms)
        self.last_ms = stored_ms
        self.records += 1
        if not self.records % MARK_EVERY:
            self.marks.append((record.commit_log_offset_bytes, self.queued))
        self.queued += is_queued(record.sys_flag)

    def take_rows(self, rows: Layout) -> None:
        """Counts records that are whole, at least one."""
        stored_ms = rows.store_timestamp_ms
        newest_before = self._newest_before(stored_ms)
        is_visible = is_queued(rows.sys_flag)
        queued_before = self.queued + numpy.cumsum(is_visible) - is_visible
        if self.newer is None and (untrusted := numpy.flatnonzero(stored_ms > self.trusted_ms)).size:
            self.newer = _mark(rows, queued_before, int(untrusted[0]))
        self.clock_went_back = self.clock_went_back or bool((stored_ms < newest_before - CLOCK_SLACK_MS).any())
        self.marks += [
            _mark(rows, queued_before, row) for row in range(-(self.records + 1) % MARK_EVERY, len(rows), MARK_EVERY)
        ]
        self.newest_ms = max(int(newest_before[-1]), int(stored_ms[-1]))
        self.last_ms = int(stored_ms[-1])
        self.records += len(rows)
        self.queued = int(queued_before[-1]) + bool(is_visible[-1])

    def _newest_before(self, stored_ms: Column) -> Column:
        newest = numpy.empty(len(stored_ms) + 1, numpy.int64)
        newest[0] = self.newest_ms
        newest[1:] = stored_ms
        return numpy.maximum.accumulate(newest)[:-1]


def _mark(rows: Layout, queued_before: Column, row: int) -> tuple[int, int]:
    return int(rows.physical[row]), int(queued_before[row])

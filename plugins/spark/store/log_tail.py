"""Finds the last messages of a log in its newest files.

There may be thousands of consume queues, so only the queues of the log's last records are read. A broker dispatches messages in
the order of the log. If a queue has the unit of a record, all messages before this record are therefore dispatched.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import numpy as np

from flintmq.core.errors import StoreFormatError
from flintmq.core.io.paths import queue_folder
from flintmq.core.record.record import Record, RecordError, decode_record
from flintmq.core.record.sys_flag import is_queued
from flintmq.plugins.spark.decoder import chain
from flintmq.plugins.spark.decoder.slices import Ints
from flintmq.plugins.spark.store.log_files import LogFiles, map_file
from flintmq.plugins.spark.store.queue_units import QueueUnits

_STEPS_BACK_MAX: Final = 10_000


@attrs.frozen
class LogTail:
    """The records of a log's newest files, which include all messages that may not be dispatched yet."""

    log: LogFiles
    starts: Ints
    """Physical offsets of the records in the log's newest files, ascending."""
    end: int
    """Physical offset just past the last record of the log."""
    is_whole: bool
    """Whether only zeros follow the last record of the log."""

    def last_named(self, root: Path) -> tuple[int, int] | None:
        """Return start and end of the last record to which a consume queue unit refers; None if no unit refers to any of the
        log's last records.

        Raises:
            StoreError: a queue cannot be read.
        """
        queues: dict[tuple[str, int], QueueUnits] = {}
        for position in reversed(self.starts[-_STEPS_BACK_MAX:].tolist()):
            record = self._record(position)
            if record is None or not is_queued(record.sys_flag):
                continue
            key = record.topic, record.queue_id
            if key not in queues:
                try:
                    queues[key] = QueueUnits(*key, queue_folder(root / "consumequeue", *key))
                except StoreFormatError:
                    continue  # The record is skipped, because its topic is not a valid folder name.
            unit = queues[key].unit(record.queue_offset)
            if unit is not None and unit[0] == position:
                return position, position + unit[1]
        return None

    def before(self, end: int, count: int) -> int:
        """Return the physical offset of a record before the position ``end``: exactly ``count`` records begin after this record
        and before ``end``. Return 0 if the log's newest files have too few records before ``end``."""
        index = int(np.searchsorted(self.starts, end)) - count - 1
        return int(self.starts[index]) if index >= 0 else 0

    def has_bad_body(self, count: int) -> bool:
        """Return whether one of the log's last ``count`` records is damaged. Earlier records are not checked, because a crash
        leaves incomplete records only at the end of the log."""
        return any(
            self._record(position) is None for position in self.starts[max(0, len(self.starts) - count) :].tolist()
        )

    def _record(self, position: int) -> Record | None:
        file = self.log.holding(position)
        data = map_file(file.path) if file is not None else None
        if file is None or data is None:
            return None
        try:
            return decode_record(data.data, position - file.start)
        except RecordError:
            return None


def walked_tail(log: LogFiles, count: int) -> LogTail | None:
    """Return the last records of a log, at least ``count`` records. If the log has fewer records, all records are returned. The
    result is None if the log has no records.

    Raises:
        StoreError: a file cannot be read.
    """
    found: list[Ints] = []
    end, is_whole = 0, True
    for start, walked, followed in _walked_back(log):
        if not found:
            end, is_whole = start + walked.end, not followed
        found.insert(0, walked.starts + start)
        if sum(map(len, found)) > count:
            break
    return LogTail(log, np.concatenate(found), end, is_whole) if found else None


def _walked_back(log: LogFiles) -> Iterator[tuple[int, chain.Chain, bool]]:
    """Yield, for each file of the log, the file's start, its records, and whether other bytes than zeros follow the records.
    The newest file comes first."""
    for file in reversed(log.files):
        data = map_file(file.path)
        if data is None:
            return
        walked = chain.walk(data, 0, file.size)
        followed = walked.why == "bad" or (walked.why == "zero" and bool(data[walked.end : walked.end + 4096].any()))
        if len(walked.starts) or followed:
            yield file.start, walked, followed

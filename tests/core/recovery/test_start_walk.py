"""The walk over a log: where it ends, what it skips, and that one by one and in bulk it finds the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.mapped_file_queue import MappedFileQueue
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log.watermarks import Watermarks
from flintmq.core.record.record import encode_blank
from flintmq.core.record.sys_flag import TRANSACTION_PREPARED
from flintmq.core.recovery.start_walk import Recovered, walk_log
from flintmq.testing.clock import ManualClock
from flintmq.tests.support.records import RecordFields

FILE_BYTES = 1_024
BODY = b"b" * 100


class Log:
    """A log's bytes, laid out record by record; :meth:`walk` writes the files and walks them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.raw = bytearray()
        self.places: list[int] = []
        self.now_ms = 1_000

    def add(self, count: int = 1, **fields: int) -> None:
        """Appends records, one millisecond apart; a file's end becomes a blank."""
        for _ in range(count):
            self.now_ms += 1
            made = {"body": BODY, "store_timestamp_ms": self.now_ms, **fields}
            record = RecordFields(**made).encode(len(self.raw))  # type: ignore[arg-type]
            left = FILE_BYTES - len(self.raw) % FILE_BYTES
            if len(record) + 8 > left:
                self.raw += encode_blank(left) + bytes(left - 8)
                record = RecordFields(**made).encode(len(self.raw))  # type: ignore[arg-type]
            self.places.append(len(self.raw))
            self.raw += record

    def break_at(self, place: int, data: bytes = b"\xff\xff") -> None:
        """Overwrites bytes."""
        self.raw[place : place + len(data)] = data

    def walk(
        self,
        first_file: int = 0,
        counted_file: int | None = None,
        *,
        skips_damage: bool = True,
        trusted_ms: int | None = None,
    ) -> Recovered:
        """What a walk finds in the files."""
        folder = self.root / "commitlog"
        folder.mkdir(parents=True, exist_ok=True)
        for start in range(0, len(self.raw), FILE_BYTES):
            (folder / f"{start:020d}").write_bytes(bytes(self.raw[start : start + FILE_BYTES]).ljust(FILE_BYTES, b"\0"))
        queue = MappedFileQueue(OS_DISK, folder, FILE_BYTES, step_bytes=FILE_BYTES)
        queue.load()
        checkpoint = StoreCheckpoint(OS_DISK, self.root / "checkpoint")
        try:
            log = CommitLog(queue, Watermarks(synchronous=False), checkpoint, ManualClock())
            return walk_log(
                log, first_file, counted_file, check_crc=True, skips_damage=skips_damage, trusted_ms=trusted_ms
            )
        finally:
            checkpoint.close()
            queue.close()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_the_startup_log_scan_counts_the_records_of_an_undamaged_log(log: Log) -> None:
    """Half messages are records, but none that a queue has."""
    log.add(10)
    log.add(2, sys_flag=TRANSACTION_PREPARED)
    found = log.walk()
    assert (found.records, found.queued, found.end_offset_bytes) == (12, 10, len(log.raw))
    assert (found.holes, found.store_timestamp_ms) == ((), log.now_ms)


def test_a_log_scan_that_begins_in_the_second_log_file_does_not_read_the_first_log_file(log: Log) -> None:
    """The files before it are not looked at, damaged or not."""
    log.add(12)
    log.break_at(0)
    found = log.walk(1)
    assert found.start_offset_bytes == FILE_BYTES
    assert found.records == sum(place >= FILE_BYTES for place in log.places)


def test_the_intact_records_of_a_log_file_are_counted_even_if_the_start_of_the_file_is_damaged(log: Log) -> None:
    """No record of the counted file's beginning is there to say that counting begins."""
    log.add(12)
    per_file = sum(place < FILE_BYTES for place in log.places)
    whole = log.walk(0, 1)
    assert (whole.records, whole.queued) == (12, 12 - per_file)
    lost = log.places[per_file - 1]
    log.break_at(lost, b"\xff" * (log.places[per_file + 1] - lost))
    found = log.walk(0, 1)
    assert [(hole.start_offset_bytes, hole.end_offset_bytes) for hole in found.holes] == [
        (lost, log.places[per_file + 1])
    ]
    assert (found.records, found.queued) == (12 - 2, 12 - per_file - 1)
    assert found.start_offset_bytes == FILE_BYTES


def test_a_torn_last_record_is_cut(log: Log) -> None:
    """Nothing valid follows, so the log ends at the first bad byte."""
    log.add(3)
    end = len(log.raw)
    log.add(1)
    log.break_at(end + 95)  # in the body: the CRC tells
    found = log.walk()
    assert found.cut is not None
    assert (found.cut.offset_bytes, found.cut.damaged, found.cut.stale) == (end, False, False)
    assert "body has CRC" in found.cut.reason
    assert found.records == 3


def test_the_log_scan_continues_after_a_damaged_record_if_valid_records_follow(log: Log) -> None:
    """Acknowledged records lie behind it; RocketMQ ends its log there all the same."""
    log.add(12)
    bad, after = log.places[2], log.places[3]
    log.break_at(bad + 4)
    found = log.walk()
    assert [(hole.start_offset_bytes, hole.end_offset_bytes) for hole in found.holes] == [(bad, after)]
    assert (found.records, found.end_offset_bytes) == (11, len(log.raw))
    strict = log.walk(skips_damage=False)
    assert strict.cut is not None
    assert (strict.cut.offset_bytes, strict.cut.damaged, strict.records) == (bad, True, 2)


def test_a_record_after_the_log_end_is_reported_as_stale_if_it_is_older_than_the_last_log_record(log: Log) -> None:
    """A recovery of RocketMQ leaves them: they were cut, and the log went on before them."""
    log.add(3)
    end = len(log.raw)
    log.raw += bytes(100)
    log.add(1, store_timestamp_ms=1)
    found = log.walk()
    assert found.cut is not None
    assert (found.cut.offset_bytes, found.cut.stale) == (end, True)


def test_the_log_is_cut_at_the_start_of_a_file_that_contains_only_a_torn_record(log: Log) -> None:
    """The blank was written because a record followed, and that one is gone."""
    log.add(6)
    assert log.places[-1] == FILE_BYTES
    log.break_at(FILE_BYTES, bytes(len(log.raw) - FILE_BYTES))
    log.break_at(FILE_BYTES, b"torn")
    found = log.walk()
    assert found.cut is not None
    assert found.cut.offset_bytes == FILE_BYTES
    assert found.records == 5


def test_the_startup_log_scan_reports_the_first_record_newer_than_the_checkpoint(log: Log) -> None:
    """Behind it queues are written again; a clock that went back makes times say nothing."""
    log.add(6)
    found = log.walk(trusted_ms=log.now_ms - 2)
    assert found.newer == (log.places[4], 4)
    assert found.vouched == found.newer
    assert not found.clock_went_back
    log.now_ms -= 5_000
    log.add(1)
    assert log.walk(trusted_ms=0).clock_went_back


def test_the_bulk_log_scan_returns_the_same_result_as_the_record_by_record_log_scan(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start has both ways, by the size of the log."""
    log.add(60)
    log.break_at(log.places[30] + 90)
    log.break_at(log.places[59] + 4)
    monkeypatch.setattr("flintmq.core.record.bulk_scan.ROWS_MIN", 1)
    monkeypatch.setattr("flintmq.core.record.bulk_scan.BYTES_WORTH_NUMPY", 0)
    bulk = log.walk(trusted_ms=0)
    monkeypatch.setattr("flintmq.core.record.log_walk.LogWalk._in_bulk", lambda *_all: (None, False))
    assert log.walk(trusted_ms=0) == bulk
    assert len(bulk.holes) == 1
    assert bulk.cut is not None

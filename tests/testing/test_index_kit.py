"""The index kit passes the built-in index, and names the rule that a wrong index breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flintmq.core.kernel.ports import RecordBatch
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.record.sys_flag import indexed
from flintmq.dispatchers.index.index_service import IndexService
from flintmq.testing.clock import ManualClock
from flintmq.testing.failure import KitFailure
from flintmq.testing.index_kit import check_index_builder
from flintmq.testing.simulated_disk import SimulatedDisk


def built_in() -> IndexService:
    """An index on a disk in memory."""
    disk = SimulatedDisk()
    checkpoint = StoreCheckpoint(disk, Path("/store/checkpoint"))
    return IndexService(disk, Path("/store/index"), 16, 64, checkpoint, ManualClock())


class Index:
    """An index in memory that keeps every rule."""

    indexed = staticmethod(indexed)

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, str, set[str]]] = []
        self.end_bytes = 0

    def dispatch(self, batch: RecordBatch) -> None:
        """Take what was not taken yet."""
        for one in self.indexed(batch.requests()):
            if one.commit_log_offset_bytes >= self.end_bytes:
                keys = {one.uniq_key, *one.keys.split(" ")}
                self.rows.append((one.commit_log_offset_bytes, one.store_timestamp_ms, one.topic, keys))
        self.end_bytes = max(self.end_bytes, batch.end_offset_bytes if batch.requests() else 0)

    def query(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> tuple[list[int], int, int]:
        """Find records by key, newest first."""
        found = [
            row[0] for row in reversed(self.rows) if row[2] == topic and key in row[3] and begin_ms <= row[1] <= end_ms
        ]
        last = self.rows[-1] if self.rows else (0, 0)
        return found[:max_num], last[1], last[0]

    def query_steps(self, *wanted: Any) -> Any:
        """Find records, with a pause."""
        yield
        return self.query(*wanted)

    def committed(self) -> int:
        """Return the end of what was taken."""
        return self.end_bytes

    def committed_below(self, end_offset_bytes: int) -> int:
        """Return what is left after a cut."""
        return min(self.end_bytes, end_offset_bytes)

    def truncate(self, end_offset_bytes: int) -> None:
        """Forget what lies at or behind a position."""
        self.rows = [row for row in self.rows if row[0] < end_offset_bytes]
        self.end_bytes = min(self.end_bytes, end_offset_bytes)

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("make", [built_in, Index], ids=["built-in", "in memory"])
def test_a_correct_index_passes_the_test_kit_for_indexes(make: Any) -> None:
    """The index of the broker must keep the rules that plugins have to keep."""
    check_index_builder(make)


class OldestFirst(Index):
    def query(self, *wanted: Any) -> Any:
        found, time_ms, offset = super().query(*wanted)
        return found[::-1], time_ms, offset


class AllOfThem(Index):
    def query(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> Any:
        return super().query(topic, key, 1_000, begin_ms, end_ms)


class AnyTime(Index):
    def query(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> Any:
        return super().query(topic, key, max_num, 0, 2**62)


class EndOfTaken(Index):
    def query(self, *wanted: Any) -> Any:
        found, time_ms, _offset = super().query(*wanted)
        return found, time_ms, self.end_bytes


class RolledBack(Index):
    indexed = staticmethod(list)


class OtherSteps(Index):
    def query_steps(self, *wanted: Any) -> Any:
        yield
        return [], 0, 0


class Remembers(Index):
    def truncate(self, end_offset_bytes: int) -> None:
        self.end_bytes = min(self.end_bytes, end_offset_bytes)


class RemembersTheNewest(Index):
    newest = (0, 0, "", frozenset[str]())

    def truncate(self, end_offset_bytes: int) -> None:
        self.newest = self.rows[-1]
        super().truncate(end_offset_bytes)

    def query(self, *wanted: Any) -> Any:
        found, time_ms, offset = super().query(*wanted)
        return found, max(time_ms, self.newest[1]), max(offset, self.newest[0])


class ForgetsThePast(Index):
    def truncate(self, end_offset_bytes: int) -> None:
        super().truncate(end_offset_bytes)
        self.rows.clear()


class Foretells(Index):
    def committed_below(self, end_offset_bytes: int) -> int:
        return end_offset_bytes - 1


class TwiceTaken(Index):
    def dispatch(self, batch: RecordBatch) -> None:
        self.end_bytes = 0
        super().dispatch(batch)


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (OldestFirst, "newest first"),
        (AllOfThem, "at most max_num records"),
        (AnyTime, "outside its times"),
        (EndOfTaken, "the physical offset of the newest record"),
        (RolledBack, "unless rolled back"),
        (OtherSteps, "query_steps finds what query finds"),
        (Remembers, "truncate forgets records at or after the position"),
        (RemembersTheNewest, "the newest record after a cut"),
        (ForgetsThePast, "a record is found by its keys"),
        (Foretells, "committed_below says what committed says after the cut"),
        (TwiceTaken, "a batch that comes again is ignored"),
    ],
)
def test_the_test_kit_for_indexes_reports_the_rule_that_a_faulty_index_breaks(made: type[Index], rule: str) -> None:
    """An author reads what to mend before an operator searches for a message in vain."""
    with pytest.raises(KitFailure, match=rule):
        check_index_builder(made)

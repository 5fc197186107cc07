"""A dispatcher that has less than the store gets the rest at the next start, before anything new and only what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.errors import StoreError
from flintmq.core.kernel.ports import RecordBatch
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store


class Keeper:
    """Remembers what it is given; says what it has for good."""

    def __init__(self, committed: int | None, *, reads_itself: bool | None = None) -> None:
        self._committed = committed
        self.got: list[int] = []
        self.missed: list[tuple[int, int]] = []
        self.closed = 0
        if reads_itself is not None:
            self._reads_itself = reads_itself
            self.catch_up = self._catch_up

    def dispatch(self, batch: RecordBatch) -> None:
        self.got += [request.commit_log_offset_bytes for request in batch.requests()]

    def committed(self) -> int | None:
        return self._committed

    def _catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> bool:
        self.missed.append((start_offset_bytes, end_offset_bytes))
        return self._reads_itself

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def offsets(tmp_path: Path) -> list[int]:
    """Where the records of a stopped store begin, and at last where its log ends."""
    store = open_store(tmp_path, clock=ManualClock())
    try:
        found = [store.put([message(body=b"x" * 300)]).records[0].commit_log_offset_bytes for _ in range(30)]
        store.dispatch()
        return [*found, store.watermarks.wrote]
    finally:
        store.close()


def started(tmp_path: Path, *dispatchers: Keeper) -> None:
    store = open_store(tmp_path, *dispatchers, clock=ManualClock(1_800_000_000_000))
    try:
        assert all(not dispatcher.closed for dispatcher in dispatchers)
    finally:
        store.close()
    assert all(dispatcher.closed == 1 for dispatcher in dispatchers)


def test_at_a_start_each_dispatcher_gets_all_records_after_its_committed_position(
    tmp_path: Path, offsets: list[int]
) -> None:
    """The restart point of dispatch is the lowest of all; who has everything is left alone."""
    half, all_of_it, nothing, silent = Keeper(offsets[15]), Keeper(offsets[-1]), Keeper(0), Keeper(None)
    started(tmp_path, half, all_of_it, nothing, silent)
    assert set(half.got) >= set(offsets[15:-1])
    assert nothing.got == offsets[:-1]
    assert all_of_it.got == silent.got == []


def test_a_starting_broker_passes_no_records_to_a_dispatcher_that_reads_the_log_itself(
    tmp_path: Path, offsets: list[int]
) -> None:
    """A landing zone that was off for days must not keep the broker from starting."""
    reader, not_now = Keeper(offsets[3], reads_itself=True), Keeper(offsets[3], reads_itself=False)
    started(tmp_path, reader, not_now)
    assert reader.missed == not_now.missed == [(offsets[3], offsets[-1])]
    assert reader.got == []
    assert not_now.got == offsets[3:-1]


def test_an_error_is_logged_if_records_were_deleted_before_a_dispatcher_received_them(
    tmp_path: Path, offsets: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """The dispatcher gets what is left, and the operator hears what is not."""
    min(tmp_path.joinpath("commitlog").iterdir()).unlink()
    keeper = Keeper(offsets[1])
    started(tmp_path, keeper)
    assert keeper.got
    assert keeper.got == [offset for offset in offsets[:-1] if offset >= 4096]
    assert any("Keeper" in text and "file_reserved_hours" in text for text in caplog.messages)


def test_the_broker_does_not_start_if_a_dispatcher_committed_a_position_inside_a_record(
    tmp_path: Path, offsets: list[int]
) -> None:
    """A dispatcher that is wrong about what it has must not be fed from the middle of a record."""
    with pytest.raises(StoreError, match="no record at position"):
        started(tmp_path, Keeper(offsets[2] + 1))

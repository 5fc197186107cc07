"""A broker that has stored and read a lot must not look like one that leaks; what is given back must still be served."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.store.message_store import MessageStore
from flintmq.core.testing.store import BY_HAND, message, opened, snapshot
from flintmq.plugins.retention import resident_pages
from flintmq.plugins.retention.resident_pages import RESIDENT_CHECK_S, ResidentPages
from flintmq.tests.support.faulty_disk import FaultyDisk, FaultyRegion

FILE_BYTES = 16 * 1024
COUNT = 200
NEWEST_BYTES = 20 * 1024


class Watched(FaultyDisk):
    """Has as much in memory as a test says."""

    resident = 2

    def resident_bytes(self) -> int:
        return self.resident


@pytest.fixture
def evicted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int, int]]:
    """Which parts of which files were given back; they really are."""
    found: list[tuple[Path, int, int]] = []
    evict = FaultyRegion.evict

    def noted(self: FaultyRegion, start: int, end: int) -> None:
        found.append((self._path, start, end))
        evict(self, start, end)

    monkeypatch.setattr(FaultyRegion, "evict", noted)
    return found


def fill(store: MessageStore, *, flushed: bool = True) -> None:
    for number in range(COUNT):
        store.put([message("T", 0, b"%08d" % number * 32, keys=f"k{number}", uniq_key=f"U{number}")])
    while store.dispatch():
        pass
    store.index.flush()
    if flushed:
        while store.watermarks.flushed < store.watermarks.wrote:
            store.commit_log.flush(0)
        store.consume_queues.flush(0)


def test_nothing_is_given_back_while_little_is_there(tmp_path: Path, evicted: list[tuple[Path, int, int]]) -> None:
    """A quiet broker must not pay for faults."""
    with opened(tmp_path, strategy=BY_HAND, disk=Watched(), commit_log_file_bytes=FILE_BYTES) as store:
        fill(store)
        assert ResidentPages(store, 2, NEWEST_BYTES).tick() == RESIDENT_CHECK_S
    assert evicted == []


def test_all_but_the_newest_goes_and_is_still_served(tmp_path: Path, evicted: list[tuple[Path, int, int]]) -> None:
    """Every byte of the log before its newest part, of queues what is synced, of the index the entries; none is changed."""
    with opened(tmp_path, strategy=BY_HAND, disk=Watched(), commit_log_file_bytes=FILE_BYTES) as store:
        fill(store)
        pages = ResidentPages(store, 1, NEWEST_BYTES)
        before = snapshot(tmp_path, "commitlog", "consumequeue", "index")
        while pages.tick() == 0.0:
            pass
        behind = store.watermarks.flushed - NEWEST_BYTES
        files = [(int(path.name), *part) for path, *part in evicted if path.parent.name == "commitlog"]
        log = sorted((at + start, at + end) for at, start, end in files)
        assert log[0][0] == 0
        assert log[-1][1] == behind
        assert [end for _, end in log[:-1]] == [start for start, _ in log[1:]], "without a hole"
        queue = store.consume_queues.queues["T", 0]
        assert {(file.path, 0, file.flushed) for file in queue.files.files} <= set(evicted)
        assert any(path.parent.name == "index" and start > 0 for path, start, _ in evicted)
        assert snapshot(tmp_path, "commitlog", "consumequeue", "index") == before
        units = [queue.unit(number) for number in range(COUNT)]
        records = [store.reader.message_at(unit[0]) for unit in units if unit is not None]
        bodies = [record.body for record in records if record is not None]
        assert bodies == [b"%08d" % number * 32 for number in range(COUNT)]


def test_what_is_not_synced_stays(tmp_path: Path, evicted: list[tuple[Path, int, int]]) -> None:
    """Its pages would be made dirty, cleaned and mapped again for nothing."""
    with opened(tmp_path, strategy=BY_HAND, disk=Watched(), commit_log_file_bytes=FILE_BYTES) as store:
        fill(store, flushed=False)
        pages = ResidentPages(store, 1, NEWEST_BYTES)
        while pages.tick() == 0.0:
            pass
        assert not [path for path, _, _ in evicted if path.parent.name != "index"]


def test_a_round_leaves_the_loop_its_turns(
    tmp_path: Path, evicted: list[tuple[Path, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gigabyte takes a while, during which messages come, and files go."""
    monkeypatch.setattr(resident_pages, "_SLICE_S", 0.0)
    disk = Watched()
    with opened(tmp_path, strategy=BY_HAND, disk=disk, commit_log_file_bytes=FILE_BYTES) as store:
        fill(store)
        pages = ResidentPages(store, 1, 0)
        assert pages.tick() == 0.0
        assert len(evicted) == 1
        assert store.commit_log.queue.delete_before(4 * FILE_BYTES) == 4
        ticks = 1
        while pages.tick() == 0.0:
            ticks += 1
        assert ticks == len(evicted) > 4
        disk.resident = 1
        assert pages.tick() == RESIDENT_CHECK_S, "and the next round begins only when it must"
        assert len(evicted) == ticks

"""A log that is not where it is looked for is a mistake: nothing of what is still there may be deleted for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flintmq.core.errors import StoreFormatError
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.io.paths import ends_path
from flintmq.core.recovery.last_stop import LastStop, boot_path
from flintmq.core.recovery.missing_log import may_be_lost
from flintmq.core.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store, opened, snapshot

FILE_BYTES = 4096
COUNT = 100
SIZES = {"commit_log_file_bytes": FILE_BYTES, "max_index_num": 1_000}


def fill(store: MessageStore, clock: ManualClock) -> None:
    for number in range(COUNT):
        store.put([message("T", number % 2, b"body" * 20, keys=f"k{number}")])
        store.dispatch()
        clock.advance_ms(1_000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that was stopped, with several files in its log."""
    clock = ManualClock(1_000_000)
    with opened(tmp_path / "store", clock=clock, **SIZES) as store:
        fill(store, clock)
    return tmp_path / "store"


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def left(root: Path, last_stop: LastStop) -> None:
    """Has a store look as if its broker had ended so."""
    if last_stop is not LastStop.CLEAN:
        (root / "abort").touch()
    if last_stop is LastStop.KILLED:
        boot_path(root).write_text(OS_DISK.incarnation(root))
    else:
        boot_path(root).unlink(missing_ok=True)


def kept(root: Path) -> dict[str, bytes]:
    """The store but for its index, whose newest file is made again after every crash."""
    return {name: raw for name, raw in snapshot(root).items() if not name.startswith("index/")}


def messages_of(store: MessageStore) -> int:
    return sum(store.reader.max_queue_offset("T", queue_id) for queue_id in (0, 1))


@pytest.mark.parametrize("last_stop", LastStop)
@pytest.mark.parametrize("missing", ["all", "the last", "one in the middle"])
def test_files_that_no_crash_took_are_missed(root: Path, tmp_path: Path, last_stop: LastStop, missing: str) -> None:
    """A folder that is not mounted, after whatever end: nothing is changed, and with the files back all is there."""
    files = log_files(root)
    gone = {"all": files, "the last": files[-2:], "one in the middle": files[3:4]}[missing]
    left(root, last_stop)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in gone:
        path.rename(elsewhere / path.name)
    before = kept(root)
    for _ in range(2):
        with pytest.raises(StoreFormatError, match=r"not mounted.*commit_log_paths"):
            open_store(root, **SIZES)
        assert kept(root) == before
    for path in gone:
        (elsewhere / path.name).rename(path)
    with opened(root, **SIZES) as store:
        assert messages_of(store) == COUNT


@pytest.mark.parametrize("missing", ["all", "the last", "one in the middle"])
def test_what_was_never_synced_may_be_lost_in_a_crash(root: Path, missing: str) -> None:
    """The checkpoint vouches for nothing of it: the start goes on with what is there."""
    files = log_files(root)
    for path in {"all": files, "the last": files[-2:], "one in the middle": files[-2:-1]}[missing]:
        path.unlink()
    (root / "checkpoint").unlink()
    ends_path(root).unlink()
    left(root, LastStop.CRASHED)
    with opened(root, **SIZES) as store:
        assert (messages_of(store) == 0) is (missing == "all")
        found = len(list(store.commit_log.requests(store.commit_log.min_offset_bytes, store.watermarks.wrote)))
        assert found < COUNT


def test_with_strict_it_is_as_in_rocketmq(root: Path) -> None:
    """Queues without a log are deleted."""
    shutil.rmtree(root / "commitlog")
    with opened(root, **SIZES, compat="strict") as store:
        assert messages_of(store) == 0


def test_without_the_queues_a_start_goes_on_with_what_is_left(root: Path) -> None:
    """As the error says, for one whose files are lost for good; no queue offset is given twice."""
    for path in log_files(root)[-2:]:
        path.unlink()
    shutil.rmtree(root / "consumequeue")
    with opened(root, **SIZES) as store:
        last = messages_of(store)
        assert last == COUNT
        assert 0 < len(list(store.commit_log.requests(0, store.watermarks.wrote))) < COUNT
        store.put([message("T", 0)])
        while store.dispatch():
            pass
        assert messages_of(store) == last + 1


def test_a_store_in_use_whose_queues_are_empty_is_no_mistake(tmp_path: Path) -> None:
    """It was started, and nothing was sent: it may have no log."""
    open_store(tmp_path, **SIZES).close()
    shutil.rmtree(tmp_path / "commitlog", ignore_errors=True)
    open_store(tmp_path, **SIZES).close()


@pytest.mark.parametrize("first_bytes", [b"", b"\0" * 200, b"\xff" * 200])
def test_a_file_that_begins_with_no_record_proves_nothing(first_bytes: bytes) -> None:
    """The one before it may be lost, unless nothing can be."""
    assert may_be_lost(LastStop.CRASHED, 2**62, memoryview(first_bytes))
    assert not may_be_lost(LastStop.KILLED, 2**62, memoryview(first_bytes))

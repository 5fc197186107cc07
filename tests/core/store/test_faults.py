"""A disk that fails decides what a broker is worth: a failed sync is final, a full disk costs no message that was taken."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.errors import RefusedError, StoreError, StoreFencedError, StoreFullError
from flintmq.core.kernel.ports import DispatchRequest, FlushStatus
from flintmq.core.record.record import RECORD_MIN_BYTES
from flintmq.core.response_code import ResponseCode
from flintmq.core.store.message_store import MessageStore
from flintmq.core.store.message_writer import Put
from flintmq.testing.store import BY_HAND, message, open_store, opened, snapshot
from flintmq.tests.support.faulty_disk import FaultyDisk

FILE_BYTES = 4096


def fill(store: MessageStore, size_bytes: int, queue_id: int = 0, **properties: str) -> Put:
    body = b"b" * (size_bytes - RECORD_MIN_BYTES - 1)
    return store.put([message("T", queue_id, body, **properties)])


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "flintmq.store")


# fences


def test_a_failed_sync_of_the_log_fences_the_store_permanently(tmp_path: Path) -> None:
    """The kernel may have dropped the pages, so a later sync that succeeds proves nothing: no retry, no acknowledgement."""
    disk = FaultyDisk()
    store = open_store(tmp_path, disk=disk)
    assert fill(store, 200).waiter.status is FlushStatus.FLUSHED
    told: list[str] = []
    store.fenced.subscribe(told.append)
    disk.fail("sync", within="commitlog", times=1)
    assert fill(store, 200).waiter.status is FlushStatus.FENCED
    assert store.commit_log.flushed_offset_bytes == 200
    assert len(told) == 1
    syncs = disk.calls["sync"]
    with pytest.raises(StoreFencedError, match="restart"):
        store.commit_log.flush(0)
    with pytest.raises(StoreFencedError):
        store.commit_log.append([message()])
    assert disk.calls["sync"] == syncs
    with pytest.raises(RefusedError) as refused:
        fill(store, 200)
    assert (refused.value.code, refused.value.reason) == (ResponseCode.SERVICE_NOT_AVAILABLE, "store.fenced")
    store.dispatch()
    assert store.reader.max_queue_offset("T", 0) == 1
    store.close()
    assert (tmp_path / "abort").exists()
    with opened(tmp_path) as again:
        assert not again.started_clean
        assert again.reader.max_queue_offset("T", 0) == 2  # written before the sync failed, and found valid


def test_writes_continue_after_a_failed_sync_of_a_consume_queue_file_but_the_stop_is_not_clean(tmp_path: Path) -> None:
    """Queues can be rebuilt: the log goes on, but the store is not called clean."""
    disk = FaultyDisk()
    store = open_store(tmp_path, disk=disk)
    fill(store, 200)
    store.dispatch()
    disk.fail("sync", within="consumequeue")
    assert fill(store, 200).waiter.status is FlushStatus.FLUSHED
    store.close()
    assert (tmp_path / "abort").exists()
    with opened(tmp_path) as again:
        assert again.reader.max_queue_offset("T", 0) == 2


# a full disk


def results(put: Put) -> Any:
    (result,) = put.results
    return result


def test_a_full_log_disk_refuses_writes_until_space_is_free(tmp_path: Path) -> None:
    """Earlier messages stay readable, later ones are taken when there is room again, and nothing lies between."""
    disk = FaultyDisk()
    with opened(tmp_path, disk=disk, commit_log_file_bytes=FILE_BYTES) as store:
        fill(store, 3000)
        store.dispatch()
        before = snapshot(tmp_path, "commitlog")
        fault = disk.fail("map_file", within="commitlog")
        for _ in range(2):
            assert isinstance(results(fill(store, 2000)), StoreFullError)
        assert fault.hits == 2
        assert snapshot(tmp_path, "commitlog") == before
        assert store.reader.message_at(0) is not None
        small = results(fill(store, 200))
        assert isinstance(small, DispatchRequest)
        assert (small.commit_log_offset_bytes, small.queue_offset) == (3000, 1)
        disk.heal()
        late = results(fill(store, 2000))
        assert isinstance(late, DispatchRequest)
        assert (late.commit_log_offset_bytes, late.queue_offset) == (FILE_BYTES, 2)
        store.dispatch()
        assert store.reader.max_queue_offset("T", 0) == 3


def test_the_messages_that_fit_are_stored_if_the_disk_fills_during_a_put(tmp_path: Path) -> None:
    """Some of the messages of one put may be refused and others taken: each answer is its own message's."""
    disk = FaultyDisk()
    with opened(tmp_path, disk=disk) as store:
        disk.fail("map_file", within="commitlog", after=1)
        sizes = [3000, 2000, 500, 3000, 300]
        items = [message(body=b"b" * (size - RECORD_MIN_BYTES - 1)) for size in sizes]
        got = store.put(list(items)).results
        assert [type(result) for result in got] == [
            DispatchRequest,
            StoreFullError,
            DispatchRequest,
            StoreFullError,
            DispatchRequest,
        ]
        places = [(r.commit_log_offset_bytes, r.queue_offset) for r in got if isinstance(r, DispatchRequest)]
        assert places == [(0, 0), (3000, 1), (3500, 2)]
        disk.heal()
        store.dispatch()
        assert store.reader.max_queue_offset("T", 0) == 3


def test_writes_are_refused_if_no_disk_space_can_be_allocated_for_the_last_log_file(tmp_path: Path) -> None:
    """A file that was found sparse is backed by disk before it is written on; without room it is not written on."""
    open_store(tmp_path).close()
    with opened(tmp_path) as store:
        fill(store, 200)
    disk = FaultyDisk()
    with opened(tmp_path, disk=disk) as store:
        disk.fail("allocate", within="commitlog")
        assert isinstance(results(fill(store, 200)), StoreFullError)
        disk.heal()
        assert results(fill(store, 200)).commit_log_offset_bytes == 200


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_dispatch_stops_while_consume_queue_files_have_no_disk_space_and_loses_no_message(
    tmp_path: Path, after: int
) -> None:
    """Messages are in the log by then: dispatch stands still, writes are refused, and afterwards all is as without a fault."""

    def run(path: Path, disk: FaultyDisk) -> None:
        store = open_store(path, disk=disk, strategy=BY_HAND, max_index_num=16)
        for number in range(40):
            fill(store, 150, number % 2, KEYS=f"a{number} b{number}")
        stood = False
        while store.dispatch():
            pass
        if store.reput.error is not None:
            stood = True
            with pytest.raises(RefusedError) as refused:
                fill(store, 150)
            assert refused.value.reason == "store.disk_full"
            while store.dispatch():
                pass
        disk.heal()
        while store.dispatch():
            pass
        assert store.reput.error is None
        assert stood == (path.name == "faulty")
        fill(store, 150, 0, KEYS="last")
        store.close()

    disk = FaultyDisk()
    fault = disk.fail("map_file", within="consumequeue", after=after)
    run(tmp_path / "faulty", disk)
    assert fault.hits
    run(tmp_path / "sound", FaultyDisk())
    folders = ("commitlog", "consumequeue")
    assert snapshot(tmp_path / "faulty", *folders) == snapshot(tmp_path / "sound", *folders)
    assert index_bytes(tmp_path / "faulty") == index_bytes(tmp_path / "sound")


def index_bytes(path: Path) -> list[bytes]:
    return list(snapshot(path, "index").values())


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("operation", ["map_file", "allocate"])
def test_an_index_flush_that_fails_on_a_full_disk_neither_loses_nor_duplicates_index_entries(
    tmp_path: Path, operation: Any, after: int
) -> None:
    """Entries that had room stay, those that had none come later; a record between two files is neither lost nor twice."""
    disk = FaultyDisk()
    with opened(tmp_path / "faulty", disk=disk, max_index_num=16) as store:
        for number in range(20):
            fill(store, 200, KEYS=f"a{number} b{number} c{number}")
        store.dispatch()
        fault = disk.fail(operation, within="index", after=after)
        failures = 0
        while fault.hits == failures:
            try:
                store.index.flush()
            except StoreError:
                failures += 1
                break
        assert failures == 1
        disk.heal()
        store.index.flush()
        fill(store, 200, KEYS="z")
        store.dispatch()
        store.index.flush()
        for number in range(20):
            for letter in "abc":
                assert len(store.reader.query_message("T", f"{letter}{number}", 8, 0, 2**63 - 1)[0]) == 1
    with opened(tmp_path / "sound", max_index_num=16) as store:
        for number in range(20):
            fill(store, 200, KEYS=f"a{number} b{number} c{number}")
        fill(store, 200, KEYS="z")
    assert index_bytes(tmp_path / "faulty") == index_bytes(tmp_path / "sound")


def test_a_store_can_be_opened_again_after_a_start_that_failed_on_a_full_disk(tmp_path: Path) -> None:
    """The folder must not stay locked, nor its files open, when a broker could not start on it."""
    with opened(tmp_path) as store:
        fill(store, 200)
    before = snapshot(tmp_path)
    disk = FaultyDisk()
    disk.fail("write_file", within="abort")
    with pytest.raises(StoreFullError):
        open_store(tmp_path, disk=disk)
    disk.heal()
    disk.fail("map_file", within="checkpoint")
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(StoreFullError):
        open_store(tmp_path, disk=disk)
    (tmp_path / "checkpoint").write_bytes(before["checkpoint"])
    assert snapshot(tmp_path) == before
    with opened(tmp_path) as store:
        assert store.started_clean
        assert store.reader.max_queue_offset("T", 0) == 1

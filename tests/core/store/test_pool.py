"""With the transient pool, bytes are in no file until they are committed: nothing may say or show otherwise."""

from __future__ import annotations

from pathlib import Path

import attrs

from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.record.record import RECORD_MIN_BYTES
from flintmq.core.store.message_store import MessageStore
from flintmq.flush.transient_store_pool import AnonymousBufferPool
from flintmq.testing.store import BY_HAND, message, open_store, opened, snapshot
from flintmq.tests.support.faulty_disk import FaultyDisk

POOLED = attrs.evolve(BY_HAND, uses_pool=True)
FILE_BYTES = 4096


def pooled(path: Path, buffers: int) -> tuple[MessageStore, AnonymousBufferPool]:
    pool = AnonymousBufferPool(buffers, FILE_BYTES)
    return open_store(path, strategy=POOLED, pool=pool, disk=FaultyDisk()), pool


def fill(store: MessageStore, size_bytes: int) -> int:
    """Puts a message whose record takes so many bytes; returns where it lies."""
    (result,) = store.put([message(body=b"b" * (size_bytes - RECORD_MIN_BYTES - 1))]).results
    assert isinstance(result, DispatchRequest)
    return result.commit_log_offset_bytes


def test_bytes_in_the_pool_are_unreadable_until_they_are_committed(tmp_path: Path) -> None:
    """Buffer, commit, readable, flushed: each position moves after what it stands for."""
    store, _pool = pooled(tmp_path, 2)
    fill(store, 300)
    log = store.commit_log
    assert (log.wrote_offset_bytes, log.committed_offset_bytes, log.max_offset_bytes) == (300, 0, 0)
    assert not store.dispatch()
    assert store.reader.max_queue_offset("T", 0) == 0
    assert store.reader.message_at(0) is None
    assert log.flush(0) == 0
    assert log.commit(1) == 0
    assert log.commit(0) == 300
    assert log.flushed_offset_bytes == 0
    store.dispatch()
    assert store.reader.max_queue_offset("T", 0) == 1
    assert store.reader.message_at(0) is not None
    assert log.flush(0) == 300
    store.close()


def test_the_buffer_of_a_full_log_file_returns_to_the_pool_after_the_file_is_committed(tmp_path: Path) -> None:
    """Buffers are few: one that is full and committed goes back at once."""
    store, pool = pooled(tmp_path, 2)
    fill(store, 4000)
    assert fill(store, 200) == FILE_BYTES
    assert pool.available_buffers == 0
    assert store.commit_log.commit(100) == FILE_BYTES
    assert pool.available_buffers == 1
    assert store.commit_log.commit(100) == FILE_BYTES
    assert store.commit_log.commit(0) == FILE_BYTES + 200
    store.close()
    assert pool.available_buffers == 0  # closed


def test_a_log_file_becomes_readable_only_after_all_earlier_log_files_are_committed(
    tmp_path: Path,
) -> None:
    """Files beyond the pool are written through their pages, but stay invisible until what lies before them is committed."""
    store, pool = pooled(tmp_path, 1)
    places = [fill(store, 3000) for _ in range(4)]
    assert places == [n * FILE_BYTES for n in range(4)]
    log = store.commit_log
    assert pool.available_buffers == 0
    assert log.committed_offset_bytes == 0
    assert log.flush(0) == 0
    assert not store.dispatch()
    assert log.commit(0) == 3 * FILE_BYTES + 3000
    flushed = [log.flush(0) for _ in range(4)]
    assert flushed == [FILE_BYTES, 2 * FILE_BYTES, 3 * FILE_BYTES, 3 * FILE_BYTES + 3000]
    store.dispatch()
    assert store.reader.max_queue_offset("T", 0) == 4
    assert all(store.reader.message_at(place) is not None for place in places)
    fill(store, 1000)
    assert log.commit(0) == log.wrote_offset_bytes
    store.close()


def test_a_store_writes_the_same_files_with_and_without_a_transient_store_pool(tmp_path: Path) -> None:
    """The pool is a detour, not a format; and a pool of one lets buffered and unbuffered files alternate."""
    for buffers in (0, 1, 3):
        pool = AnonymousBufferPool(buffers, FILE_BYTES) if buffers else None
        strategy = POOLED if buffers else BY_HAND
        with opened(tmp_path / str(buffers), strategy=strategy, pool=pool, disk=FaultyDisk()) as store:
            for n in range(60):
                fill(store, 100 + 83 * (n % 17))
                if n % 4 == 3:
                    store.commit_log.commit(0)
                    store.dispatch()
    folders = ("commitlog", "consumequeue", "index")
    assert snapshot(tmp_path / "0", *folders) == snapshot(tmp_path / "1", *folders)
    assert snapshot(tmp_path / "0", *folders) == snapshot(tmp_path / "3", *folders)


def test_a_partly_written_log_file_gets_no_pool_buffer_after_a_restart(tmp_path: Path) -> None:
    """Its first part is in the file already."""
    store, _pool = pooled(tmp_path, 1)
    fill(store, 300)
    store.close()
    store, pool = pooled(tmp_path, 1)
    assert fill(store, 300) == 300
    assert pool.available_buffers == 1
    store.commit_log.commit(0)
    store.dispatch()
    assert store.reader.max_queue_offset("T", 0) == 2
    store.close()

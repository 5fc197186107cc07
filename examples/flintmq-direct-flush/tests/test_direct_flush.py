"""The flush strategy ``direct_flush`` acknowledges messages only when they are in the log's files, also after a restart."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from pathlib import Path

import pytest
from flintmq_direct_flush.service import DirectFlush, DirectFlushSection
from flintmq_direct_flush.writer import PAGE_BYTES, Mode, SyncedWriter

from flintmq import AnonymousBufferPool
from flintmq.core.kernel.ports import FlushStatus, FlushStrategy, FlushWaiter
from flintmq.testing.clock import SYSTEM_CLOCK
from flintmq.testing.flush_kit import check_flush_service
from flintmq.testing.store import MessageStore, message, open_store

STRATEGY = FlushStrategy("direct_flush", DirectFlush, DirectFlushSection, synchronous=True, uses_pool=True)
FILE_BYTES = 16 * PAGE_BYTES


def store_at(path: Path, mode: Mode) -> MessageStore:
    return open_store(
        path,
        strategy=STRATEGY,
        settings=DirectFlushSection(mode=mode, interval_ms=2),
        pool=AnonymousBufferPool(2, FILE_BYTES),
        clock=SYSTEM_CLOCK,
        commit_log_file_bytes=FILE_BYTES,
        consume_queue_file_bytes=2000,
    )


def wait(waiter: FlushWaiter) -> FlushStatus:
    done = threading.Event()
    waiter.add_done_callback(lambda _status: done.set())
    assert done.wait(10)
    assert waiter.status is not None
    return waiter.status


@pytest.mark.parametrize("mode", ["direct", "dsync"])
def test_the_direct_strategy_passes_the_flush_kit(mode: Mode) -> None:
    settings = DirectFlushSection(mode=mode, sync_flush_timeout_ms=100, interval_ms=2)
    check_flush_service(
        DirectFlush, settings=settings, synchronous=True, timeout_s=0.1, pool_factory=AnonymousBufferPool
    )


@pytest.mark.parametrize("mode", ["direct", "dsync"])
def test_acknowledged_messages_are_in_the_log_file(tmp_path: Path, mode: Mode) -> None:
    """The records fill several files and end at many positions in a page; a second start of the broker finds all records."""
    store = store_at(tmp_path, mode)
    bodies = [os.urandom(1 + 37 * n % 3000) for n in range(150)]
    for body in bodies:
        assert wait(store.put([message("T", body=body)]).waiter) is FlushStatus.FLUSHED
        end = store.watermarks.flushed
        path = tmp_path / "commitlog" / f"{end // FILE_BYTES * FILE_BYTES:020}"
        if end % FILE_BYTES:
            tail = path.read_bytes()[: end % FILE_BYTES]
            assert tail.endswith(bytes(store.commit_log.slice(end - 8, 8) or b"nothing"))
    assert len(store.commit_log.queue.files) > 2
    store.close()
    store = store_at(tmp_path, mode)
    store.dispatch()
    found = store.reader.get_message("T", 0, 0, 1000, None)
    log = b"".join(bytes(piece) for piece in found.slices)
    assert found.message_count > 0
    assert all(body in log for body in bodies[: found.message_count])
    assert store.reader.max_queue_offset("T", 0) == len(bodies)
    store.close()


def test_a_failed_write_fences_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed direct write the flush strategy acknowledges no message any more, as after a failed sync."""
    store = store_at(tmp_path, "dsync")
    assert wait(store.put([message("T", body=b"good")]).waiter) is FlushStatus.FLUSHED
    durable = store.watermarks.flushed

    def failing(*_arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pwrite", failing)
    assert wait(store.put([message("T", body=b"bad")]).waiter) is FlushStatus.FENCED
    monkeypatch.undo()
    assert store.watermarks.fence_reason is not None
    assert "write failed" in store.watermarks.fence_reason
    store.close()
    assert store.watermarks.flushed == durable


@pytest.mark.parametrize("mode", ["direct", "dsync"])
def test_whole_pages_are_written_and_the_file_keeps_its_size(tmp_path: Path, mode: Mode) -> None:
    """If new bytes begin within a page, the write also contains the earlier bytes of this page. No byte is written beyond the
    file's end."""
    path = tmp_path / "log"
    with mmap.mmap(-1, 3 * PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        buffer = memoryview(memory)
        path.write_bytes(bytes(len(buffer)))
        writer = SyncedWriter(mode)
        for begin, end in ((0, 100), (100, 5000), (5000, len(buffer))):
            buffer[begin:end] = os.urandom(end - begin)
            writer(path, buffer, begin, end)
            assert path.read_bytes() == bytes(buffer)
        writer.close()
        assert writer.writes == 3
        buffer.release()


def test_a_file_with_a_partial_last_page_is_written(tmp_path: Path) -> None:
    """Direct writes cannot end within a page, so a file whose size is not a multiple of a page is written through the page
    cache."""
    path = tmp_path / "log"
    path.write_bytes(bytes(5000))
    writer = SyncedWriter("direct")
    writer(path, memoryview(b"x" * 5000), 4000, 5000)
    writer.close()
    assert path.read_bytes() == bytes(4000) + b"x" * 1000

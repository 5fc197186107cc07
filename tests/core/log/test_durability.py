"""Positions move when what they stand for has happened, and a write or sync that failed ends that for good."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from flintmq.core.errors import StoreExhaustedError, StoreFencedError
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.mapped_file_queue import MappedFile, MappedFileQueue
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log.watermarks import Watermarks
from flintmq.flush.transient_store_pool import AnonymousBufferPool
from flintmq.testing.clock import ManualClock
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.testing.store import message

FILE_BYTES = 4096
ROOT = Path("/store")


class Log:
    """A commit log on a disk in memory, and what it has told."""

    def __init__(self, *, synchronous: bool = True, pooled: bool = False, file_bytes: int = FILE_BYTES) -> None:
        disk = SimulatedDisk()
        self.progress = 0
        self.fences: list[str] = []
        self.checkpoint = StoreCheckpoint(disk, ROOT / "checkpoint")
        self.marks = Watermarks(synchronous=synchronous)
        self.clock = ManualClock(1_000_000)
        pool = AnonymousBufferPool(2, file_bytes) if pooled else None
        queue = MappedFileQueue(disk, ROOT / "commitlog", file_bytes, step_bytes=file_bytes, pool=pool)
        self.log = CommitLog(
            queue, self.marks, self.checkpoint, self.clock, on_progress=self._moved, on_fenced=self.fences.append
        )

    def _moved(self) -> None:
        self.progress += 1

    def append(self, count: int = 1) -> None:
        self.log.append([message(body=b"b" * 100) for _ in range(count)])


def test_a_flush_moves_the_flushed_position_and_then_the_checkpoint() -> None:
    """The checkpoint vouches for a store time only when all up to it is synced; a file is synced at a time."""
    one = Log()
    one.append(40)
    assert len(one.log.queue.files) > 1
    one.log.flush(0)
    assert one.marks.flushed == FILE_BYTES
    assert one.checkpoint.physic_msg_timestamp_ms == 0
    while one.marks.flushed < one.marks.wrote:
        one.log.flush(0)
    assert one.checkpoint.physic_msg_timestamp_ms == 1_000_000
    assert one.progress == len(one.log.queue.files)


def test_a_flush_waits_until_enough_pages_are_dirty() -> None:
    """RocketMQ's flushLeastPages: less than that stays in memory, unless the file is full."""
    one = Log()
    one.append(2)
    assert one.log.flush(4) == 0
    assert one.progress == 0
    assert one.log.flush(0) == one.marks.wrote


def test_every_append_and_every_flush_after_a_failed_sync_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have dropped the pages: a second, successful sync proves nothing."""
    one = Log()
    one.append()
    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "flush", _fails(errno.EIO))
        with pytest.raises(StoreFencedError):
            one.log.flush(0)
    assert len(one.fences) == 1
    assert "restart the broker" in one.fences[0]
    with pytest.raises(StoreFencedError):
        one.log.flush(0)
    with pytest.raises(StoreFencedError):
        one.append()
    assert one.marks.flushed == 0
    assert len(one.fences) == 1


def test_a_sync_that_fails_for_lack_of_a_file_descriptor_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was tried, so nothing has failed: the process had no descriptor left."""
    one = Log()
    one.append()
    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "flush", _fails(errno.EMFILE))
        with pytest.raises(StoreExhaustedError):
            one.log.flush(0)
    assert not one.fences
    assert one.log.flush(0) == one.marks.wrote


def test_the_commit_threshold_counts_crossed_page_boundaries_instead_of_bytes() -> None:
    """RocketMQ's ``isAbleToCommit`` asks how many page borders lie between, not how many bytes."""
    one = Log(synchronous=False, pooled=True, file_bytes=16 * 4096)
    body = b"b" * 3_000
    one.log.append([message(body=body)])
    assert one.marks.wrote < 4096
    assert one.log.commit(0) == one.marks.wrote
    began = one.marks.wrote
    one.log.append([message(body=body)])
    assert one.marks.wrote - began < 4096 < one.marks.wrote < 8192, "less than a page of bytes, and one border"
    assert one.log.commit(2) == began
    assert one.log.commit(1) == one.marks.wrote
    one.log.append([message(body=b"b" * 10)])
    assert one.log.commit(1) < one.marks.wrote


def test_an_append_moves_the_committed_position_if_the_log_has_no_transient_store_pool() -> None:
    """Two that move one position would move it back."""
    one = Log(synchronous=False)
    one.append()
    assert one.marks.committed == one.marks.wrote
    one.marks.committed -= 1
    assert one.log.commit(0) == one.marks.wrote - 1
    assert one.progress == 0


def _fails(number: int) -> object:
    def flush(_file: MappedFile, **_options: object) -> int:
        raise OSError(number, "planted")

    return flush

"""What syncs queues and checkpoint must neither end unseen nor vouch for what it could not sync."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.store.store_services import QueueFlusher
from flintmq.dispatchers.consume_queue.consume_queue_table import ConsumeQueueTable
from flintmq.testing.clock import ManualClock


@pytest.mark.parametrize("error", [OSError(5, "the disk is broken"), RuntimeError("a fault of ours")])
def test_a_failed_consume_queue_sync_is_logged_and_leaves_the_checkpoint_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """It is said once; the checkpoint stays where it was, whatever a later sync says; and a stop is not clean."""
    queues = ConsumeQueueTable(OS_DISK, tmp_path / "consumequeue", 200)
    queues.last_store_timestamp_ms = 5_000
    checkpoint = StoreCheckpoint(OS_DISK, tmp_path / "checkpoint")
    clock = ManualClock()
    told: list[int] = []
    flusher = QueueFlusher(
        queues,
        checkpoint,
        clock,
        interval_ms=1,
        least_pages=1,
        thorough_interval_ms=10,
        sync_failed=lambda: told.append(1),
    )

    def fails(_least_pages: int) -> None:
        raise error

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(queues, "flush", fails)
        flusher.run_once()
    clock.advance_ms(1_000)
    flusher.run_once()
    assert told == [1]
    assert flusher.failures == 1
    assert "queues" in caplog.text
    assert checkpoint.logics_msg_timestamp_ms == 0
    with pytest.raises(OSError, match=str(error.args[-1])):
        flusher.flush(0)
    checkpoint.close()

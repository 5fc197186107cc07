"""The file of a member that consumes everything is whole whatever happens, and nothing else is left in its folder."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.offset_store import FileOffsetStore
from flintmq.remoting.wire.bodies import ResetOffsetBody

QUEUE = MessageQueue("broker-a", 0, "T")


def test_two_members_with_one_client_id_can_save_offsets_concurrently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one must not take away the file that the other is about to put in place."""
    path = tmp_path / "member" / "offsets.json"
    both_have_written = threading.Barrier(2, timeout=10)
    sync = os.fsync

    def sync_together(descriptor: int) -> None:
        sync(descriptor)
        both_have_written.wait()

    async def save_both() -> None:
        await asyncio.gather(*(FileOffsetStore(path).save({QUEUE: number}) for number in (1, 2)))

    monkeypatch.setattr(os, "fsync", sync_together)
    asyncio.run(save_both())
    assert ResetOffsetBody.decode(path.read_bytes()).offset_table in ({QUEUE: 1}, {QUEUE: 2})
    assert [one.name for one in path.parent.iterdir()] == ["offsets.json"]


def test_a_failed_save_leaves_the_existing_offset_file_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, for example."""
    path = tmp_path / "offsets.json"
    asyncio.run(FileOffsetStore(path).save({QUEUE: 1}))

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(FileOffsetStore(path).save({QUEUE: 2}))
    assert ResetOffsetBody.decode(path.read_bytes()).offset_table == {QUEUE: 1}
    assert [one.name for one in path.parent.iterdir()] == ["offsets.json"]

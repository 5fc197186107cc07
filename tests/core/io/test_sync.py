"""A region may be synced by two threads at once: the flush thread's round and a stop, or an operator's command, may meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.io import os_region
from flintmq.core.io.os_disk import OS_DISK


def test_two_syncs_of_a_new_file_may_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that comes second must neither fail nor come back before the file's name is on disk."""
    region = OS_DISK.map_file(tmp_path / "new" / "0", 4096, create=True, allocate=4096)
    synced: list[Path] = []
    real = os_region.sync_folder

    def met(folder: Path) -> None:
        first = not synced
        synced.append(folder)
        if first:
            before = len(synced)
            region.sync()  # the other thread's, from its beginning to its end
            assert set(synced[before:]) == {tmp_path, tmp_path / "new"}
        real(folder)

    monkeypatch.setattr(os_region, "sync_folder", met)
    try:
        region.sync()
        assert set(synced) == {tmp_path, tmp_path / "new"}
        synced.clear()
        region.sync()
        assert synced == []
    finally:
        region.close()

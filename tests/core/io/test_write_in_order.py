"""Commits of the transient pool go through the system, because a copy through a map need not go in order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flintmq.core.io.os_disk import OS_DISK


def test_short_writes_go_on_where_they_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may write less than it was asked for; what is read through the map is whole all the same."""
    region = OS_DISK.map_file(tmp_path / "0", 8192, create=True, allocate=8192)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, data[:100], position))
    data = bytes(range(256)) * 5
    try:
        region.write_in_order(77, data)
        region.write_in_order(4000, memoryview(b""))
        assert region.view[77 : 77 + len(data)] == data
        assert not any(region.view[77 + len(data) :])
    finally:
        region.close()

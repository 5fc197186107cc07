"""A killed process leaves a prefix of what it was writing through a map: recovery takes anything else for damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.io import disk
from flintmq.core.io.disk import OS_DISK

SIZE = 256 * 1024


class Recorder:
    """Stands for the map and notes the slices that are assigned."""

    def __init__(self) -> None:
        self.slices: list[tuple[int, int]] = []
        self.data = bytearray(SIZE)

    def __setitem__(self, where: slice, data: memoryview) -> None:
        self.slices.append((where.start, where.stop))
        self.data[where] = data

    def release(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize(
    "length", [0, 1, disk._IN_ORDER_BYTES, disk._IN_ORDER_BYTES + 1, 5 * disk._IN_ORDER_BYTES + 77]
)
def test_large_writes_go_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """One assignment of a megabyte is copied several pages at a time; small pieces, one after the other, are not."""
    region = OS_DISK.map_file(tmp_path / "0", SIZE, create=True, allocate=SIZE)
    recorder = Recorder()
    data = bytes(range(256)) * (length // 256) + bytes(length % 256)
    try:
        region._view.release()
        monkeypatch.setattr(region, "_view", recorder)
        region.write(77, data)
    finally:
        region.close()
    assert bytes(recorder.data[77 : 77 + length]) == data
    end = 77
    for start, stop in recorder.slices:
        assert start == end
        assert stop - start <= disk._IN_ORDER_BYTES
        end = stop
    assert end == 77 + length

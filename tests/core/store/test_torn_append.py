"""A process that is killed within an append leaves whole records behind bytes it had not copied yet: that is no damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flintmq.core.testing.clock import ManualClock
from flintmq.core.testing.store import message, open_store

BODY = bytes(range(1, 251)) * 4
"""No zeros: an unwritten stretch cannot be taken for a body."""


def crashed(tmp_path: Path, *, appends: int) -> Path:
    """A copy of a store in use whose last six messages came with so many appends, the second of them not written."""
    clock = ManualClock(1_000_000)
    store = open_store(tmp_path / "live", clock=clock, commit_log_file_bytes=65536)
    try:
        for _ in range(3):
            store.put([message(body=BODY)])
            clock.advance_ms(10)
        results = []
        for _ in range(appends):
            results += store.put([message(body=BODY) for _ in range(6 // appends)]).results
            clock.advance_ms(10)
        store.dispatch()
        torn = results[1]
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "live", copy)
    finally:
        store.close()
    log = next(iter(sorted((copy / "commitlog").iterdir())))
    raw = bytearray(log.read_bytes())
    start = torn.commit_log_offset_bytes  # type: ignore[union-attr]
    raw[start : start + torn.message_size_bytes] = bytes(torn.message_size_bytes)  # type: ignore[union-attr]
    log.write_bytes(raw)
    return copy


@pytest.mark.parametrize(("appends", "kept", "holes"), [(1, 4, 0), (6, 8, 1)])
def test_a_torn_append_is_cut_and_damage_is_not(tmp_path: Path, appends: int, kept: int, holes: int) -> None:
    """Of one append nothing was promised, so its rest goes; what later appends hold was promised, so it stays."""
    store = open_store(crashed(tmp_path, appends=appends), clock=ManualClock(2_000_000), commit_log_file_bytes=65536)
    try:
        assert store.recovered is not None
        assert len(store.recovered.holes) == holes
        found = list(store.commit_log.requests(0, store.commit_log.max_offset_bytes))
        assert len([request for request in found if request.topic == message().topic]) == kept
        # Zeros need no copy; whole records that are cut do.
        assert (tmp_path / "copy" / "flint" / "quarantine").exists() == (not holes)
    finally:
        store.close()

"""A process that is killed within an append leaves whole records behind bytes it had not copied yet: that is no damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flintmq.core.log.mapped_file_queue import HEAD_BYTES, IN_ORDER_BYTES
from flintmq.programs.doctor.explain import explain_start
from flintmq.programs.doctor.files import StoreFiles
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store

BODY = bytes(range(1, 251)) * 4
"""No zeros: an unwritten stretch cannot be taken for a body."""


def crashed(tmp_path: Path, *, appends: int, torn_bytes: int | None = None) -> Path:
    """A copy of a store in use whose last six messages came with so many appends, the second of them not written.

    ``torn_bytes``: so many of the second's first bytes are missing; by default all.
    """
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
    missing = torn.message_size_bytes if torn_bytes is None else torn_bytes  # type: ignore[union-attr]
    raw[start : start + missing] = bytes(missing)
    log.write_bytes(raw)
    return copy


@pytest.mark.parametrize("torn_bytes", [None, 8])
@pytest.mark.parametrize(("appends", "kept", "holes"), [(1, 4, 0), (6, 8, 1)])
def test_recovery_removes_an_incomplete_append_only_if_it_is_the_last_append_in_the_log(
    tmp_path: Path, appends: int, kept: int, holes: int, torn_bytes: int | None
) -> None:
    """A torn append was never acknowledged, so its rest is cut. Later appends were acknowledged, so they stay."""
    copy = crashed(tmp_path, appends=appends, torn_bytes=torn_bytes)
    said = explain_start(StoreFiles(copy))
    store = open_store(copy, clock=ManualClock(2_000_000), commit_log_file_bytes=65536)
    try:
        assert said["log_ends_at"] == store.commit_log.max_offset_bytes
        assert len(said["damage"]) == holes
        assert store.recovered is not None
        assert len(store.recovered.holes) == holes
        found = list(store.commit_log.requests(0, store.commit_log.max_offset_bytes))
        assert len([request for request in found if request.topic == message().topic]) == kept
        # Zeros need no copy; whole records that are cut do.
        assert (copy / "flint" / "quarantine").exists() == (torn_bytes is not None or not holes)
    finally:
        store.close()


class Recorder:
    """Stands for a map and notes where it was written."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, int, int]] = []

    def write(self, position: int, data: bytes) -> None:
        self.writes.append(("copied", position, position + len(data)))

    def write_in_order(self, position: int, data: bytes) -> None:
        self.writes.append(("in order", position, position + len(data)))


def test_an_append_of_two_records_writes_the_header_of_the_first_record_after_all_other_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only so does a kill in the middle of a copy leave a proof that it was cut short.

    One record needs none; many bytes are written in order, so that nothing lies behind what was cut short.
    """
    store = open_store(tmp_path, commit_log_file_bytes=65536)
    try:
        first = store.put([message(body=BODY)]).results[0]
        file = store.commit_log.queue.files[0]
        recorder = Recorder()
        end = file.wrote
        size = first.message_size_bytes  # type: ignore[union-attr]
        with monkeypatch.context() as patched:
            patched.setattr(file, "region", recorder)
            store.commit_log.append([message(body=BODY)])
            store.commit_log.append([message(body=BODY), message(body=BODY)])
            store.commit_log.append([[message(body=BODY), message(body=BODY)]])
            many = -(-IN_ORDER_BYTES // size)
            store.commit_log.append([message(body=BODY)] * many)
        assert recorder.writes == [
            ("copied", end, end + size),
            ("copied", end + size + HEAD_BYTES, end + 3 * size),
            ("copied", end + size, end + size + HEAD_BYTES),
            ("copied", end + 3 * size + HEAD_BYTES, end + 5 * size),
            ("copied", end + 3 * size, end + 3 * size + HEAD_BYTES),
            ("in order", end + 5 * size, end + (5 + many) * size),
        ]
    finally:
        store.close()

"""A plan carried out leaves a store for which the next plan has nothing to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.store.message_store import open_store
from flintmq.core.store.opened_store import plan_of, recover
from flintmq.testing.store import message, opened, store_spec

FILE_BYTES = 4096


@pytest.fixture
def torn(tmp_path: Path) -> tuple[Path, int]:
    """A store that was stopped, with other bytes behind its log's end."""
    with opened(tmp_path / "store", commit_log_file_bytes=FILE_BYTES) as store:
        for _ in range(5):
            store.put([message(body=b"x" * 50)])
        store.dispatch()
        end = store.watermarks.wrote
    path = tmp_path / "store" / "commitlog" / f"{0:020d}"
    raw = bytearray(path.read_bytes())
    raw[end : end + 4] = b"torn"
    path.write_bytes(raw)
    return tmp_path / "store", end


def test_what_is_cut_is_kept_and_the_store_is_marked_first(
    torn: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash in the middle of a recovery must not leave a store that looks clean."""
    root, end = torn
    spec = store_spec(root, commit_log_file_bytes=FILE_BYTES)
    kept: list[bool] = []
    write_file = spec.disk.write_file

    def noted(path: Path, data: bytes) -> None:
        if path.parent.name == "quarantine":
            kept.append((root / "abort").exists())
        write_file(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(spec.disk, "write_file", noted)
        store = recover(spec)
    try:
        assert kept == [True]
        assert store.recovered is not None
        assert store.recovered.cut is not None
        assert store.recovered.cut.quarantine is not None
        assert store.recovered.cut.quarantine.read_bytes() == b"%020d 4\ntorn\n" % end
        assert store.epochs.epochs.current.start_offset_bytes == end
    finally:
        store.close()


def test_a_recovery_happens_once(torn: tuple[Path, int]) -> None:
    """The bytes that were cut are zeros now, and everything else is as the plan wanted it."""
    root, end = torn
    spec = store_spec(root, commit_log_file_bytes=FILE_BYTES)
    open_store(spec, lambda _opened: ()).close()
    plan = plan_of(spec)
    assert plan.walked is not None
    assert plan.walked.end_offset_bytes == plan.dispatched_from_offset_bytes == end
    assert not plan.changes_log
    assert not plan.begins_epoch

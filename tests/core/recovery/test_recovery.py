"""A plan carried out leaves a store for which the next plan has nothing to do."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from flintmq.core.errors import StoreError
from flintmq.core.recovery.recovery import Recovery
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


def test_recovery_creates_the_abort_file_before_it_copies_damaged_log_bytes_to_quarantine(
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


def test_the_recovery_plan_of_a_recovered_store_changes_nothing(torn: tuple[Path, int]) -> None:
    """The bytes that were cut are zeros now, and everything else is as the plan wanted it."""
    root, end = torn
    spec = store_spec(root, commit_log_file_bytes=FILE_BYTES)
    open_store(spec, lambda _opened: ()).close()
    plan = plan_of(spec)
    assert plan.walked is not None
    assert plan.walked.end_offset_bytes == plan.dispatched_from_offset_bytes == end
    assert not plan.changes_log
    assert not plan.begins_epoch


@pytest.mark.parametrize("is_cut_short", [False, True])
def test_recovery_removes_the_keys_of_damaged_messages_from_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cut_short: bool
) -> None:
    """A start that ends behind the repair leaves a log without holes: the next one could not know of them."""
    sizes = {"commit_log_file_bytes": FILE_BYTES, "max_index_num": 8}
    with opened(tmp_path, **sizes) as store:
        places = [store.put([message(keys=f"k{n}")]).records[0].commit_log_offset_bytes for n in range(30)]
        store.dispatch()
        assert store.index.query("T", "k4", 9, 0, 2**62)[0] == [places[4]]
    path = tmp_path / "commitlog" / f"{0:020d}"
    raw = bytearray(path.read_bytes())
    raw[places[4] : places[6]] = bytes(places[6] - places[4])
    path.write_bytes(raw)
    if is_cut_short:
        with monkeypatch.context() as patch:
            patch.setattr(Recovery, "_end_log", raising := Mock(side_effect=OSError("killed")))
            with pytest.raises(StoreError):
                recover(store_spec(tmp_path, **sizes))
            raising.assert_called_once()
    with opened(tmp_path, **sizes) as store:
        found = [store.index.query("T", f"k{n}", 9, 0, 2**62)[0] for n in range(30)]
    assert found == [[] if n in (4, 5) else [place] for n, place in enumerate(places)]

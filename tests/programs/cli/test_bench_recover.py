"""``bench recover`` measures copies: the store it is given stays as it is, and every figure is there."""

from __future__ import annotations

from pathlib import Path

from flintmq.programs.bench.recover import copy_sparse
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, opened, snapshot

from .conftest import RunCommand


def test_bench_recover_does_not_change_the_store(cli: RunCommand, tmp_path: Path) -> None:
    """Four starts of a small store, and look-ups in it."""
    with opened(tmp_path / "store", clock=ManualClock(1_700_000_000_000)) as store:
        for number in range(40):
            store.put([message("Orders", number % 2, b"x" * 50, keys=f"k{number}")])
        store.dispatch()
    before = snapshot(tmp_path / "store")
    (tmp_path / "work").mkdir()
    found = cli("bench", "recover", "--store", tmp_path / "store", "--work", tmp_path / "work").json
    assert (found["bench"], found["records"]) == ("recover", 40)
    for name in ("after_crash_s", "after_kill_s", "after_stop_s", "rebuild_s", "index_lookup_us", "offset_by_time_us"):
        assert found[name] > 0
    assert snapshot(tmp_path / "store") == before
    assert list((tmp_path / "work").iterdir()) == []


def test_bench_recover_of_a_missing_store_prints_a_one_line_error(cli: RunCommand, tmp_path: Path) -> None:
    """And the copy is gone."""
    outcome = cli("bench", "recover", "--store", tmp_path / "none")
    assert outcome.code == 3
    assert outcome.err.count("\n") == 1


def test_copying_a_store_preserves_the_holes_in_its_sparse_files(tmp_path: Path) -> None:
    """Files are made at full size; a gigabyte of zeros need not be written."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    size = 16 * 1024 * 1024
    with (tmp_path / "a" / "b" / "file").open("wb") as file:
        file.write(b"start")
        file.seek(size - 3)
        file.write(b"end")
    (tmp_path / "a" / "empty").touch()
    copy_sparse(tmp_path / "a", tmp_path / "c")
    assert snapshot(tmp_path / "c") == snapshot(tmp_path / "a")
    assert (tmp_path / "c" / "b" / "file").stat().st_blocks * 512 < size // 2

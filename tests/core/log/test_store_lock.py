"""The second broker on a store must end with a message that says what to do, before it has touched a byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.errors import StoreError, StoreLockedError
from flintmq.core.log.store_lock import StoreLock, is_locked


def test_the_second_one_is_told_what_to_do(tmp_path: Path) -> None:
    """It names the folder and the setting."""
    assert not is_locked(tmp_path)
    lock = StoreLock(tmp_path)
    assert is_locked(tmp_path)
    with pytest.raises(StoreLockedError, match=r"another broker has this store open.*store\.path"):
        StoreLock(tmp_path)
    lock.release()
    lock.release()
    assert not is_locked(tmp_path)
    StoreLock(tmp_path).release()


def test_two_stores_share_no_folder_of_the_log(tmp_path: Path) -> None:
    """Both would write into one file. Nothing is made in the folder: RocketMQ opens no log with a foreign file in it."""
    one, other, shared = (tmp_path / name for name in ("one", "other", "shared"))
    for folder in one, other, shared:
        folder.mkdir()
    lock = StoreLock(one, log_folders=[shared])
    for _ in range(2):
        with pytest.raises(StoreLockedError, match=rf"{shared}: another broker .*store\.commit_log_paths"):
            StoreLock(other, log_folders=[shared])
        assert not is_locked(other), "it may be opened with another folder"
    lock.release()
    StoreLock(other, log_folders=[shared]).release()
    assert not [*shared.iterdir()]
    with pytest.raises(StoreError, match="missing: cannot be locked"):
        StoreLock(one, log_folders=[tmp_path / "missing"])
    assert not is_locked(one)


def test_a_folder_without_a_lock_file_cannot_be_locked(tmp_path: Path) -> None:
    """A store that is missing is another mistake than one that is in use."""
    with pytest.raises(StoreError, match="cannot be opened for writing") as found:
        StoreLock(tmp_path / "missing")
    assert not isinstance(found.value, StoreLockedError)

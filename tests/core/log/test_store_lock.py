"""The second broker on a store must end with a message that says what to do, before it has touched a byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.errors import StoreError, StoreLockedError
from flintmq.core.log.store_lock import StoreLock, is_locked


def test_the_error_about_a_locked_store_names_the_folder_and_the_setting(tmp_path: Path) -> None:
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


def test_a_log_folder_used_by_another_store_is_refused(tmp_path: Path) -> None:
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


def test_a_missing_folder_is_not_reported_as_locked(tmp_path: Path) -> None:
    """A store that is missing is another mistake than one that is in use."""
    with pytest.raises(StoreError, match="cannot be opened for writing") as found:
        StoreLock(tmp_path / "missing")
    assert not isinstance(found.value, StoreLockedError)

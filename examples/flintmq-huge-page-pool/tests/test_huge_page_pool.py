"""The pool of huge pages implements the interface ``TransientStorePool``, and a broker appends to the pool's buffers."""

from __future__ import annotations

from pathlib import Path

import pytest
from flintmq_huge_page_pool.pool import HugePagePool

import flintmq
from flintmq.testing.pool_kit import check_transient_store_pool


def test_the_huge_page_pool_passes_the_pool_kit() -> None:
    """A buffer that the pool lends a second time contains none of the bytes that its first user wrote."""
    check_transient_store_pool(HugePagePool)


def test_a_buffer_of_another_pool_is_refused() -> None:
    """The pool refuses a buffer of another pool, because such a buffer could be lent to two files at once."""
    pool = HugePagePool(1, 4096)
    buffer = HugePagePool(1, 4096).borrow()
    assert buffer is not None
    with pytest.raises(ValueError, match="not lent"):
        pool.give_back(buffer)


def test_a_broker_appends_messages_to_buffers_of_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lent buffer contains the message, and after the broker has stopped, the log's file contains it, too."""
    lent: list[memoryview] = []
    borrow = HugePagePool.borrow

    def noted(pool: HugePagePool) -> memoryview | None:
        buffer = borrow(pool)
        if buffer is not None:
            lent.append(buffer)
        return buffer

    monkeypatch.setattr(HugePagePool, "borrow", noted)
    settings = [f"store.path={tmp_path / 'store'}", "store.commit_log_file_bytes=1MiB", "listen.port=0"]
    more = ["listen.vip=false", "flush.strategy=commit_real_time", "flush.pool=huge_pages"]
    # The settings do not list the plugin, because the broker finds an installed plugin by its entry point.
    with flintmq.Broker(flintmq.load_config(None, [*settings, *more], {})) as broker:
        broker.put([flintmq.Message("T", b"through the pool")])
        assert any(b"through the pool" in bytes(buffer) for buffer in lent)
    assert b"through the pool" in (tmp_path / "store" / "commitlog" / f"{0:020}").read_bytes()

"""A disk that hesitates is seen in the log, in RocketMQ's words, before anybody asks why sends are slow."""

from __future__ import annotations

import logging
from pathlib import Path

import attrs
import pytest

from flintmq.core.log.slow import SlowLog
from flintmq.flush.transient_store_pool import AnonymousBufferPool
from flintmq.plugins.replication.slave_link import RecordChecker
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import BY_HAND, message, opened
from flintmq.tests.support.slow_disk import SlowDisk

FILE_BYTES = 4096


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk(ManualClock())


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(("takes_ms", "told"), [(500, False), (501, True)])
def test_a_slow_append_is_logged_with_its_time_and_size(
    tmp_path: Path, disk: SlowDisk, caplog: pytest.LogCaptureFixture, takes_ms: int, told: bool
) -> None:
    """One line for a batch, however many messages it has: how long, how many, where."""
    with opened(tmp_path, strategy=BY_HAND, disk=disk, clock=disk.clock) as store:
        store.put([message()])
        began = store.watermarks.wrote
        disk.slow, disk.takes_ms = "write", takes_ms
        put = store.put([message(), message()])
        assert put.took_s == pytest.approx(takes_ms / 1000)
        size = store.watermarks.wrote - began
        file = store.commit_log.queue.files[-1].path
        wanted = f"[NOTIFYME]putMessage in lock cost time(ms)=501, 2 messages, {size} bytes at {began}, file {file}"
        assert lines(caplog) == ([wanted] if told else [])
        known = store.slow_operations
        assert known.keys() == ({"append"} if told else set())
        assert not told or known["append"].took_ms == 501


@pytest.mark.parametrize(("takes_ms", "told"), [(500, False), (812, True)])
def test_a_slow_flush_is_logged_with_its_time_and_file(
    tmp_path: Path, disk: SlowDisk, caplog: pytest.LogCaptureFixture, takes_ms: int, told: bool
) -> None:
    """Whatever strategy asks for it: the log is flushed in one place."""
    with opened(tmp_path, strategy=BY_HAND, disk=disk, clock=disk.clock) as store:
        store.put([message()])
        store.commit_log.flush(0)
        began = store.watermarks.flushed
        store.put([message()])
        disk.slow, disk.takes_ms = "sync", takes_ms
        end = store.commit_log.flush(0)
        file = store.commit_log.queue.files[-1].path
        wanted = f"Flush data to disk costs 812 ms: {end - began} bytes at {began}, file {file}"
        assert lines(caplog) == ([wanted] if told else [])
        assert {kind: one.took_ms for kind, one in store.slow_operations.items()} == ({"flush": 812} if told else {})


@pytest.mark.parametrize(("takes_ms", "told"), [(500, False), (812, True)])
def test_a_slow_commit_is_logged_with_its_time_and_file(
    tmp_path: Path, disk: SlowDisk, caplog: pytest.LogCaptureFixture, takes_ms: int, told: bool
) -> None:
    """Out of the pool's buffer into the file."""
    strategy = attrs.evolve(BY_HAND, uses_pool=True)
    pool = AnonymousBufferPool(2, FILE_BYTES)
    with opened(tmp_path, strategy=strategy, disk=disk, clock=disk.clock, pool=pool) as store:
        store.put([message()])
        disk.slow, disk.takes_ms = "write", takes_ms
        end = store.commit_log.commit(0)
        file = store.commit_log.queue.files[-1].path
        assert lines(caplog) == ([f"Commit data to file costs 812 ms: {end} bytes at 0, file {file}"] if told else [])
        assert {kind: one.took_ms for kind, one in store.slow_operations.items()} == ({"commit": 812} if told else {})


def test_a_slow_append_of_a_slave_is_logged(tmp_path: Path, disk: SlowDisk, caplog: pytest.LogCaptureFixture) -> None:
    """Its disk is as much a disk as its master's."""
    with opened(tmp_path / "master", strategy=BY_HAND) as master:
        master.put([message(), message(), message()])
        raw = master.commit_log.slice(0, master.watermarks.wrote)
        assert raw is not None
        chunks = RecordChecker(0, FILE_BYTES).receive(0, bytes(raw))
        raw.release()
    with opened(tmp_path / "slave", strategy=BY_HAND, disk=disk, clock=disk.clock) as slave:
        disk.slow, disk.takes_ms = "write", 700
        slave.writer.append_raw(chunks)
        (line,) = lines(caplog)
        assert line.startswith("[NOTIFYME]putMessage in lock cost time(ms)=700, 3 messages, ")
        assert f"{slave.watermarks.wrote} bytes at 0" in line


def test_slow_operations_of_the_same_kind_log_at_most_a_line_per_second(caplog: pytest.LogCaptureFixture) -> None:
    """One line a second of each kind; what was left out is counted."""
    clock = ManualClock()
    told = SlowLog(clock)
    for _ in range(5):
        told.warn(0.6, "slow")
        clock.advance_ms(400)
    assert lines(caplog) == ["slow", "slow; 2 more since the last line"]

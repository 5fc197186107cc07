"""Who waits long for an acknowledgement is told by the broker's log and figures, not by the client's alone."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest
from bare_wire import Wire

import flintmq
from flintmq.config import load_config
from flintmq.core.io.clock import SystemClock
from flintmq.remoting.wire.codes import RequestCode
from flintmq.tests.support.faulty_disk import FaultyDisk, Operation


class ShiftedClock(SystemClock):
    """Real time, and what a disk is said to have taken."""

    shift_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.shift_s


class SlowSyncs(FaultyDisk):
    """Every sync of the log takes 0.7 s more on the clock, and no time at all."""

    def __init__(self, clock: ShiftedClock) -> None:
        super().__init__()
        self._clock = clock

    def check(self, operation: Operation, path: Path) -> None:
        super().check(operation, path)
        if operation == "sync" and path.parent.name == "commitlog":
            self._clock.shift_s += 0.7


def test_sends_delayed_by_a_slow_disk_sync_are_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The line of the sync and the line of the sends, and the longest of request 28, which counts the wait as RocketMQ does."""
    clock = ShiftedClock()
    settings = [
        f"store.path={tmp_path}",
        "store.commit_log_file_bytes=64KiB",
        "listen.port=0",
        "listen.vip=false",
        "flush.strategy=group_commit",
    ]
    with flintmq.Broker(load_config(None, settings, {}), clock=clock, disk=SlowSyncs(clock)) as broker:
        wire = Wire(broker.address)
        try:
            assert wire.send("T", b"x").code == 0
            answer = wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        finally:
            wire.close()
    figures = msgspec.json.decode(answer.body)["table"]
    assert int(figures["putMessageEntireTimeMax"]) >= 700
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any(line.startswith("Flush data to disk costs 7") for line in told), told
    (waited,) = [line for line in told if line.startswith("putMessage not in lock elapsed time(ms)=7")]
    assert "1 sends waited for their durability, the first at 0, and are answered FLUSHED" in waited

"""Sends that a broker refuses through its own fault are an alarm and fail ``flintmq status``, whatever way they came in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.core.errors import FlintError, RefusedError, StoreError
from flintmq.core.io.disk import MappedRegion
from flintmq.core.io.os_disk import OsDisk
from flintmq.core.kernel.ports.alarm import Alarm
from flintmq.programs.cli.main import run_command_line
from flintmq.testing.clock import VirtualClock
from flintmq.tests.support.faulty_disk import FaultyDisk

SMALL = (
    "store.commit_log_file_bytes=65536",
    "store.preallocate=false",
    "index.max_hash_slot_num=1000",
    "index.max_index_num=4000",
    "listen.port=0",
    "nameserver.port=0",
    "listen.vip=false",
    "offsets.flush_interval_ms=1s",
)
LARGE = flintmq.Message("T", bytes(20_000))


class ReadOnly(OsDisk):
    """A file system that turned read-only, for new files of the log."""

    refuses = False

    def map_file(self, path: Path, size: int, **given: Any) -> MappedRegion:
        if self.refuses and given.get("create") and "commitlog" in path.parts and not path.exists():
            raise StoreError(f"{path}: cannot be opened for writing: Read-only file system")
        return super().map_file(path, size, **given)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def start(tmp_path: Path, clock: VirtualClock) -> Iterator[Callable[..., tuple[flintmq.Broker, str]]]:
    """Starts a broker on a disk, and its name server; returns the broker and the name server's address."""
    with contextlib.ExitStack() as stack:

        def begin(disk: Any, *settings: str) -> tuple[flintmq.Broker, str]:
            loaded = flintmq.load_config(None, [*SMALL, f"store.path={tmp_path / 'store'}", *settings], {})
            names = stack.enter_context(flintmq.NameServer(loaded))
            own = loaded.with_overrides([f"namesrv.addresses={names.address}"])
            return stack.enter_context(flintmq.Broker(own, disk=disk, clock=clock)), names.address

        yield begin


def alarms(broker: flintmq.Broker) -> dict[str, Alarm]:
    async def ask() -> list[Alarm]:
        return broker.state.alarms.current()

    return {alarm.id: alarm for alarm in broker.call(ask)}


def put_until_refused(broker: flintmq.Broker) -> RefusedError:
    for _ in range(20):
        try:
            broker.put([LARGE])
        except RefusedError as refused:
            return refused
    raise AssertionError("every message was stored")


def test_an_alarm_is_raised_if_sends_are_refused_because_the_disk_is_read_only(
    start: Any, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """statvfs sees nothing of a file system that is read-only; status ends with 1 until a send is taken again."""
    disk = ReadOnly()
    broker, names = start(disk)
    broker.put([LARGE])
    assert run_command_line(["status", "-n", names]) == 0
    disk.refuses = True
    reasons = {put_until_refused(broker).reason, *(put_until_refused(broker).reason for _ in range(20))}
    assert reasons == {"store.file"}
    found = alarms(broker)["sends.refused"]
    assert (found.level, found.subject, found.value) == ("critical", "store.file", 21)
    assert "Read-only file system" in found.message
    assert caplog.text.count("sends are refused: ") == 1
    assert run_command_line(["status", "-n", names]) == 1
    disk.refuses = False
    broker.put([LARGE])
    clock.advance("1s")
    assert alarms(broker) == {}
    assert run_command_line(["status", "-n", names]) == 0


def test_sends_refused_because_of_an_exhausted_disk_quota_raise_an_alarm(start: Any) -> None:
    """The disk has room, and the user has none."""
    disk = FaultyDisk()
    broker, _ = start(disk)
    broker.put([LARGE])
    disk.fail("map_file", within="commitlog")
    assert put_until_refused(broker).reason == "store.disk_full"
    assert list(alarms(broker)) == ["sends.refused"]
    disk.heal()
    broker.put([LARGE])


def test_sends_refused_by_a_synchronous_master_for_lack_of_a_slave_raise_an_alarm(start: Any) -> None:
    """What is stored and not acknowledged is refused, as far as a sender can tell."""
    broker, _ = start(OsDisk(), "broker.role=sync_master", "ha.compat=rocketmq", "listen.ha_port=0")
    with pytest.raises(FlintError):
        broker.put([LARGE])
    assert (found := alarms(broker)["sends.refused"]).subject == "ha.no_slave"
    assert "haSlaveFallbehindMax" in found.key


def test_consumer_offsets_that_cannot_be_written_raise_an_alarm(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Groups would go back after a crash: critical, one line, and not a trace each second."""
    disk = FaultyDisk()
    broker, names = start(disk)
    disk.fail("write_file", within="consumerOffset.json.tmp")

    async def commit(offset: int) -> None:
        broker.state.offsets.commit("c", "g", "T", 0, offset)
        broker.timers.run_now("consumer offsets")
        keeper: Any = next(one for one in broker.state.services() if type(one).__name__ == "TableKeeper")
        await keeper._writing

    for offset in range(3):
        broker.call(lambda offset=offset: commit(offset))
    found = alarms(broker)["table.not_written"]
    assert (found.level, found.subject) == ("critical", "consumer offsets")
    assert "consumerOffset.json" in found.message
    assert caplog.text.count("consumer offsets cannot be written") == 1
    assert "Traceback" not in caplog.text
    assert run_command_line(["status", "-n", names]) == 1
    disk.heal()
    broker.call(lambda: commit(9))
    assert alarms(broker) == {}


def test_periodic_work_that_keeps_failing_raises_an_alarm_and_is_logged_only_a_few_times(
    start: Any, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Delay offsets, filters, timers: what they raise at each interval was a trace in the log each second."""
    broker, _ = start(OsDisk())
    error: StoreError | None = StoreError("delayOffset.json: no room")

    def work() -> None:
        if error is not None:
            raise error

    async def begin() -> None:
        broker.timers.every(1.0, work, "of the test")

    broker.call(begin)
    clock.advance("20s")
    found = alarms(broker)["timer.failed"]
    assert (found.level, found.subject) == ("critical", "of the test")
    assert 10 <= found.value <= 20
    assert "no room" in found.message
    assert caplog.text.count("the timer 'of the test' failed") == 2, "the first and the tenth"
    error = None
    clock.advance("2s")
    assert alarms(broker) == {}

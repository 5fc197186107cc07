"""A copy that is not made is missed on the day it is needed: both ends say so before."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq import Message
from flintmq.core.kernel.ports.alarm import Alarm
from flintmq.testing.clock import VirtualClock
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.testing.embedded import EmbeddedBroker

Alarms = Callable[[EmbeddedBroker], dict[str, Alarm]]


def until(condition: Callable[[], bool]) -> None:
    """Wait, in real time, as replication goes on in it."""
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def figure(broker: EmbeddedBroker, name: str) -> str:
    async def ask() -> str:
        return broker.broker.api.figures.texts().get(name, "")

    return broker.broker.call(ask)


@pytest.mark.parametrize(("role", "level"), [("async_master", "warning"), ("sync_master", "critical")])
def test_a_disconnected_slave_raises_an_alarm_on_master_and_slave_until_the_slave_reconnects(
    alarms: Alarms, tmp_path: Path, role: str, level: str
) -> None:
    """For half a minute nobody is told: a slave may be restarted."""
    clock = VirtualClock()
    settings = [f"broker.role={role}"] if role == "sync_master" else []
    with EmbeddedCluster(tmp_path, layout={"broker-a": 1}, settings=settings, clock=clock, with_faults=True) as cluster:
        master, (slave,) = cluster["broker-a"], cluster.slaves("broker-a")
        until(lambda: figure(master, "haSlaves") == "1" and figure(slave, "haFollows") == "true")
        assert alarms(master) == alarms(slave) == {}
        with slave.faults.cut_master():
            until(lambda: figure(master, "haSlaves") == "0" and figure(slave, "haFollows") == "false")
            clock.advance("20s")
            assert alarms(master) == alarms(slave) == {}
            clock.advance("15s")
            gone, lost = alarms(master)["slave.gone"], alarms(slave)["slave.not_following"]
            assert (gone.level, gone.subject, gone.unit, gone.limit) == (level, slave.address, "ms", 30_000)
            assert gone.value >= 30_000
            assert (lost.level, lost.subject, lost.limit) == ("warning", "", 30_000)
            assert "this slave has not followed its master for" in lost.message
        until(lambda: figure(master, "haSlaves") == "1" and figure(slave, "haFollows") == "true")
        assert alarms(master) == alarms(slave) == {}


def test_a_sync_master_without_any_slave_has_an_alarm(alarms: Alarms, tmp_path: Path) -> None:
    """Its clients get SLAVE_NOT_AVAILABLE, and consumers see nothing."""
    clock = VirtualClock()
    settings = ["broker.role=sync_master", "ha.compat=rocketmq", "listen.ha_port=0"]
    with EmbeddedBroker(tmp_path, settings=settings, clock=clock) as broker:
        assert alarms(broker) == {}
        clock.advance("31s")
        found = alarms(broker)["slave.gone"]
        assert (found.level, found.subject) == ("critical", "")
        assert found.message.startswith("no slave has followed for 31 s")


def test_a_master_has_an_alarm_about_a_slave_that_lags_far_behind_until_the_slave_catches_up(
    alarms: Alarms, tmp_path: Path
) -> None:
    """It is connected, and its report is old: nothing comes through, and the connection has not ended yet."""
    settings = ["ha.slave_fallbehind_max_bytes=10000"]
    with EmbeddedCluster(tmp_path, layout={"broker-a": 1}, settings=settings, with_faults=True) as cluster:
        master, (slave,) = cluster["broker-a"], cluster.slaves("broker-a")
        until(lambda: figure(master, "haSlaves") == "1")
        with slave.faults.cut_master(silently=True):
            master.put([Message("T", b"x" * 20_000)])
            until(lambda: "slave.behind" in alarms(master))
            found = alarms(master)["slave.behind"]
            assert (found.level, found.subject, found.unit, found.limit) == ("warning", slave.address, "bytes", 10_000)
            assert found.value > 20_000
        until(lambda: alarms(master) == {})


def test_a_slave_has_a_critical_alarm_if_its_log_differs_from_the_log_of_its_master(
    alarms: Alarms, tmp_path: Path
) -> None:
    """It does not mend by itself: somebody has to decide which log counts."""
    with EmbeddedCluster(tmp_path, layout={"broker-a": 1}, with_faults=True) as cluster:
        master, (slave,) = cluster["broker-a"], cluster.slaves("broker-a")
        master.put([Message("T", b"x")])
        until(lambda: figure(master, "haHeldOffset") not in ("", "0") and figure(master, "haBehindBytes") == "0")
        assert alarms(slave) == {}
        with slave.faults.cut_master():

            async def go_on_alone() -> None:
                state = slave.broker.state
                chunk = state.store.commit_log.slice(0, state.store.watermarks.wrote)
                assert chunk is not None
                state.store.commit_log.append_raw(state.store.watermarks.wrote, bytes(chunk), state.clock.now_ms())
                chunk.release()

            slave.broker.call(go_on_alone)
        until(lambda: "slave.not_following" in alarms(slave))
        found = alarms(slave)["slave.not_following"]
        assert found.level == "critical"
        assert "Choose the log to keep" in found.message

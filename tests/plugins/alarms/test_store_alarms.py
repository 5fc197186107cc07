"""A store that takes nothing is the gravest alarm: it comes when the disk fails, and goes when the broker is mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flintmq import Message
from flintmq.core.errors import FlintError
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.core.kernel.ports.alarm import Alarm
from flintmq.core.testing.clock import VirtualClock
from flintmq.plugins.testing.embedded import EmbeddedBroker

Alarms = Callable[[EmbeddedBroker], dict[str, Alarm]]


def test_a_sync_that_fails_is_an_alarm_until_the_broker_is_restarted(alarms: Alarms) -> None:
    """The disk says EIO once: nothing is acknowledged from then on, and whoever looks must see why."""
    with EmbeddedBroker(settings=["flush.strategy=group_commit"], with_faults=True) as broker:
        broker.put([Message("T", b"well")])
        assert alarms(broker) == {}
        broker.faults.fail_sync()
        with pytest.raises(FlintError):
            broker.put([Message("T", b"lost")])
        (found,) = alarms(broker).values()
        assert (found.id, found.level, found.subject) == ("store.fenced", "critical", "")
        assert "restart" in found.message
        broker.stop()
        broker.start()
        assert alarms(broker) == {}


class Picky:
    """An essential dispatcher that raises while it is told to."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def dispatch(self, batch: Any) -> None:
        if self.error is not None:
            raise self.error

    @hookimpl
    def flintmq_dispatchers(self, register: Any) -> None:
        register("picky", lambda context: self, essential=True)


def test_dispatch_that_stands_still_is_an_alarm_until_it_goes_on(alarms: Alarms) -> None:
    """An essential dispatcher raises: what was stored is not visible, and the value says how much of the log waits."""
    picky = Picky()
    with EmbeddedBroker(plugins=[picky], settings=["dispatchers=consume_queue,index,picky"]) as broker:
        picky.error = ValueError("not\nnow")
        broker.put([Message("T", b"x")])
        (found,) = alarms(broker).values()
        assert (found.id, found.level, found.unit, found.key) == (
            "dispatch.stopped",
            "critical",
            "bytes",
            "dispatchers",
        )
        assert found.value > 0
        assert "not\\nnow" in found.message
        picky.error = None

        async def again() -> None:
            broker.broker.state.dispatch()

        broker.broker.call(again)
        assert alarms(broker) == {}


def test_a_full_disk_is_an_alarm_until_there_is_room(alarms: Alarms) -> None:
    """Others fill the disk, and free it again; the next look of retention tells."""
    clock = VirtualClock()
    with EmbeddedBroker(clock=clock, with_faults=True) as broker:
        assert alarms(broker) == {}
        with broker.faults.fill_disk():
            clock.advance("1m")
            found = alarms(broker)["disk.full"]
            assert (found.level, found.unit, found.value, found.key) == (
                "critical",
                "bytes",
                0,
                "store.disk_min_free_bytes",
            )
            assert "sends are refused" in found.message
        clock.advance("1m")
        assert alarms(broker) == {}

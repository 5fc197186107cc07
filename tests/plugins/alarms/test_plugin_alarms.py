"""A plugin that is switched off does its work no more, which only the log tells: it is an alarm until the restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flintmq.core.kernel.hookspecs import ApiContext, hookimpl
from flintmq.core.kernel.ports.alarm import Alarm
from flintmq.testing.clock import VirtualClock
from flintmq.testing.embedded import EmbeddedBroker

Alarms = Callable[[EmbeddedBroker], dict[str, Alarm]]


class Careless:
    """A service with a timer that fails, and that says so, for as long as it is told to."""

    plugin_name = "careless"

    def __init__(self) -> None:
        self.fails = True
        self.trouble = ""
        self.calls = 0

    @hookimpl
    def flintmq_services(self, register: Any) -> None:
        register("careless", self.make)

    def make(self, context: ApiContext) -> Any:
        self.api = context.api
        return self

    def start(self) -> None:
        self.api.work.every(1.0, self.work, "careless work")

    def stop(self) -> None:
        """Do nothing."""

    def health(self) -> str:
        return self.trouble

    def work(self) -> None:
        self.calls += 1
        if self.fails:
            raise ValueError("broken\nin two")


def test_an_alarm_reports_that_the_broker_switched_off_a_plugin_after_three_failures(alarms: Alarms) -> None:
    """Three failures are too many."""
    plugin, clock = Careless(), VirtualClock()
    with EmbeddedBroker(plugins=[plugin], settings=["plugin_failures_max=3"], clock=clock) as broker:
        clock.advance("2s")
        assert alarms(broker) == {}
        clock.advance("5s")
        found = alarms(broker)["plugin.off"]
        assert (found.level, found.subject, found.value, found.unit, found.limit) == (
            "warning",
            "careless",
            3,
            "errors",
            3,
        )
        assert "careless work" in found.message
        assert found.key == "plugin_failures_max"
        calls, plugin.fails = plugin.calls, False
        clock.advance("2m")
        assert plugin.calls == calls
        assert [*alarms(broker)] == ["plugin.off"]


def test_a_problem_reported_by_a_plugin_service_raises_an_alarm(alarms: Alarms) -> None:
    """Services that know no alarms have had one line for it all along."""
    plugin = Careless()
    with EmbeddedBroker(plugins=[plugin], clock=VirtualClock()) as broker:
        assert alarms(broker) == {}
        plugin.trouble = "the other end\nis gone"
        found = alarms(broker)["service.trouble"]
        assert (found.level, found.subject) == ("warning", "careless")
        assert found.message == "the service careless says: the other end\\nis gone"
        plugin.trouble = ""
        assert alarms(broker) == {}

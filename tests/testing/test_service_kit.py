"""The service kit passes the built-in services, and names the rule that a wrong service breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from flintmq.config.sections.models import BrokerConfig, StoreSection
from flintmq.core.broker.api import PeriodicTimers
from flintmq.core.errors import JsonTypeError, StoreError
from flintmq.core.kernel.ports import HandedOut, Measurement, StoredMessages
from flintmq.core.kernel.ports.alarm import Alarm
from flintmq.plugins.delay.plugin import DelayService
from flintmq.plugins.retention.plugin import RetentionService
from flintmq.testing.clock import ManualClock
from flintmq.testing.failure import KitFailure
from flintmq.testing.service_kit import check_service
from flintmq.testing.store import opened
from flintmq.tests.support.state import state_of


class Counts:
    """A service that keeps every rule."""

    def __init__(self, timers: PeriodicTimers) -> None:
        self.timers = timers
        self.position = 0
        self.ended = False

    async def start(self) -> None:
        """Begin to count."""
        self.timers.pace(0, self.work, "count")

    def work(self) -> float:
        """Count."""
        self.position += 1
        return 1.0

    def ready(self) -> None:
        """Do nothing."""

    def withdraw(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """End."""
        self.ended = True

    def persist(self) -> None:
        """Do nothing."""

    def runtime_info(self) -> Mapping[str, str]:
        """Return the count."""
        return {"counted": str(self.position)}

    def health(self) -> str:
        """Return that nothing is wrong."""
        return ""

    def alarms(self) -> list[Alarm]:
        """Return one for each thing that is wrong."""
        return [Alarm("mine.odd", "warning", subject, "look there") for subject in "ab"]

    def metrics(self) -> Iterable[Measurement]:
        """Return the count."""
        return [Measurement("counts_total", self.position, {}, "counter")]

    def ready_words(self) -> Mapping[str, str]:
        """Return where it would listen."""
        return {"counts": "127.0.0.1:1"}

    def on_stored(self, stored: StoredMessages) -> None:
        """Count messages."""
        self.position += len(stored.messages)

    def on_answered(self) -> None:
        """Do nothing."""

    def on_handed_out(self, handed_out: HandedOut) -> None:
        """Do nothing."""

    def read_older(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> Sequence[bytes] | None:
        """Return that the messages are being fetched."""
        return ()

    def positions_for_slaves(self) -> Mapping[str, object]:
        """Return the count."""
        return {"counted": self.position}

    def follow(self, positions: Mapping[str, object]) -> None:
        """Take over a count."""
        position = positions["counted"]
        if not isinstance(position, int):
            raise JsonTypeError("counted is not a number")
        self.position = position


def test_a_broker_service_that_follows_every_rule_passes_the_service_check() -> None:
    """Every part of a service that the port names is there."""
    check_service(Counts)


def _makes_work_early(self: Counts, timers: PeriodicTimers) -> None:
    Counts.work.__get__(self)
    self.timers, self.position = timers, 0
    timers.every(1.0, self.work, "count")


def _rests_badly(self: Counts) -> None:
    self.timers.pace(1, self.work, "count", lambda: None)  # type: ignore[arg-type, return-value]


def _stops_what_began(self: Counts) -> None:
    if not self.position and not self.ended:
        raise RuntimeError("never began")


def _takes_whatever_comes(self: Counts, positions: Mapping[str, object]) -> None:
    pass


def _spoils(self: Counts, positions: Mapping[str, object]) -> None:
    self.position = 99 if isinstance(positions["counted"], str) else self.position
    if self.position == 99:
        raise JsonTypeError("counted is not a number")


def _cannot_persist(self: Counts) -> None:
    if self.ended:
        raise StoreError("closed")


async def _later(*_arguments: object) -> Any:
    return {}


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        ({"__init__": _makes_work_early}, "periodic work is asked for in start"),
        (
            {"start": lambda self: self.timers.every(0, self.work, "count")},
            "the interval of 'count' is longer than 0 s",
        ),
        ({"start": lambda self: self.timers.pace(-1, self.work, "count")}, "the first wait of 'count'"),
        ({"start": lambda self: self.timers.every(1, self.work, "")}, "periodic work has a name"),
        ({"start": _rests_badly}, "rest_s of 'count'"),
        ({"start": lambda _: 1}, "start returns nothing"),
        ({"work": lambda _: None}, "returns after how many seconds it is called again"),
        ({"stop": _stops_what_began}, "stop raised RuntimeError: never began"),
        ({"persist": _later}, "persist is a plain method"),
        ({"persist": _cannot_persist}, "persist must be able to write the service's positions after stop"),
        ({"runtime_info": _later}, "runtime_info is a plain method"),
        ({"runtime_info": lambda _: {"counted": 1}}, "figures are text"),
        ({"health": lambda _: None}, "health is one line of text"),
        ({"alarms": _later}, "alarms is a plain method"),
        ({"alarms": lambda _: ["mine.odd"]}, "alarms are Alarm objects"),
        ({"alarms": lambda _: [Alarm("mine.odd", "warning", "", "x")] * 2}, "each id and subject comes once"),
        ({"alarms": lambda _: [Alarm("mine.odd", "warning", "", "")]}, "an id and a message"),
        ({"metrics": _later}, "metrics is a plain method"),
        ({"metrics": lambda _: [Measurement("flintmq_mine", 1)]}, "a measurement is not valid"),
        ({"metrics": lambda _: [Measurement("mine", 1)] * 2}, "each series is told once"),
        ({"ready_words": _later}, "ready_words is a plain method"),
        ({"ready_words": lambda _: {"pid": "1"}}, "words of a READY line: the name 'pid'"),
        ({"on_stored": _later}, "on_stored is a plain method"),
        ({"on_answered": lambda _: 1}, "on_answered is a plain method that returns nothing"),
        ({"on_handed_out": _later}, "on_handed_out is a plain method"),
        ({"read_older": _later}, "read_older is a plain method"),
        ({"read_older": lambda *_: "records"}, "read_older must return the requested records"),
        ({"read_older": lambda *_: [b"no record"]}, "read_older must return the requested records"),
        ({"positions_for_slaves": _later}, "positions_for_slaves is a plain method"),
        ({"follow": _takes_whatever_comes}, "follow raises JsonTypeError"),
        ({"follow": _spoils}, "a refused follow changes nothing"),
    ],
)
def test_the_check_of_a_broker_service_states_the_rule_that_the_service_violates(
    broken: Mapping[str, object], rule: str
) -> None:
    """An author reads what to mend, not a broker that does not stop."""
    made: Any = type("Broken", (Counts,), dict(broken))
    with pytest.raises(KitFailure, match=rule):
        check_service(made)


@pytest.mark.parametrize("make", [DelayService, RetentionService])
def test_the_delay_service_and_the_retention_service_pass_the_service_check(
    tmp_path: Path, make: Callable[[Any], Any]
) -> None:
    """The features of the broker must keep the rules that plugins have to keep, on a real store."""
    clock = ManualClock()
    config = BrokerConfig(store=StoreSection(path=str(tmp_path)))
    with opened(tmp_path, clock=clock) as store:
        check_service(lambda timers: make(state_of(config, clock, store=store, timers=timers).api))

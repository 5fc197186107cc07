"""What a broker knows of topics, groups and offsets must survive its stop, also where one of the tables cannot be written."""

from __future__ import annotations

import logging
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flintmq.config import BrokerConfig
from flintmq.core.broker.api import BrokerApi
from flintmq.core.errors import StoreFullError
from flintmq.programs.broker.upkeep import ClientExpiry, HeldPulls, TableKeeper
from flintmq.testing.clock import ManualClock


class Table:
    """A table that notes what is asked of it."""

    def __init__(self, *, is_dirty: bool = True, fails: bool = False) -> None:
        self.is_dirty, self.fails, self.written = is_dirty, fails, 0
        self.file = self

    def persist(self) -> None:
        if self.fails:
            raise StoreFullError("the disk is full")
        self.written += 1


def api(**parts: Any) -> BrokerApi:
    return cast("BrokerApi", SimpleNamespace(**parts))


def test_a_stopping_broker_writes_consumer_offsets_even_if_writing_consumer_groups_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A full disk loses one table at most; topics without notes are as they are on disk."""
    topics, groups, offsets = Table(is_dirty=False), Table(fails=True), Table()
    with caplog.at_level(logging.ERROR, "flintmq.broker"):
        TableKeeper(api(topics=topics, groups=groups, offsets=offsets)).persist()
    assert (topics.written, groups.written, offsets.written) == (0, 0, 1)
    assert "the newest groups are lost: the disk is full" in caplog.text


class Timers:
    """Timers that a test lets run out by their name."""

    def __init__(self) -> None:
        self.work: dict[str, Any] = {}

    def every(self, _interval_s: float, work: Any, name: str, _rest_s: Any = None) -> None:
        self.work[name] = work

    pace = every


def test_connections_of_clients_without_heartbeats_are_closed() -> None:
    """Their queues go to others only when they are gone."""
    closed: list[str] = []
    channel = SimpleNamespace(close=closed.append)
    timers = Timers()
    table = SimpleNamespace(remove_expired=lambda: [channel])
    ClientExpiry(api(work=timers, clients=SimpleNamespace(consumers=table, producers=table, locks=table))).start()
    timers.work["client expiry"]()
    assert closed == ["no heartbeat for too long"] * 2


def test_long_polling_pulls_are_answered_before_the_broker_stops_listening() -> None:
    """A client that waits for half a minute learns at once that there is nothing."""
    released: list[str] = []
    held = SimpleNamespace(release_all=lambda: released.append("all"))
    HeldPulls(api(outlet=SimpleNamespace(held=held))).withdraw()
    assert released == ["all"]


def test_periodic_broker_checks_pause_while_no_pull_is_held_and_no_record_waits_for_dispatch() -> None:
    """A clock that is advanced by hours skips them; a pull that is held, or a record that can be dispatched, ends the rest."""

    class Hold(list[object]):
        next_deadline_s: float | None = None
        check = expire = None

    rests: dict[str, Any] = {}
    timers = SimpleNamespace(every=lambda _s, _work, name, rest_s: rests.__setitem__(name, rest_s))
    timers.pace = timers.every
    hold, marks = Hold(), SimpleNamespace(dispatched=7, readable=7)
    outlet, log = SimpleNamespace(held=hold), SimpleNamespace(marks=marks, dispatch=None)
    settings = SimpleNamespace(current=BrokerConfig())
    HeldPulls(api(outlet=outlet, log=log, work=timers, settings=settings, clock=ManualClock())).start()
    assert {name: rest_s() for name, rest_s in rests.items()} == dict.fromkeys(rests, math.inf)
    hold.append("a pull")
    hold.next_deadline_s = ManualClock().monotonic_s() + 15.0
    marks.readable = 8
    assert {name: rest_s() for name, rest_s in rests.items()} == {
        "held pulls": 0.0,
        "held pulls' deadlines": 15.0,
        "dispatch": 0.0,
    }

"""A store that takes nothing is the gravest alarm: it comes when the disk fails, and goes when the broker is mended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from flintmq import Message
from flintmq.core.errors import FlintError
from flintmq.core.io.os_disk import OsDisk
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.core.kernel.ports.alarm import Alarm
from flintmq.plugins.alarms.store_alarms import StoreAlarms
from flintmq.testing.clock import ManualClock, VirtualClock
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.testing.store import BY_HAND, message, opened
from flintmq.tests.support.state import state_of

HOURS = [f"{hour:02}" for hour in range(24)]
Alarms = Callable[[EmbeddedBroker], dict[str, Alarm]]


def test_a_failed_disk_sync_raises_an_alarm_until_the_broker_is_restarted(alarms: Alarms) -> None:
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


def test_an_alarm_is_active_while_an_exception_in_a_dispatcher_stops_the_dispatch(alarms: Alarms) -> None:
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


def test_a_full_disk_raises_an_alarm_until_disk_space_is_free(alarms: Alarms) -> None:
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


def test_deleting_messages_that_a_group_has_not_consumed_raises_an_alarm(alarms: Alarms) -> None:
    """The slowest of the named groups decides, also after a restart; the one that has consumed all is not told of."""
    clock = VirtualClock()
    settings = [
        "store.commit_log_file_bytes=65536",
        "store.keep_for_groups=billing,audit",
        "store.keep_at_most_hours=100",
    ]
    room = ["store.disk_forcible_ratio=100", "store.disk_full_ratio=100", "store.delete_when=" + ";".join(HOURS)]
    with EmbeddedBroker(clock=clock, settings=settings + room) as broker:
        broker.create_topic("T", 1)
        broker.put([Message("T", bytes(30_000)) for _ in range(6)])

        def first_kept(audit: int | None = None) -> int:
            async def look() -> int:
                state = broker.broker.state
                if audit is not None:
                    state.offsets.commit("T", "billing", 0, 6)
                    state.offsets.commit("T", "audit", 0, audit)
                return state.store.commit_log.min_offset_bytes

            return broker.broker.call(look)

        first_kept(audit=3)
        clock.advance("80h")
        assert first_kept() == 65_536, "the first file holds the messages 0 and 1"
        broker.stop()
        broker.start()
        clock.advance("2h")
        assert (first_kept(), alarms(broker)) == (65_536, {})
        clock.advance("1100m")
        assert first_kept() > 65_536
        (found,) = alarms(broker).values()
        assert (found.id, found.subject, found.value, found.unit, found.key) == (
            "retention.bound_won", "audit", 1, "messages", "store.keep_at_most_hours",
        )  # fmt: skip


def test_a_nearly_full_disk_raises_a_warning_alarm_until_disk_space_is_free(
    alarms: Alarms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends are still taken: it is a warning, before messages go that nobody has consumed."""
    clock = VirtualClock()
    with EmbeddedBroker(clock=clock, settings=["store.disk_enough_free_bytes=4GiB"]) as broker:
        with monkeypatch.context() as patched:
            patched.setattr(OsDisk, "usage", lambda _disk, _folder: (20_000 << 20, 17_600 << 20, 2_400 << 20))
            clock.advance("1m")
            (found,) = alarms(broker).values()
            assert broker.put([Message("T", b"x")])
        assert (found.id, found.level, found.value, found.unit) == ("disk.nearly_full", "warning", 0.88, "ratio")
        assert (found.limit, found.key) == (0.85, "store.disk_forcible_ratio")
        clock.advance("1m")
        assert alarms(broker) == {}


class Looks:
    """Timers that a test turns by hand."""

    def every(self, interval_s: float, work: Callable[[], object], name: str, rest_s: Callable[[], float]) -> None:
        self.interval_ms, self.work, self.rest_s = round(interval_s * 1000), work, rest_s

    def pace(self, *_asked: object) -> None:
        raise AssertionError("these alarms look at fixed intervals")


def test_messages_that_wait_too_long_for_a_disk_sync_raise_an_alarm_until_they_are_synced(tmp_path: Path) -> None:
    """A disk that does not come back from a sync raises nothing: half a minute later somebody has to look."""
    clock, looks = ManualClock(), Looks()
    strategy = attrs.evolve(BY_HAND, synchronous=True)
    with opened(tmp_path, strategy=strategy, clock=clock) as store:
        watch = StoreAlarms(state_of(clock=clock, store=store, timers=looks).api)
        watch.start()

        def wait(looked: int) -> list[Alarm]:
            for _ in range(looked):
                clock.advance_ms(looks.interval_ms)
                looks.work()
            store.dispatch()
            return [*watch.alarms()]

        assert wait(100) == []
        assert looks.rest_s() > 1e9, "nothing waits"
        store.put([message("T")])
        assert looks.rest_s() == 0
        assert wait(6) == []
        (found,) = wait(2)
        assert (found.id, found.level, found.value, found.unit, found.limit) == (
            "dispatch.still",
            "critical",
            35_000,
            "ms",
            30_000,
        )
        assert "not synced" in found.message
        store.commit_log.flush(0)
        assert wait(1) == []
        for _ in range(20):  # each look finds something waiting, and each time it is something else
            store.put([message("T")])
            assert wait(1) == []
            store.commit_log.flush(0)


def test_messages_that_no_slave_has_copied_raise_an_alarm_on_a_sync_master() -> None:
    """A master that waits for slaves, and has none: messages are stored, answered as such, and seen by nobody."""
    clock = VirtualClock()
    settings = ["broker.role=sync_master", "ha.compat=rocketmq", "listen.ha_port=0"]
    with EmbeddedBroker(settings=settings, clock=clock) as broker:

        async def put_and_ask() -> list[Alarm]:
            store = broker.broker.state.store
            store.put([message("T")])
            broker.broker.state.dispatch()
            return broker.broker.state.alarms.current()

        async def ask() -> list[Alarm]:
            return broker.broker.state.alarms.current()

        assert "dispatch.still" not in {one.id for one in broker.broker.call(put_and_ask)}
        clock.advance("40s")
        (found,) = (one for one in broker.broker.call(ask) if one.id == "dispatch.still")
        assert "no slave has them" in found.message
        assert "broker.role" in found.message


def test_an_alarm_is_active_while_dispatch_is_far_behind_the_commit_log() -> None:
    """Messages are stored, and dispatch has not had its turn."""
    with EmbeddedBroker(settings=["alarms.dispatch_behind_bytes=1000"]) as broker:

        async def fall_behind() -> tuple[list[Alarm], list[Alarm]]:
            state = broker.broker.state
            state.store.put([message("T", body=b"x" * 2_000)])
            behind = state.alarms.current()
            state.dispatch()
            return behind, state.alarms.current()

        (found,), after = broker.broker.call(fall_behind)
        assert (found.id, found.level, found.unit, found.limit) == ("dispatch.behind", "warning", "bytes", 1_000)
        assert found.value > 2_000
        assert after == []


def test_an_alarm_is_raised_for_five_minutes_after_the_event_loop_was_blocked(alarms: Alarms) -> None:
    """Somebody's code blocks it once: everybody waited, and nothing else is wrong."""
    clock = VirtualClock()
    noticed = threading.Event()

    class Notices(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "nobody is served" in record.getMessage():
                noticed.set()

    handler = Notices()
    logging.getLogger("flintmq.broker").addHandler(handler)
    try:
        with EmbeddedBroker(settings=["listen.loop_blocked_warn_ms=300"], clock=clock) as broker:

            async def block() -> None:
                assert noticed.wait(30)

            broker.broker.call(block)
            deadline_s = time.monotonic() + 30
            while "loop.blocked" not in (found := alarms(broker)):  # the watchdog's thread notes the end
                assert time.monotonic() < deadline_s
            assert found["loop.blocked"].value >= 300
            assert "the event loop was busy with" in found["loop.blocked"].message
            clock.advance("301s")
            assert "loop.blocked" not in alarms(broker)
    finally:
        logging.getLogger("flintmq.broker").removeHandler(handler)

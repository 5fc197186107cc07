"""A broker that refuses everything and looks healthy costs its operator the night: one line, one alarm, and both go again."""

from __future__ import annotations

import logging

import pytest

from flintmq.core.broker.faults import SHOWN_S, BrokerFaults
from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.response_code import ResponseCode
from flintmq.testing.clock import ManualClock


def refusal(reason: str) -> RefusedError:
    return RefusedError(ResponseCode.SYSTEM_ERROR, "refused", reason=reason, measured="a reason", key="a.key")


class Watched:
    """Faults, and the lines of the log that they cost."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "flintmq.broker")
        self._caplog = caplog
        self.clock = ManualClock(0)
        self.faults = BrokerFaults(self.clock)

    def lines(self) -> list[tuple[str, str]]:
        found = [(one.levelname, one.getMessage()) for one in self._caplog.records]
        self._caplog.clear()
        return found

    def alarms(self) -> list[tuple[str, str, str, float]]:
        return [(one.id, one.level, one.subject, one.value) for one in self.faults.alarms()]

    def wait(self, seconds: float) -> None:
        self.clock.advance_ms(round(seconds * 1000))


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Watched:
    return Watched(caplog)


@pytest.mark.parametrize("reason", ["store.file", "store.disk_full", "store.exhausted", "store.failed"])
def test_a_refused_send_is_logged_once_and_raises_an_alarm_until_a_send_is_stored(
    watched: Watched, reason: str
) -> None:
    """The line and the alarm name the reason, the value and the key that clients are told."""
    for _ in range(100):
        watched.faults.refused(refusal(reason))
    assert watched.lines() == [
        ("ERROR", f"sends are refused: refused [{reason}; measured a reason; see a.key]; 1 since 0 s")
    ]
    assert watched.alarms() == [("sends.refused", "critical", reason, 100)]
    (alarm,) = watched.faults.alarms()
    assert (alarm.unit, alarm.key) == ("messages", "a.key")
    assert "a reason" in alarm.message
    watched.wait(5)
    watched.faults.stored()
    assert watched.alarms() == []
    assert watched.lines() == [("WARNING", f"sends are accepted again: 100 were refused [{reason}]")]
    assert not watched.faults.are_some


def test_a_lasting_fault_is_logged_at_growing_intervals(watched: Watched) -> None:
    """Half an hour of refusals is a handful of lines, and the newest has the count."""
    said = []
    for second in range(1_800):
        watched.faults.refused(refusal("store.file"), 2)
        said += [second for _ in watched.lines()]
        watched.wait(1)
    assert said == [0, 10, 30, 70, 150, 310, 630, 1270]


def test_a_single_alarm_stays_raised_while_refused_and_successful_sends_alternate(watched: Watched) -> None:
    """Small messages still fit the last file while large ones are refused: the alarm must not come and go."""
    for _ in range(100):
        watched.faults.refused(refusal("store.file"))
        watched.wait(0.1)
        watched.faults.stored()
        assert len(watched.alarms()) == 1
    assert len(watched.lines()) == 1
    watched.wait(1)
    assert watched.alarms() == [], "the last send was taken"


def test_a_fault_that_recurs_every_few_seconds_is_not_logged_every_time(watched: Watched) -> None:
    """A disk at its limit: full, free and full again each few seconds."""
    for _ in range(12):
        watched.faults.refused(refusal("store.disk_full"))
        watched.wait(3)
        watched.faults.stored()
        watched.wait(3)
    errors = [text for level, text in watched.lines() if level == "ERROR"]
    assert len(errors) == 3
    watched.wait(60)
    watched.faults.refused(refusal("store.disk_full"))
    assert len(watched.lines()) == 1


def test_a_durability_alarm_ends_only_after_a_message_is_stored_durably(watched: Watched) -> None:
    """A slave that is missing costs no append: only a promise that is kept ends the alarm."""
    for reason in ("ha.no_slave", "ha.timeout", "flush.timeout"):
        watched.faults.refused(refusal(reason))
    watched.wait(2)
    watched.faults.stored()
    assert len(watched.alarms()) == 3
    watched.faults.durable()
    assert watched.alarms() == []


def test_refusals_by_flow_control_raise_an_alarm_only_if_they_continue_for_more_than_10_seconds(
    watched: Watched,
) -> None:
    """A peak of some seconds is what flow control is for."""
    for _ in range(25):
        watched.faults.refused(refusal("admission.page_cache_busy"))
        watched.faults.stored()
        watched.wait(0.4)
    assert (watched.alarms(), watched.lines()) == ([], [])
    for _ in range(2):
        watched.faults.refused(refusal("admission.page_cache_busy"))
        watched.wait(0.4)
    assert [one[2] for one in watched.alarms()] == ["admission.page_cache_busy"]
    assert len(watched.lines()) == 1


def test_an_alarm_about_failed_sends_ends_if_there_are_no_more_sends(watched: Watched) -> None:
    watched.faults.refused(refusal("store.file"))
    watched.faults.not_written("topics", StoreError("no room"))
    watched.wait(SHOWN_S - 1)
    assert len(watched.alarms()) == 2
    watched.wait(1)
    assert watched.alarms() == []
    assert not watched.faults.are_some


def test_a_client_error_in_a_send_request_raises_no_alarm(
    watched: Watched,
) -> None:
    """Faults that have an alarm of their own raise none here either."""
    for reason in ("topic.illegal", "message.too_large", "store.slave", "store.fenced"):
        watched.faults.refused(refusal(reason))
    assert (watched.alarms(), watched.lines(), watched.faults.are_some) == ([], [], False)


def test_an_alarm_is_raised_while_the_consumer_offset_file_cannot_be_written(watched: Watched) -> None:
    """Tried every five seconds: the log has a line now and then."""
    for _ in range(10):
        watched.faults.not_written("consumer offsets", StoreError("offsets.json: no room"))
        watched.faults.written("topics")
        watched.wait(5)
    assert watched.alarms() == [("table.not_written", "critical", "consumer offsets", 0)]
    lines = watched.lines()
    assert len(lines) == 3
    assert "offsets.json: no room" in lines[0][1]
    watched.faults.written("consumer offsets")
    assert watched.alarms() == []
    assert watched.lines() == [("WARNING", "consumer offsets can be written again")]

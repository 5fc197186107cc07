"""A broker that was started again says so: else an operator sees a short uptime and no reason."""

from __future__ import annotations

from flintmq.programs.supervisor.supervised import Supervised
from flintmq.testing.service_kit import check_service


def test_the_service_that_reports_restarts_by_the_supervisor_passes_the_conformance_checks() -> None:
    """It is a service like any other."""
    check_service(lambda _timers: Supervised(1, "was ended by SIGKILL"))


def test_a_supervised_broker_reports_an_alarm_while_another_broker_is_down() -> None:
    """A broker that is down tells nothing, and its name server has forgotten it."""
    supervised = Supervised.parse("0:")
    supervised.told(b'{"broker-b": "was ended by SIGKILL"}')
    (alarm,) = supervised.alarms()
    assert (alarm.id, alarm.level, alarm.subject) == ("broker.missing", "critical", "broker-b")
    assert alarm.message.startswith("broker-b was ended by SIGKILL and does not serve yet")
    supervised.told(b"{}")
    assert supervised.alarms() == []


def test_the_runtime_info_contains_how_often_the_supervisor_has_restarted_the_broker() -> None:
    """A reason may hold anything, colons among it; the first process has none."""
    assert Supervised.parse("0:").runtime_info() == {"supervisorRestarts": "0"}
    assert Supervised.parse("2:was: ended").runtime_info() == {
        "supervisorRestarts": "2",
        "supervisorLastEnd": "was: ended",
    }

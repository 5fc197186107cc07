"""A broker that was started again says so: else an operator sees a short uptime and no reason."""

from __future__ import annotations

from flintmq.core.testing.service_kit import check_service
from flintmq.plugins.supervisor.supervised import Supervised


def test_the_kit_accepts_it() -> None:
    """It is a service like any other."""
    check_service(lambda _timers: Supervised(1, "was ended by SIGKILL"))


def test_figures() -> None:
    """A reason may hold anything, colons among it; the first process has none."""
    assert Supervised.parse("0:").runtime_info() == {"supervisorRestarts": "0"}
    assert Supervised.parse("2:was: ended").runtime_info() == {
        "supervisorRestarts": "2",
        "supervisorLastEnd": "was: ended",
    }

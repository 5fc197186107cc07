"""Programs read a broker's alarms from request 28: what is written there can be read again, and nothing else passes for it."""

from __future__ import annotations

import pytest

from flintmq.core.broker.alarm_figures import alarm_figures, alarms_of
from flintmq.core.broker.alarms import Alarms
from flintmq.core.errors import FlintError
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm


def test_alarms_encoded_as_an_entry_of_the_broker_runtime_info_are_decoded_unchanged() -> None:
    """Numbers keep their kind: a message count is no 1000.0."""
    alarms = [
        Alarm("a.b", CRITICAL, "G", 'it is "full" | <b>', 1_000, "messages", 500, "store.path"),
        Alarm("a.c", WARNING, "", "late", 0.5, "ratio", 0.25),
    ]
    sources = Alarms()
    sources.add(lambda: alarms)
    found = alarms_of(alarm_figures(sources))
    assert found == alarms
    assert [type(alarm.value) for alarm in found] == [int, float]


def test_a_broker_runtime_info_without_an_alarms_entry_gives_no_alarms() -> None:
    """The Java broker."""
    assert alarms_of({"putTps": "0.0"}) == []


@pytest.mark.parametrize(
    "figure", ["", "[", "{}", '[{"id":"a.b"}]', '[{"id":1,"level":"warning","subject":"","message":""}]']
)
def test_reading_malformed_alarms_from_the_runtime_info_of_a_broker_raises_an_error(figure: str) -> None:
    """Not an empty list, which would say that all is well."""
    with pytest.raises(FlintError, match="'alarms' cannot be read"):
        alarms_of({"alarms": figure})

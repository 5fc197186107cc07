"""What a program in the broker's process is told of alarms."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.core.kernel.ports.alarm import Alarm
from flintmq.testing.embedded import EmbeddedBroker

Alarms = Callable[[EmbeddedBroker], dict[str, Alarm]]


@pytest.fixture
def alarms() -> Alarms:
    """Returns a broker's alarms by id."""

    def told(broker: EmbeddedBroker) -> dict[str, Alarm]:
        async def ask() -> list[Alarm]:
            return broker.broker.state.alarms.current()

        found = broker.broker.call(ask)
        assert len(found) == len({alarm.id for alarm in found})
        return {alarm.id: alarm for alarm in found}

    return told

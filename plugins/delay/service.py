"""Delivers delayed messages while a broker runs, and keeps how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.broker.waiting_store import WaitingStoreAdapter
from flintmq.plugins.delay.delay_levels import DelayLevels
from flintmq.plugins.delay.schedule import ScheduleMessageService

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

_FIRST_S = 1.0


class DelayService:
    """The service ``delay`` (:class:`flintmq.core.kernel.ports.Service`). Loop thread.

    A slave delivers nothing: it takes over its master's positions. With ``delay.enable: false`` nothing is delivered, either.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self.schedule = ScheduleMessageService(
            WaitingStoreAdapter(api.store, api.stats, api.topics.create_in_send_back),
            DelayLevels(api.config.delay.levels),
            api.file("delayOffset.json"),
        )

    def start(self) -> None:
        """Read how far delivery is, and begin to deliver. Raises ``StoreFormatError``."""
        api, config = self._api, self._api.config
        self.schedule.load()
        api.readers.add(SCHEDULE_TOPIC, lambda queue_id: self.schedule.offset(queue_id + 1))
        api.timers.every(config.delay.flush_interval_ms / 1000, self.schedule.persist, "delay offsets")
        if config.delay.enable and not config.broker.is_slave:
            api.timers.pace(_FIRST_S, self._deliver, "delayed messages")

    def stop(self) -> None:
        """Do nothing: the timers have ended, and the positions are written by :meth:`persist`."""

    def _deliver(self) -> float:
        clock = self._api.clock
        next_ms = self.schedule.run_due(clock.now_ms())
        self._api.dispatch()
        return max(0.0, min(1.0, (next_ms - clock.now_ms()) / 1000))

    def persist(self) -> None:
        """Write how far each level was delivered. Raises ``StoreError``."""
        self.schedule.persist()

    def runtime_info(self) -> Mapping[str, str]:
        """Return how far each level is delivered, and the end of its queue."""
        return self.schedule.runtime_info()

    def positions_for_slaves(self) -> Mapping[str, object]:
        """Return the table of offsets, as ``DelayOffsetSerializeWrapper`` has it."""
        return self.schedule.to_wire()

    def follow(self, positions: Mapping[str, object]) -> None:
        """Take over the master's table. Raises ``JsonTypeError``, ``StoreError``."""
        self.schedule.replace(positions)
        self.schedule.persist()

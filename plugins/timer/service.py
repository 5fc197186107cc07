"""Runs the timers of a broker, and keeps which of them were delivered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.config.rocketmq.system_topics import TIMER_TOPIC
from flintmq.core.broker.waiting_store import WaitingStoreAdapter
from flintmq.core.io.json_file import JsonFile
from flintmq.plugins.timer.timer_service import TIMER_POSITIONS, TimerMessageService, TimerPositions
from flintmq.plugins.timer.timer_wheel import TimerWheel

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi


class TimerService:
    """The service ``timer`` (:class:`flintmq.core.kernel.ports.Service`). Loop thread.

    A master delivers. A slave keeps its master's positions, so that it delivers from there on once it is the master. With
    ``delay.timer_enable: false`` neither is done.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        config = api.config
        self._api = api
        self._delivers = config.delay.timer_enable and config.broker.id == 0
        self._follows = config.delay.timer_enable and config.broker.id != 0
        folder = Path(api.store.root) / "flint" / "timer"
        store = WaitingStoreAdapter(api.store, api.stats, api.topics.create_in_send_back)
        self.positions = TimerPositions(store, JsonFile(folder / "position.json", api.store.disk))
        """The file of the positions: a slave's master's, or its own."""
        self.wheel = TimerWheel(folder, api.store.disk)
        self.timers = TimerMessageService(store, self.wheel, self.positions)

    @property
    def takes_messages(self) -> bool:
        """Whether messages that name a time wait for it here."""
        return self._delivers

    def start(self) -> None:
        """Read what was delivered, and begin. Raises ``StoreError``."""
        api = self._api
        if self._delivers:
            self.timers.load()
            api.readers.add(TIMER_TOPIC, lambda _queue_id: self.timers.low_queue_offset())
            api.timers.pace(0.0, self._run, "timers")
        elif self._follows:
            self.positions.load()
        else:
            return
        api.timers.every(api.config.delay.flush_interval_ms / 1000, self.persist, "timer positions")

    def stop(self) -> None:
        """Do nothing: the timers have ended, and the positions are written by :meth:`persist`."""

    def _run(self) -> float:
        clock = self._api.clock
        next_ms = self.timers.run(clock.now_ms())
        self._api.dispatch()
        return max(0.0, (next_ms - clock.now_ms()) / 1000)

    def persist(self) -> None:
        """Write which timers were delivered, or what the master says of that. Raises ``StoreError``."""
        if self._delivers:
            self.timers.persist()
        elif self._follows:
            self.positions.persist_of_master()

    def runtime_info(self) -> Mapping[str, str]:
        """Return how much waits to be read and to be delivered, under the names of 5.x."""
        return self.timers.runtime_info() if self._delivers else {}

    def positions_for_slaves(self) -> Mapping[str, object]:
        """Return which timers were delivered; nothing before the first message that named a time."""
        positions = self.timers.positions() if self._delivers else {}
        return {TIMER_POSITIONS: positions} if positions.get("readQueueOffset") else {}

    def follow(self, positions: Mapping[str, object]) -> None:
        """Take over the master's positions on a slave. Raises ``StoreError``."""
        told = positions.get(TIMER_POSITIONS)
        if self._follows and isinstance(told, dict):
            self.positions.of_master = told
            self.positions.persist_of_master()

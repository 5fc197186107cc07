"""Timers: messages are delivered at the time they name, days ahead and to the fraction of a second (see
:mod:`flintmq.core.broker.timer_message`)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.core.errors import StoreError
from flintmq.core.hookspecs import hookimpl

if TYPE_CHECKING:
    from flintmq.core.broker.state import BrokerState
    from flintmq.core.broker.timer_service import TimerMessageService
    from flintmq.plugins.broker import Broker

log = logging.getLogger("flintmq.broker")

_HOUR_MS = 3_600_000


class TimerPlugin:
    """Messages delivered at any time, by a wheel that survives restarts. ``delay.timer_enable: false`` switches it off."""

    plugin_name = "timer"

    @hookimpl
    def flintmq_broker_starting(self, broker: Broker) -> None:
        config = broker.state.config
        if config.delay.timer_enable and config.broker.id == 0:
            start_timers(broker)

    @hookimpl
    def flintmq_broker_stopping(self, broker: Broker) -> None:
        timer = broker.state.timer
        if timer is not None:
            try:
                timer.persist()
            except StoreError as error:  # a full disk: what was written last still counts
                log.error("the newest timer positions are lost: %s", error)


def start_timers(broker: Broker) -> None:
    """Makes a broker that is about to listen deliver timers, and take them."""
    from flintmq.core.broker.timer_message import TimerRedirect
    from flintmq.core.broker.timer_service import TimerMessageService
    from flintmq.core.broker.timer_wheel import TimerWheel
    from flintmq.core.broker.topic_name import TIMER_TOPIC
    from flintmq.core.io.json_file import JsonFile
    from flintmq.plugins.schedule_store import ScheduleStoreAdapter

    state = broker.state
    folder = Path(state.store.root) / "flint" / "timer"
    wheel = TimerWheel(folder)
    adapter = ScheduleStoreAdapter(state.store, state.stats, state.topics.create_in_send_back)
    service = TimerMessageService(adapter, wheel, JsonFile(folder / "position.json"))
    service.load()
    state.timer = service
    state.readers.add(TIMER_TOPIC, lambda _queue_id: service.low_queue_offset())
    state.runtime_sources.append(service.runtime_info)
    state.intake.timer = TimerRedirect(
        state.clock,
        lambda: longest_delay(state),
        lambda due_ms: wheel.count_at(due_ms) < state.config.delay.timer_minute_max,
    )
    broker.timers.pace(0.0, lambda: _run(state, service), "timers")
    broker.timers.every(state.config.delay.flush_interval_ms / 1000, service.persist, "timer positions")


def longest_delay(state: BrokerState) -> tuple[int, str]:
    """The longest delay in ms, and the key that says so: what the log deletes before it is due is not taken."""
    kept_ms = state.config.store.file_reserved_hours * _HOUR_MS
    wanted_ms = state.config.delay.timer_max_delay_ms
    if kept_ms < wanted_ms:
        return kept_ms, "store.file_reserved_hours (fileReservedTime)"
    return wanted_ms, "delay.timer_max_delay_ms (timerMaxDelaySec)"


def _run(state: BrokerState, service: TimerMessageService) -> float:
    next_ms = service.run(state.clock.now_ms())
    state.dispatch()
    return max(0.0, (next_ms - state.clock.now_ms()) / 1000)

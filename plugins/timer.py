"""Timers: messages are delivered at the time they name, days ahead and to the fraction of a second (see
:mod:`flintmq.core.broker.timer_message`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.core.kernel.hookspecs import hookimpl

if TYPE_CHECKING:
    from flintmq.core.broker.state import BrokerState
    from flintmq.core.broker.timer_service import TimerMessageService, TimerPositions
    from flintmq.plugins.broker.broker import Broker

_HOUR_MS = 3_600_000


class TimerPlugin:
    """Messages delivered at any time, by a wheel that survives restarts. ``delay.timer_enable: false`` switches it off."""

    plugin_name = "timer"

    @hookimpl
    def flintmq_broker_starting(self, broker: Broker) -> None:
        config = broker.state.config
        if not config.delay.timer_enable:
            return
        if config.broker.id == 0:
            start_timers(broker)
        else:
            follow_timers(broker)


def _saved_positions(state: BrokerState) -> TimerPositions:
    from flintmq.core.broker.timer_service import TimerPositions
    from flintmq.core.io.json_file import JsonFile
    from flintmq.plugins.broker.schedule_store import ScheduleStoreAdapter

    return TimerPositions(
        ScheduleStoreAdapter(state.store, state.stats), JsonFile(_folder(state) / "position.json", state.store.disk)
    )


def _folder(state: BrokerState) -> Path:
    return Path(state.store.root) / "flint" / "timer"


def follow_timers(broker: Broker) -> None:
    """Makes a slave keep its master's positions, so that it delivers from there on once it is the master."""
    state = broker.state
    state.timer_positions = positions = _saved_positions(state)
    positions.load()
    state.positions.append(("timer positions", positions.persist_of_master))
    broker.timers.every(state.config.delay.flush_interval_ms / 1000, positions.persist_of_master, "timer positions")


def start_timers(broker: Broker) -> None:
    """Makes a broker that is about to listen deliver timers, and take them."""
    from flintmq.config.rocketmq.system_topics import TIMER_TOPIC
    from flintmq.core.broker.timer_message import TimerRedirect
    from flintmq.core.broker.timer_service import TimerMessageService
    from flintmq.core.broker.timer_wheel import TimerWheel
    from flintmq.plugins.broker.schedule_store import ScheduleStoreAdapter

    state = broker.state
    wheel = TimerWheel(_folder(state), state.store.disk)
    adapter = ScheduleStoreAdapter(state.store, state.stats, state.topics.create_in_send_back)
    service = TimerMessageService(adapter, wheel, _saved_positions(state))
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
    state.positions.append(("timer positions", service.persist))
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

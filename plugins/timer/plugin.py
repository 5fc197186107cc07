"""The plugin ``timer``: the hooks by which messages that name their time of delivery join the broker."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintmq.config.rocketmq.system_topics import TIMER_TOPIC
from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker.redirected_message import (
    RedirectedMessageStore,
    check_deliverable,
    has_real_topic,
    illegal_message,
)
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.kernel.hookspecs import RegisterIntakeStep, RegisterService, RegisterSystemTopic, hookimpl
from flintmq.core.kernel.ports import Sent, SystemTopic
from flintmq.core.record import properties as props
from flintmq.core.record.batch import MessageBatch
from flintmq.core.record.properties import stored_values
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.plugins.timer.timer_message import TimerRedirect
from flintmq.plugins.timer.timer_service import TIMER_POSITIONS, TimerMessageService, TimerPositions
from flintmq.plugins.timer.timer_wheel import TimerWheel

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

_NAMES: Final = frozenset({props.TIMER_DELIVER_MS, props.TIMER_DELAY_MS, props.TIMER_DELAY_SEC})
_MARK: Final = b"TIMER_D"
"""In the stored properties of every message that may name a time; what lacks it needs no closer look."""
_HOUR_MS: Final = 3_600_000


class TimerPlugin:
    """Messages delivered at any time, by a wheel that survives restarts. ``delay.timer_enable: false`` switches it off."""

    plugin_name = "timer"

    @hookimpl
    def flintmq_system_topics(self, register: RegisterSystemTopic) -> None:
        register(SystemTopic(TIMER_TOPIC, is_listed=False, holds_messages=True, keeps_queues=True))

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("timer", TimerService)

    @hookimpl
    def flintmq_intake_steps(self, register: RegisterIntakeStep) -> None:
        register("timer", timer_step)


class TimerStep:
    """Redirects messages that name a time (:class:`flintmq.core.kernel.ports.IntakeStep`). Loop thread.

    Args:
        redirect: decides and redirects; None on a slave and with ``delay.timer_enable: false``, where such messages are stored
            at their topic at once, as by RocketMQ 4.9.
        config: the settings in force.
    """

    topic_prefixes: tuple[str, ...] = ()

    def __init__(self, redirect: TimerRedirect | None, config: Callable[[], BrokerConfig]) -> None:
        self._redirect = redirect
        self._config = config
        self.property_names = _NAMES if redirect is not None else frozenset[str]()

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Redirect a message that names a time ahead; not one that waits for its transaction's end already.

        Raises:
            RefusedError: the time is not acceptable, too many are due then, or the message could never be delivered.
        """
        real_topic = message.topic
        if self._redirect is None or not self._redirect(message):
            return False
        check_deliverable(message, real_topic, self._config().store.commit_log_file_bytes)
        return True

    def would_take(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message names a time ahead. Raises ``RefusedError`` for a time that can never be kept."""
        return self._redirect is not None and self._redirect.wanted_ms(properties) is not None

    def check_batch(self, shared: Mapping[str, str], batch: MessageBatch) -> None:
        """Refuse a batch with a message that names a time: a batch is stored in one piece, now. Raises ``RefusedError``."""
        if self._redirect is None or not batch.may_wait:
            return
        marked = [one for one in batch.stored_properties if _MARK in one]  # the mark may lie in a value as well
        if any(map(any, stored_values(marked, [name.encode() for name in _NAMES]))):
            body_max_bytes = self._config().store.max_message_bytes
            raise illegal_message("batch.delay", "a batch with a time of delivery", body_max_bytes)


def timer_step(api: BrokerApi) -> TimerStep:
    """Return the step of a broker, which asks the timers whether there is room at a time."""
    service = api.service(TimerService)
    redirect = TimerRedirect(
        api.clock,
        lambda: longest_delay(api.config),
        lambda due_ms: service.wheel.count_at(due_ms) < api.config.delay.timer_minute_max,
    )
    return TimerStep(redirect if service.takes_messages else None, lambda: api.config)


def longest_delay(config: BrokerConfig) -> tuple[int, str]:
    """Return the longest delay in ms, and the key that says so: what the log deletes before it is due is not taken."""
    kept_ms = config.store.file_reserved_hours * _HOUR_MS
    wanted_ms = config.delay.timer_max_delay_ms
    if kept_ms < wanted_ms:
        return kept_ms, "store.file_reserved_hours (fileReservedTime)"
    return wanted_ms, "delay.timer_max_delay_ms (timerMaxDelaySec)"


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
        store = RedirectedMessageStore(api.store, api.stats, api.topics, api.sink, partial(has_real_topic, api))
        self.positions = TimerPositions(store, JsonFile(folder / "position.json", api.store.disk))
        """The file of the positions: a slave's master's, or its own."""
        self.wheel = TimerWheel(folder, api.store.disk)
        self.timers = TimerMessageService(store, self.wheel, self.positions)
        self._seen_offset_bytes = -1
        """Up to where the log was visible when all of it had been read; -1 while there is more to read."""

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
            api.timers.pace(0.0, self._run, "timers", self._rest_s)
        elif self._follows:
            known = self.positions.load()
            api.readers.add(
                TIMER_TOPIC, lambda _queue_id: int((self.positions.of_master or known).get("lowQueueOffset", 0))
            )
        else:
            return
        api.timers.every(api.config.delay.flush_interval_ms / 1000, self.persist, "timer positions")

    def stop(self) -> None:
        """Do nothing: the timers have ended, and the positions are written by :meth:`persist`."""

    def _run(self) -> float:
        clock = self._api.clock
        visible_bytes, now_ms = self._api.store.watermarks.dispatched, clock.now_ms()
        self._seen_offset_bytes = -1
        next_ms = self.timers.run(now_ms)
        if next_ms > now_ms:
            self._seen_offset_bytes = visible_bytes
        self._api.dispatch()
        return max(0.0, (next_ms - clock.now_ms()) / 1000)

    def _rest_s(self) -> float:
        """Return for how long nothing is due of what was visible at the last look; 0 when more is visible by now."""
        if self.timers.is_restoring or self._seen_offset_bytes != self._api.store.watermarks.dispatched:
            return 0.0
        due_ms = self.wheel.next_ms()
        return math.inf if due_ms is None else (due_ms - self._api.clock.now_ms()) / 1000

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

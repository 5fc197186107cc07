"""The plugin ``timer``, which delivers messages at the time that they name in a property.

The plugin registers an intake step and a service. The broker calls the intake step before it stores a message. The step
redirects a message that names a time of delivery to the timer topic. The service delivers the message at that time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintmq.config.rocketmq.system_topics import TIMER_TOPIC
from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker.redirected_message import check_deliverable, illegal_message, waiting_store
from flintmq.core.broker.role import MASTER_ID
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.kernel.hookspecs import RegisterIntakeStep, RegisterService, RegisterSystemTopic, hookimpl
from flintmq.core.kernel.ports import Sent, SystemTopic
from flintmq.core.record import properties as props
from flintmq.core.record.batch import MessageBatch
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.plugins.timer.timer_message import TimerRedirect
from flintmq.plugins.timer.timer_service import TIMER_POSITIONS, TimerMessageService, TimerPositions
from flintmq.plugins.timer.timer_wheel import TimerWheel

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.io.clock import Scheduled

_NAMES: Final = frozenset({props.TIMER_DELIVER_MS, props.TIMER_DELAY_MS, props.TIMER_DELAY_SEC})
_A_TIME: Final = re.compile(rb"\x02(?:%b)\x01[^\x02]" % "|".join(sorted(_NAMES)).encode())
"""Pattern of stored properties that name a time of delivery. A property without a value names no time."""
_HOUR_MS: Final = 3_600_000


class TimerPlugin:
    """The plugin that delivers messages at the time they name. ``delay.timer_enable: false`` switches it off."""

    plugin_name = "timer"

    @hookimpl
    def flintmq_system_topics(self, register: RegisterSystemTopic) -> None:
        register(SystemTopic(TIMER_TOPIC, is_listed=False, holds_messages=True, keeps_queues=True))

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("timer", lambda context: TimerService(context.api))

    @hookimpl
    def flintmq_intake_steps(self, register: RegisterIntakeStep) -> None:
        register("timer", lambda context: timer_step(context.api))


class TimerStep:
    """Redirects messages that name their time of delivery to the timer topic. Used only on the event loop's thread.

    The class implements :class:`flintmq.core.kernel.ports.IntakeStep`, so the broker calls it before it stores a message.

    Args:
        redirect: redirects a message to the timer topic if the message names a future time. It is None with
            ``delay.timer_enable: false``. Messages that name a time are then stored in their own topic at once, like in
            RocketMQ 4.9.
        config: the settings in force.
        delivers: returns whether this broker delivers timers. If this broker delivers no timers, messages that name a time are
            stored in their topic at once.
    """

    topic_prefixes: tuple[str, ...] = ()

    def __init__(
        self,
        redirect: TimerRedirect | None,
        config: Callable[[], BrokerConfig],
        delivers: Callable[[], bool] = lambda: True,
    ) -> None:
        self._wanted = redirect
        self._config = config
        self._delivers = delivers
        self.property_names = _NAMES if redirect is not None else frozenset[str]()

    @property
    def _redirect(self) -> TimerRedirect | None:
        return self._wanted if self._delivers() else None

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Redirect a message that names a future time, unless it already waits for the end of its transaction.

        Raises:
            RefusedError: the time is not acceptable, too many messages are due at that time, or the message could never be
                delivered.
        """
        real_topic, redirect = message.topic, self._redirect
        if redirect is None or not redirect(message):
            return False
        check_deliverable(message, real_topic, self._config().store.commit_log_file_bytes)
        return True

    def would_take(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message names a future time. Raises ``RefusedError`` for a time that can never be kept."""
        redirect = self._redirect
        return redirect is not None and redirect.wanted_ms(properties) is not None

    def check_batch(self, shared: Mapping[str, str], batch: MessageBatch) -> None:
        """Raise ``RefusedError`` if a message of a batch names a time, because a batch is stored as a whole, at once."""
        if not batch.may_wait or self._redirect is None:
            return
        if _A_TIME.search(b"\x02" + b"\x02".join(batch.stored_properties)):
            body_max_bytes = self._config().store.max_message_bytes
            raise illegal_message(
                "batch.delay", "a message with a time of delivery, which a batch may not contain", body_max_bytes
            )


def timer_step(api: BrokerApi) -> TimerStep:
    """Return the intake step of a broker, which the broker calls before it stores a message. The step redirects messages that
    name a time to the timer topic. It refuses a message if too many other messages are due in the same minute."""
    service = api.part(TimerService)
    redirect = TimerRedirect(
        api.clock,
        lambda: longest_delay(api.settings.current),
        lambda due_ms: service.wheel.count_at(due_ms) < api.settings.current.delay.timer_minute_max,
    )
    return TimerStep(
        redirect if api.settings.current.delay.timer_enable else None,
        lambda: api.settings.current,
        lambda: service.takes_messages,
    )


def longest_delay(config: BrokerConfig) -> tuple[int, str]:
    """Return the longest accepted delay in ms, and the configuration key that sets this delay.

    A message is refused if the log would delete it before it is due.
    """
    kept_ms = config.store.file_reserved_hours * _HOUR_MS
    wanted_ms = config.delay.timer_max_delay_ms
    if kept_ms < wanted_ms:
        return kept_ms, "store.file_reserved_hours (fileReservedTime)"
    return wanted_ms, "delay.timer_max_delay_ms (timerMaxDelaySec)"


class TimerService:
    """The service ``timer`` (:class:`flintmq.core.kernel.ports.Service`). Used only on the event loop's thread.

    A master delivers timers: messages that name their time of delivery. A slave saves its master's positions of delivered
    timers, and delivers from these positions after it becomes the master. With ``delay.timer_enable: false`` the service
    neither delivers nor saves positions.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._is_on = api.settings.current.delay.timer_enable
        folder = Path(api.folder.path) / "flint" / "timer"
        store = waiting_store(api)
        self.positions = TimerPositions(store, JsonFile(folder / "position.json", api.folder.disk))
        """The file of the timer positions: the broker's own positions, or on a slave its master's positions."""
        self.wheel = TimerWheel(folder, api.folder.disk)
        self.timers = TimerMessageService(store, self.wheel, self.positions)
        self._seen_offset_bytes = -1
        """Visible end of the log, in bytes, at the last run of the timer service; -1 if the last run left timers that must be
        read or delivered at once."""

    @property
    def takes_messages(self) -> bool:
        """Whether this broker keeps messages that name a time until they are due, and then delivers the messages."""
        role = self._api.role
        return self._is_on and role.takes_writes and role.broker_id == MASTER_ID

    def start(self) -> None:
        """Read the positions of the timers that were delivered earlier, and begin to deliver timers. Raises ``StoreError``."""
        api = self._api
        if not self._is_on:
            return
        self.positions.load()
        api.offsets.readers.add(TIMER_TOPIC, self._low_queue_offset)
        api.role.run_while(lambda: self.takes_messages, self._begin_delivery)
        api.work.every(api.settings.current.delay.flush_interval_ms / 1000, self.persist, "timer positions")

    def _begin_delivery(self) -> Callable[[], None]:
        """Begin to deliver timers after the positions in :attr:`positions`, which say which timers were delivered earlier.
        Raises ``StoreError``.

        Returns:
            A function that ends the delivery.
        """
        self._seen_offset_bytes = -1
        self.timers.resume()
        return partial(self._end_delivery, self._api.work.pace(0.0, self._run, "timers", self._rest_s))

    def _end_delivery(self, timer: Scheduled) -> None:
        timer.cancel()
        self.positions.known = self.timers.positions()

    def _low_queue_offset(self, _queue_id: int) -> int:
        if self.takes_messages:
            return self.timers.low_queue_offset()
        return int(self.positions.known.get("lowQueueOffset", 0))

    def stop(self) -> None:
        """Do nothing, because the broker has ended the periodic work and :meth:`persist` writes the positions."""

    def _run(self) -> float:
        clock = self._api.clock
        visible_bytes, now_ms = self._api.log.marks.dispatched, clock.now_ms()
        self._seen_offset_bytes = -1
        next_ms = self.timers.run(now_ms)
        if next_ms > now_ms:
            self._seen_offset_bytes = visible_bytes
        self._api.log.dispatch()
        return max(0.0, (next_ms - clock.now_ms()) / 1000)

    def _rest_s(self) -> float:
        """Return the seconds until the next timer message is due. Return 0 if timers still have to be read or delivered at
        once, or if records have become visible since this service last read the timer topic."""
        if self.timers.is_restoring or self._seen_offset_bytes != self._api.log.marks.dispatched:
            return 0.0
        due_ms = self.wheel.next_ms()
        return math.inf if due_ms is None else (due_ms - self._api.clock.now_ms()) / 1000

    def persist(self) -> None:
        """Write the positions of delivered timers; on a slave, the positions that its master reported. Raises
        ``StoreError``."""
        if self.takes_messages:
            self.timers.persist()
        elif self._is_on:
            self.positions.persist(self.positions.known)

    def runtime_info(self) -> Mapping[str, str]:
        """Return figures about timer messages for GET_BROKER_RUNTIME_INFO (request 28), with the keys of RocketMQ 5.x.

        The value of ``timerOffsetBehind`` is the number of timer messages that the broker must still read from their queue. The
        value of ``timerCongestNum`` is the number that the broker must still deliver. A broker that accepts no timer messages
        returns an empty dict.
        """
        return self.timers.runtime_info() if self.takes_messages else {}

    def positions_for_slaves(self) -> Mapping[str, object]:
        """Return the positions of delivered timers; an empty dict before the first message that named a time."""
        positions = self.timers.positions() if self.takes_messages else {}
        return {TIMER_POSITIONS: positions} if positions.get("readQueueOffset") else {}

    def follow(self, positions: Mapping[str, object]) -> None:
        """Replace a slave's positions of delivered timers with the positions that its master reported, and write them to the
        file. Raises ``StoreError``."""
        told = positions.get(TIMER_POSITIONS)
        if self._is_on and not self.takes_messages and isinstance(told, dict):
            self.positions.known = told
            self.positions.persist(told)

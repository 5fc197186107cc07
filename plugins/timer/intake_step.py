"""Hands messages that name their time of delivery to the timer topic before they are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker.deliverable import check_deliverable, illegal_message
from flintmq.core.kernel.ports import Sent
from flintmq.core.record import properties as props
from flintmq.core.record.batch import MessageBatch
from flintmq.core.record.properties import may_hold, stored_values
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.plugins.timer.service import TimerService
from flintmq.plugins.timer.timer_message import TimerRedirect

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

_NAMES: Final = frozenset({props.TIMER_DELIVER_MS, props.TIMER_DELAY_MS, props.TIMER_DELAY_SEC})
_MARK: Final = b"TIMER_D"
"""In the stored properties of every message that may name a time; what lacks it needs no closer look."""
_HOUR_MS: Final = 3_600_000


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
        if self._redirect is None or not may_hold(batch.stored_properties, _MARK):
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

"""Redirects messages that name their time of delivery, in RocketMQ 5.x's properties TIMER_DELIVER_MS, TIMER_DELAY_MS and
TIMER_DELAY_SEC.

Such a message waits in queue 0 of the topic ``rmq_sys_wheel_timer``. Properties name its real topic and its due time
(TIMER_OUT_MS). :class:`flintmq.plugins.timer.timer_service.TimerMessageService` delivers it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from flintmq.config.rocketmq.system_topics import FORBIDDEN_TOPICS, TIMER_TOPIC
from flintmq.core.broker.redirected_message import redirect
from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.record import properties as props
from flintmq.core.record.java_number import parse_long
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NOT, transaction_type
from flintmq.core.response_code import ResponseCode

_LARGEST: Final = 2**62
_WHOLE: Final = (TRANSACTION_NOT, TRANSACTION_COMMIT)


def due_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """Return the time of delivery that a message names, in ms since 1970; None if it names no time.

    A message can have several of the three properties. Like in RocketMQ 5.x, TIMER_DELAY_SEC has precedence over
    TIMER_DELAY_MS, and TIMER_DELAY_MS has precedence over TIMER_DELIVER_MS.

    Raises:
        ValueError: the time is not a number.
    """
    for name, unit_ms, start_ms in (
        (props.TIMER_DELAY_SEC, 1_000, now_ms),
        (props.TIMER_DELAY_MS, 1, now_ms),
        (props.TIMER_DELIVER_MS, 1, 0),
    ):
        text = properties.get(name)
        if text is not None:
            try:
                wanted = parse_long(text)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            return max(-_LARGEST, min(start_ms + wanted * unit_ms, _LARGEST))
    return None


class TimerRedirect:
    """Changes the topic of messages that name a time to the timer topic. Used only on the event loop's thread.

    Args:
        clock: the clock whose wall-clock time is compared with the time of delivery.
        longest_ms: returns the longest delay that is accepted now, in ms, and the configuration key that sets it.
        has_room: returns whether the broker accepts another message that is due at a given time, in ms since 1970.
    """

    def __init__(
        self, clock: Clock, longest_ms: Callable[[], tuple[int, str]], has_room: Callable[[int], bool]
    ) -> None:
        self._clock = clock
        self._longest_ms = longest_ms
        self._has_room = has_room

    def wanted_ms(self, properties: Mapping[str, str]) -> int | None:
        """Return when a message is due, in ms since 1970; None if the message names no time, or a time that has passed.

        Raises:
            RefusedError: MESSAGE_ILLEGAL for a time that cannot be read or lies too far ahead.
        """
        now_ms = self._clock.now_ms()
        try:
            wanted_ms = due_ms(properties, now_ms)
        except ValueError as error:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error), reason="timer.malformed") from error
        if wanted_ms is None or wanted_ms <= now_ms:
            return None
        longest_ms, key = self._longest_ms()
        if wanted_ms - now_ms > longest_ms:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"timer message illegal, the delay time should not be bigger than the max delay {longest_ms} ms",
                reason="timer.too_far",
                measured=f"{wanted_ms - now_ms} ms",
                key=key,
            )
        return wanted_ms

    def __call__(self, message: MessageExtBrokerInner) -> bool:
        """Redirect a message if it names a future time; return whether it was redirected.

        A message that waits for the end of its transaction is not redirected. A delay level has precedence over a time.

        Raises:
            RefusedError: MESSAGE_ILLEGAL for a time that cannot be read or lies too far ahead, SYSTEM_BUSY if too many messages
                are due at that time already.
        """
        if message.topic in FORBIDDEN_TOPICS or transaction_type(message.sys_flag) not in _WHOLE:
            return False
        wanted_ms = self.wanted_ms(message.properties)
        if wanted_ms is None:
            return False
        if not self._has_room(wanted_ms):
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                "timer message is under flow control: too many messages are due at that time",
                reason="timer.crowded",
                measured=f"at {wanted_ms} ms",
                key="delay.timer_minute_max",
            )
        redirect(message, TIMER_TOPIC, 0, {props.TIMER_OUT_MS: str(wanted_ms)})
        return True

"""Messages that name their time of delivery, to the millisecond (the properties of 5.x: TIMER_DELIVER_MS, TIMER_DELAY_MS,
TIMER_DELAY_SEC).

Such a message waits in the topic ``rmq_sys_wheel_timer``, queue 0, under its real topic's name as a property, with
TIMER_OUT_MS for when it is due. :class:`flintmq.plugins.timer.timer_service.TimerMessageService` delivers it.
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
    """Return when a message wants to be delivered, in ms since 1970; None when it names no time.

    As in 5.x: the delay in seconds counts before that in ms, and that before the time.

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
    """Sends messages that name a time to the timer topic instead. Loop thread.

    Args:
        clock: its wall-clock side decides what lies in the future.
        longest_ms: the longest delay there may be now, and the configuration key that says so.
        has_room: whether another message may be due at a time (in ms).
    """

    def __init__(
        self, clock: Clock, longest_ms: Callable[[], tuple[int, str]], has_room: Callable[[int], bool]
    ) -> None:
        self._clock = clock
        self._longest_ms = longest_ms
        self._has_room = has_room

    def wanted_ms(self, properties: Mapping[str, str]) -> int | None:
        """Return when a message is due, in ms since 1970; None when it names no time, or one that has come.

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
        """Redirect a message; return whether it did.

        It leaves alone one whose time has come, and one that waits for something else already: the end of its transaction,
        or a delay level, which counts before a time.

        Raises:
            RefusedError: MESSAGE_ILLEGAL as for :meth:`wanted_ms`, SYSTEM_BUSY when too many messages are due then already.
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

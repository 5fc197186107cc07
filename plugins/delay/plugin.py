"""The plugin ``delay``: registers a service, an intake step and a request processor for delay levels.

The intake step moves a message with a delay level to the schedule topic before the message is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.broker.api import BrokerApi
from flintmq.core.broker.redirected_message import check_deliverable, illegal_message, redirect, waiting_store
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.hookspecs import (
    RegisterIntakeStep,
    RegisterProcessor,
    RegisterService,
    RegisterSystemTopic,
    hookimpl,
)
from flintmq.core.kernel.ports import Sent, SupportsFollowing, SystemTopic
from flintmq.core.kernel.ports.access import ADMIN
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, declared_by, handles
from flintmq.core.record import properties as props
from flintmq.core.record.batch import MessageBatch
from flintmq.core.record.java_number import number_or, parse_int
from flintmq.core.record.properties import stored_values
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NOT, transaction_type
from flintmq.core.response_code import ResponseCode
from flintmq.dispatchers.consume_queue.delay_times import DelayLevels, delay_tags_codes
from flintmq.plugins.delay.schedule import IDLE_INTERVAL_MS, ScheduleMessageService
from flintmq.remoting.processors.answers import wants_standard_json, with_json
from flintmq.remoting.wire.codes import RequestCode

QUEUE_NUMS = 18
"""Number of queues of the schedule topic. RocketMQ has the same number, one queue for each of its 18 delay levels."""
_NAMES: Final = frozenset({props.DELAY})
_MARK: Final = b"DELAY\x01"
_FIRST_S = 1.0


class DelayPlugin:
    """The plugin that delivers messages after the delay of the level that they name."""

    plugin_name = "delay"

    @hookimpl
    def flintmq_system_topics(self, register: RegisterSystemTopic) -> None:
        register(
            SystemTopic(
                SCHEDULE_TOPIC,
                queue_nums=QUEUE_NUMS,
                holds_messages=True,
                keeps_queues=True,
                counts_queues=True,
                tags_codes=delay_tags_codes,
            )
        )

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("delay", lambda context: DelayService(context.api))

    @hookimpl
    def flintmq_intake_steps(self, register: RegisterIntakeStep) -> None:
        register("delay", lambda context: DelayStep(context.api))

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register("delay_offset", declared_by(DelayOffsetProcessor), lambda context: DelayOffsetProcessor(context.api))


class DelayStep:
    """Redirects messages with the property ``DELAY`` (:class:`flintmq.core.kernel.ports.IntakeStep`). Used only on the event
    loop's thread.

    Args:
        api: the broker, for its settings.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._levels = DelayLevels(api.settings.current.delay.levels)
        self.property_names = _NAMES
        self.topic_prefixes: tuple[str, ...] = ()

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Redirect a message that asks for a level of at least 1.

        Raises:
            RefusedError: the level is not a number, or the message could never be delivered.
        """
        check_level(message.properties)
        real_topic = message.topic
        if not redirect_to_schedule(message, self._levels):
            return False
        check_deliverable(message, real_topic, self._api.settings.current.store.commit_log_file_bytes)
        return True

    def would_take(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message asks for a delay. Raises ``RefusedError`` if the level is not a number."""
        check_level(properties)
        return wanted_level(properties, self._levels) > 0

    def check_batch(self, shared: Mapping[str, str], batch: MessageBatch) -> None:
        """Raise ``RefusedError`` if a message of a batch asks for a delay, because a batch is stored as a whole, at once."""
        if not batch.may_wait:
            return
        # The name DELAY may also occur in another property's value, so the property itself is read.
        marked = [one for one in batch.stored_properties if _MARK in one]
        (texts,) = stored_values(marked, [props.DELAY.encode()])
        if any(self.would_take({props.DELAY: text}) for text in set(texts) if text):
            raise illegal_message(
                "batch.delay",
                "a message with a delay level, which a batch may not contain",
                self._api.settings.current.store.max_message_bytes,
            )


def wanted_level(properties: Mapping[str, str], levels: DelayLevels) -> int:
    """Return the delay level that a message asks for, at most the highest; 0 if it names none, or not a number."""
    return levels.clamp(number_or(properties.get(props.DELAY), 0))


def check_level(properties: Mapping[str, str]) -> None:
    """Refuse a message whose delay level is not a number, like RocketMQ. It would be delivered at once otherwise.

    Raises:
        RefusedError: SYSTEM_ERROR.
    """
    try:
        parse_int(properties.get(props.DELAY, "0"))
    except ValueError as error:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the message's delay level is malformed: {error}",
            reason="delay.malformed",
            key="the property DELAY",
        ) from error


def redirect_to_schedule(message: MessageExtBrokerInner, levels: DelayLevels) -> bool:
    """Change the topic of a message that asks for a delay to the schedule topic; return whether it was changed.

    REAL_TOPIC and REAL_QID are added to its properties, and DELAY is limited to the highest level. Messages of a transaction
    that is not committed are not changed.
    """
    if transaction_type(message.sys_flag) not in (TRANSACTION_NOT, TRANSACTION_COMMIT):
        return False
    level = wanted_level(message.properties, levels)
    if not level:
        return False
    redirect(message, SCHEDULE_TOPIC, level - 1, {props.DELAY: str(level)})
    return True


class DelayOffsetProcessor(DeclaredProcessor):
    """Answers slaves that ask up to which positions their master has delivered delayed messages. Used only on the event loop's
    thread.

    After a slave becomes the master, it delivers messages from these positions.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api

    @handles(RequestCode.GET_ALL_DELAY_OFFSET, needs=ADMIN)
    def get_all_delay_offset(self, request: Request) -> Response:
        """Return the queue offset of the next delivery of each delay level, and the positions of delivered timer messages if
        there are any."""
        answer: dict[str, object] = {}
        for service in self._api.parts(SupportsFollowing):  # type: ignore[type-abstract]
            answer |= service.positions_for_slaves()
        return with_json(answer, standard=wants_standard_json(request))


class DelayService:
    """The service ``delay`` (:class:`flintmq.core.kernel.ports.Service`). Used only on the event loop's thread.

    A master delivers. A slave delivers nothing: it saves its master's positions, and delivers from them after it becomes the
    master. With ``delay.enable: false`` nothing is delivered.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self.schedule = ScheduleMessageService(
            waiting_store(api),
            DelayLevels(api.settings.current.delay.levels),
            api.folder.json("delayOffset.json"),
        )
        self._seen_offset_bytes = -1
        """Physical offset up to which the log was visible at the last run, in bytes, if that run delivered all due messages;
        otherwise -1."""

    def start(self) -> None:
        """Read the levels' offsets, and begin to deliver. Raises ``StoreFormatError``."""
        api, config = self._api, self._api.settings.current
        self.schedule.load()
        api.offsets.readers.add(SCHEDULE_TOPIC, lambda queue_id: self.schedule.offset(queue_id + 1))
        api.work.every(config.delay.flush_interval_ms / 1000, self.schedule.persist, "delay offsets")
        if config.delay.enable:
            api.role.run_while(lambda: api.role.takes_writes, self._begin_delivery)

    def _begin_delivery(self) -> Callable[[], None]:
        """Begin to deliver; return a function that ends the delivery."""
        self._seen_offset_bytes = -1
        return self._api.work.pace(_FIRST_S, self._deliver, "delayed messages", self._rest_s).cancel

    def stop(self) -> None:
        """Do nothing: the broker has ended the periodic work, and :meth:`persist` writes the positions."""

    def _deliver(self) -> float:
        clock = self._api.clock
        visible_bytes, now_ms = self._api.log.marks.dispatched, clock.now_ms()
        self._seen_offset_bytes = -1
        next_ms = self.schedule.run_due(now_ms)
        due_ms = self.schedule.next_due_ms()
        idle_ms = now_ms + IDLE_INTERVAL_MS
        is_idle = next_ms == (idle_ms if due_ms is None else min(idle_ms, due_ms))
        if is_idle:
            self._seen_offset_bytes = visible_bytes
        self._api.log.dispatch()
        return max(0.0, min(1.0, (next_ms - clock.now_ms()) / 1000))

    def _rest_s(self) -> float:
        """Return the seconds until the next delayed message is due. Return 0 if the last run left due messages, or if records
        have become visible since."""
        if self._seen_offset_bytes != self._api.log.marks.dispatched:
            return 0.0
        due_ms = self.schedule.next_due_ms()
        return math.inf if due_ms is None else (due_ms - self._api.clock.now_ms()) / 1000

    def persist(self) -> None:
        """Write the offset up to which each level is delivered. Raises ``StoreError``."""
        self.schedule.persist()

    def runtime_info(self) -> Mapping[str, str]:
        """Return the offset up to which each level is delivered, and the end of its queue."""
        return self.schedule.runtime_info()

    def positions_for_slaves(self) -> Mapping[str, object]:
        """Return the table of offsets, in the form of RocketMQ's ``DelayOffsetSerializeWrapper``."""
        return self.schedule.to_wire()

    def follow(self, positions: Mapping[str, object]) -> None:
        """Replace a slave's table of offsets by its master's. Raises ``JsonTypeError``, ``StoreError``."""
        self.schedule.replace(positions)
        self.schedule.persist()

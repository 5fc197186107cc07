"""Redirects messages to a system topic, in which they wait, and delivers due messages to their real topic.

A waiting message has its real topic and queue as properties (``REAL_TOPIC``, ``REAL_QID``). The feature that redirected it,
such as delay levels or timers, delivers the message by appending the message again.

A topic may be deleted while messages wait for it. Each such message is dropped at its due time, counted and logged. RocketMQ
delivers such a message. That delivery creates a queue that no consumer can read, and that remains after the topic is deleted.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from flintmq.config.rocketmq.system_topics import HOLDING_TOPICS
from flintmq.core.broker.log_view import LogView
from flintmq.core.broker.sink import Incoming, Stored
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.broker.tables import Topics
from flintmq.core.broker.topic_name import (
    DLQ_PREFIX,
    DLQ_QUEUE_NUMS,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    check_topic_name,
    dlq_topic,
)
from flintmq.core.errors import RefusedError
from flintmq.core.limits import PROPERTIES_MAX_BYTES
from flintmq.core.log_events import client_log
from flintmq.core.record import properties as props
from flintmq.core.record.java_number import number_or
from flintmq.core.record.queue_unit import is_address
from flintmq.core.record.record import BLANK_MIN_BYTES, MessageExtBrokerInner, Record, record_size
from flintmq.core.record.sys_flag import without_transaction
from flintmq.core.response_code import ResponseCode

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

# Operators filter log lines by the logger's name, so the logger keeps a name that differs from the module's name.
_log = client_log("flintmq.core.broker.waiting")

UNDELIVERED_TOPIC = dlq_topic(f"{SYSTEM_GROUP_PREFIX}DELIVERY")
"""Topic in which messages that the broker keeps for later delivery, such as delayed messages, are stored unchanged if they
cannot be delivered. The topic is created with the first such message."""


class PutOutcome(enum.Enum):
    """The result of the delivery of a waiting message."""

    STORED = "stored"
    """Outcome of a delivery: the message was appended."""
    LATER = "later"
    """Outcome of a delivery: the store cannot take the message now, so the caller delivers the message again after a pause."""
    ILLEGAL = "illegal"
    """Outcome of a delivery: the message can never be stored, so the caller does not deliver the message again."""
    DROPPED = "dropped"
    """Outcome of a delivery: the message's topic was deleted, so the message was counted and logged, but not stored."""


class RedirectedMessageStore:
    """The store of a broker, for features that deliver waiting messages. Used only on the event loop's thread.

    Args:
        log: the log with the waiting messages.
        counts: counts delivered messages.
        append: appends messages without dispatch.
        topics: gives the queues that topics have now, and creates the topic of dead letters; None to deliver messages without a
            check that their queues exist.
        has_topic: returns whether messages may be delivered to a topic, see :func:`has_real_topic`; None allows all topics.
    """

    def __init__(
        self,
        log: LogView,
        counts: BrokerStats,
        append: Callable[[Sequence[Incoming]], Stored],
        topics: Topics | None = None,
        has_topic: Callable[[str], bool] | None = None,
    ) -> None:
        self._has_topic = has_topic
        self._log = log
        self._stats = counts
        self._put = append
        self._topics = topics

    @property
    def wrote_offset_bytes(self) -> int:
        return self._log.marks.wrote

    @property
    def flushed_offset_bytes(self) -> int:
        return self._log.marks.flushed

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        return self._log.reader.min_queue_offset(topic, queue_id)

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return self._log.reader.max_queue_offset(topic, queue_id)

    def queue_units(
        self, topic: str, queue_id: int, queue_offset: int, max_units: int
    ) -> Iterable[tuple[int, int, int]]:
        """Return a queue's units from a queue offset on, as tuples of physical offset, size in bytes and delivery time.

        In queues of waiting messages, the tags code of a unit is the message's delivery time.
        """
        queue = self._log.queues.get((topic, queue_id))
        if queue is None:
            return ()
        return self._with_times(queue.units(queue_offset, max_units))

    def _with_times(self, units: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
        """Yield the given queue units.

        If a unit's delivery time was stored in an ext file of the consume queue and the file is lost, the delivery time is
        computed from the record.
        """
        for physical, size, due_ms in units:
            if is_address(due_ms):
                for request in self._log.requests(physical, physical + size):
                    due_ms = request.tags_code
            yield physical, size, due_ms

    def look_message(self, commit_log_offset_bytes: int, size_bytes: int) -> Record | None:
        """Return the record at a physical offset; None if it was deleted or cannot be read."""
        return self._log.reader.message_at(commit_log_offset_bytes, size_bytes)

    def put_messages(
        self, messages: Sequence[MessageExtBrokerInner], topic: str, queue_id: int
    ) -> Sequence[PutOutcome]:
        """Append waiting messages that are due, in order and without waiting for durability. Return one outcome for each
        message.

        If the store cannot take a message now, the outcomes of this message and of all later messages are LATER: they are
        neither appended nor dropped, and the caller delivers them again after a pause. If the topic of a message no longer has
        the message's queue, the message goes to another queue of the topic. If the topic has no queue, the outcome is ILLEGAL:
        the message can never be stored. If the topic was deleted, the outcome is DROPPED: the message is counted and logged,
        but not stored.

        Args:
            messages: the messages.
            topic: the topic in which the messages waited, for the statistics.
            queue_id: the queue in which the messages waited.
        """
        if self._topics is not None and messages[0].topic == UNDELIVERED_TOPIC:
            self._topics.create_in_send_back(UNDELIVERED_TOPIC, DLQ_QUEUE_NUMS)
        has_topic = self._has_topic
        if has_topic is None:
            return self._append(messages, topic, queue_id)
        there = {name: has_topic(name) for name in {message.topic for message in messages}}
        if all(there.values()):
            return self._append(messages, topic, queue_id)
        kept = [message for message in messages if there[message.topic]]
        appended = iter(self._append(kept, topic, queue_id) if kept else ())
        outcomes: list[PutOutcome] = []
        for message in messages:
            if outcomes and outcomes[-1] is PutOutcome.LATER:
                outcomes.append(PutOutcome.LATER)
            elif there[message.topic]:
                outcomes.append(next(appended))
            else:
                outcomes.append(PutOutcome.DROPPED)
                drop(self._stats, message)
        return outcomes

    def _append(self, messages: Sequence[MessageExtBrokerInner], topic: str, queue_id: int) -> Sequence[PutOutcome]:
        placed = [self._is_placed(message) for message in messages]
        try:
            stored = self._put([message for message, has_queue in zip(messages, placed, strict=True) if has_queue])
        except RefusedError:
            return [PutOutcome.LATER] * len(messages)
        self._stats.delivered(topic, queue_id, stored.units)
        results = iter(stored.results)
        return [_outcome(next(results)) if has_queue else PutOutcome.ILLEGAL for has_queue in placed]

    def _is_placed(self, message: MessageExtBrokerInner) -> bool:
        """Set the queue of a message to an existing queue of its topic; return whether the topic has a queue."""
        try:
            if self._topics is not None:
                message.queue_id = self._topics.queue_inside(message.topic, message.queue_id)
        except RefusedError:
            return False
        return True


def waiting_store(api: BrokerApi) -> RedirectedMessageStore:
    """Return an object with which a feature of the broker delivers messages that wait in the log, such as delayed messages. The
    object delivers messages only to topics that exist."""
    append = partial(api.put, dispatch=False)
    return RedirectedMessageStore(api.log, api.figures.counts, append, api.topics, partial(has_real_topic, api))


def has_real_topic(api: BrokerApi, topic: str) -> bool:
    """Return whether waiting messages may be delivered to a topic, which is true if the topic exists.

    The retry topic and the topic of dead letters are created if they are missing and their group exists.
    """
    if topic in api.topics or topic == UNDELIVERED_TOPIC:
        return True
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        group = api.groups.find(topic.removeprefix(prefix)) if topic.startswith(prefix) else None
        if group is not None:
            queue_nums = group.retry_queue_nums if prefix == RETRY_PREFIX else DLQ_QUEUE_NUMS
            api.topics.create_in_send_back(topic, max(1, queue_nums))
            return True
    return False


def drop(stats: BrokerStats, message: MessageExtBrokerInner) -> None:
    """Count and log a message that cannot be delivered because its topic was deleted while it waited."""
    stats.undelivered()
    named = message.properties.get(props.UNIQ_KEY) or "without an id"
    _log.warning(
        "delivery.no_topic",
        "message %(message)s for %(topic)s is dropped: the topic was deleted while it waited [delivery.no_topic]",
        message=named,
        topic=message.topic,
    )


def _outcome(result: object) -> PutOutcome:
    if isinstance(result, RefusedError) and result.code == ResponseCode.MESSAGE_ILLEGAL:
        return PutOutcome.ILLEGAL
    return PutOutcome.LATER if isinstance(result, Exception) else PutOutcome.STORED


def moved(
    record: Record, topic: str, queue_id: int, properties: Mapping[str, str], properties_bytes: bytes
) -> MessageExtBrokerInner:
    """Return a message that has the body, the flags and the sender of a record, but another topic.

    An append of the message does not wait for durability.
    """
    return MessageExtBrokerInner(
        topic=topic,
        queue_id=queue_id,
        body=record.body,
        properties=properties,
        properties_bytes=properties_bytes,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_host=record.store_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        wait=False,
    )


def redirect(message: MessageExtBrokerInner, topic: str, queue_id: int, more: Mapping[str, str] | None = None) -> None:
    """Change a message so that it will wait in another topic.

    The message's own topic and queue become the properties REAL_TOPIC and REAL_QID.

    Args:
        message: the message to change.
        topic: the topic in which the message shall wait.
        queue_id: the queue in which the message shall wait.
        more: further properties to add.
    """
    message.properties = {
        **message.properties,
        **(more or {}),
        props.REAL_TOPIC: message.topic,
        props.REAL_QUEUE_ID: str(message.queue_id),
    }
    message.properties_bytes = props.properties_to_string(message.properties).encode("utf-8", "replace")
    message.topic, message.queue_id = topic, queue_id


def delivery_of(record: Record) -> MessageExtBrokerInner | None:
    """Return the message to append when a waiting record is due.

    The result is None if the record must not be delivered, because it has no real topic or its real topic is itself a topic in
    which messages wait.
    """
    properties = record.properties
    topic = properties.get(props.REAL_TOPIC)
    queue_id = number_or(properties.get(props.REAL_QUEUE_ID), -1)
    if not topic or topic in HOLDING_TOPICS or queue_id < 0:
        return None
    properties.pop(props.DELAY, None)
    return moved(record, topic, queue_id, properties, record.properties_bytes)


def give_up(store: RedirectedMessageStore, record: Record | None, commit_log_offset_bytes: int, why: str) -> bool:
    """Store a waiting message that can never be delivered as a dead letter, and log this; return whether this succeeded.

    A broker checks waiting messages before it acknowledges them (:func:`check_deliverable`). An undeliverable message was
    stored by another broker or an earlier FlintMQ, or its record was lost. The line of the log ends in one of these ids:

    * ``[delivery.dead_letter]``: the unchanged message is in ``%DLQ%CID_RMQ_SYS_DELIVERY``, with its target in REAL_TOPIC.
    * ``[delivery.kept]``: the message cannot be stored as a dead letter. Its record stays in the log until it expires.
    * ``[delivery.gone]``: the record was deleted or cannot be read.

    Args:
        store: the store, which appends the dead letter.
        record: the waiting message; None if its record is lost.
        commit_log_offset_bytes: physical offset of the record.
        why: the reason, for the log.

    Returns:
        False if the store accepts no messages now. Nothing is logged in this case, and the caller shall call again later.
    """
    if record is None:
        _log.error(
            "delivery.gone",
            "the message that waited at position %(log_position)d is lost: %(reason)s [delivery.gone]",
            log_position=commit_log_offset_bytes,
            reason=why,
        )
        return True
    outcome = store.put_messages([_dead_letter_of(record)], record.topic, record.queue_id)[0]
    if outcome is PutOutcome.LATER:
        return False
    properties = record.properties
    named = properties.get(props.UNIQ_KEY) or f"at position {commit_log_offset_bytes}"
    meant_for = properties.get(props.REAL_TOPIC, "")
    if outcome is PutOutcome.STORED:
        where = UNDELIVERED_TOPIC
        _log.error(
            "delivery.dead_letter",
            "message %(message)s for %(meant_for)s is a dead letter in %(topic)s: %(reason)s [delivery.dead_letter]",
            message=named,
            meant_for=meant_for,
            topic=where,
            reason=why,
        )
    else:
        _log.error(
            "delivery.kept",
            "message %(message)s for %(meant_for)s is not delivered: %(reason)s; it stays in the log at position "
            "%(log_position)d until that expires [delivery.kept]",
            message=named,
            meant_for=meant_for,
            reason=why,
            log_position=commit_log_offset_bytes,
        )
    return True


def _dead_letter_of(record: Record) -> MessageExtBrokerInner:
    properties = record.properties
    properties.pop(props.DELAY, None)
    message = moved(record, UNDELIVERED_TOPIC, 0, properties, record.properties_bytes)
    message.sys_flag = without_transaction(record.sys_flag)
    return message


def check_deliverable(
    message: MessageExtBrokerInner, real_topic: str, log_file_bytes: int, *, spare_bytes: int = 0
) -> None:
    """Raise an error if a message can wait, but could never be stored in its real topic.

    Args:
        message: the message in the form in which it will wait.
        real_topic: the topic to which the message is delivered.
        log_file_bytes: size of a commit log file, which a record must fit.
        spare_bytes: bytes by which the message's properties may grow while the message waits.

    Raises:
        RefusedError: SYSTEM_ERROR if the topic's name is not allowed; MESSAGE_ILLEGAL if the properties or the record are too
            long.
    """
    check_topic_name(real_topic)
    properties_bytes = len(message.properties_bytes)
    if properties_bytes > PROPERTIES_MAX_BYTES - spare_bytes:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg properties length limit {PROPERTIES_MAX_BYTES}",
            reason="message.properties_too_long",
            measured=f"{properties_bytes} bytes of properties"
            + (f" and {spare_bytes} to spare" if spare_bytes else ""),
        )
    waiting_bytes = record_size(message)
    delivered_bytes = waiting_bytes - len(message.topic) + len(real_topic)
    needed_bytes = max(waiting_bytes, delivered_bytes) + spare_bytes
    if needed_bytes + BLANK_MIN_BYTES > log_file_bytes:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message does not fit a commit log file",
            reason="message.larger_than_file",
            measured=f"{needed_bytes} bytes",
            key="store.commit_log_file_bytes (mappedFileSizeCommitLog)",
        )


def illegal_message(reason: str, measured: str, body_max_bytes: int, key: str = "") -> RefusedError:
    """Return the error for a message that breaks a limit or a rule, with the remark of RocketMQ.

    Args:
        reason: id of the refusal.
        measured: the value that was found, with its unit.
        body_max_bytes: the longest body that the broker accepts.
        key: the setting with the limit; empty if there is none.
    """
    return RefusedError(
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {body_max_bytes}, "
        f"msg properties length limit {PROPERTIES_MAX_BYTES}",
        reason=reason,
        measured=measured,
        key=key,
    )

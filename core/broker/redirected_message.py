"""Messages that wait in a topic of the broker's own until they may go to the topic they are meant for.

Such a message lies under its real topic's name as a property (``REAL_TOPIC``, ``REAL_QID``). Its delivery is another append, by
the feature that had it wait: delay levels, timers.

A topic may be deleted while messages wait for it. They go with it, as those that it had: each is dropped when it is due,
counted, and told in the log. To deliver it, as RocketMQ does, would make a queue of a topic that nobody can read, and that
stays when all else of the topic is gone.
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

_log = client_log("flintmq.core.broker.waiting")  # the name that people filter by

UNDELIVERED_TOPIC = dlq_topic(f"{SYSTEM_GROUP_PREFIX}DELIVERY")
"""Where a waiting message goes, as it waited, that turns out to be undeliverable; made with the first."""


class PutOutcome(enum.Enum):
    """What became of a message handed to the store."""

    STORED = "stored"
    LATER = "later"
    """Not now: it is put again after a pause."""
    ILLEGAL = "illegal"
    """Never: it is given up."""
    DROPPED = "dropped"
    """Never: its topic was deleted; that is counted and told already."""


class RedirectedMessageStore:
    """The store, as the delivery of waiting messages sees it. Loop thread.

    Args:
        log: where they wait.
        counts: counts what is delivered.
        append: stores what is delivered, and dispatches nothing.
        topics: say which queues there are now, and take the topic of dead letters where it is missing.
        has_topic: says whether a topic may be delivered to, see :func:`has_real_topic`; None lets all be.
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
        """Entries from an offset on: (commit log offset in bytes, size in bytes, tags code)."""
        queue = self._log.queues.get((topic, queue_id))
        if queue is None:
            return ()
        return self._with_times(queue.units(queue_offset, max_units))

    def _with_times(self, units: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
        """Yield the units, with delivery times computed again from the record where they were in an ext file that is lost."""
        for physical, size, due_ms in units:
            if is_address(due_ms):
                for request in self._log.requests(physical, physical + size):
                    due_ms = request.tags_code
            yield physical, size, due_ms

    def look_message(self, commit_log_offset_bytes: int, size_bytes: int) -> Record | None:
        """Return the record at a place of the log; None when there is none any more."""
        return self._log.reader.message_at(commit_log_offset_bytes, size_bytes)

    def put_messages(
        self, messages: Sequence[MessageExtBrokerInner], topic: str, queue_id: int
    ) -> Sequence[PutOutcome]:
        """Append messages in order, one outcome for each; after a LATER nothing is appended or dropped. Does not wait for
        durability.

        What is meant for a queue that its topic has lost goes to one that is left; where none is left, it is ILLEGAL.

        Args:
            topic: where they waited, with ``queue_id``; for the statistics.
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
        """Give a message a queue that its topic has now; return whether there is one."""
        try:
            if self._topics is not None:
                message.queue_id = self._topics.queue_inside(message.topic, message.queue_id)
        except RefusedError:
            return False
        return True


def waiting_store(api: BrokerApi) -> RedirectedMessageStore:
    """Return the store of a broker, for messages that wait in it; they are delivered only to topics that there are."""
    append = partial(api.put, dispatch=False)
    return RedirectedMessageStore(api.log, api.figures.counts, append, api.topics, partial(has_real_topic, api))


def has_real_topic(api: BrokerApi, topic: str) -> bool:
    """Return whether what waited for a topic may be delivered to it: whether the table of topics has it.

    The retry topic and the dead letters of a group that exists are made where they are missing, as with the first message.
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
    """Count a message that cannot be delivered because its topic was deleted while it waited, and tell it."""
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
    """Return a message with a record's body, flags and origin for another place; nobody waits until it is durable."""
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
    """Send a message to a topic where it waits: its properties gain ``more``, and REAL_TOPIC and REAL_QID for its own place."""
    message.properties = {
        **message.properties,
        **(more or {}),
        props.REAL_TOPIC: message.topic,
        props.REAL_QUEUE_ID: str(message.queue_id),
    }
    message.properties_bytes = props.properties_to_string(message.properties).encode("utf-8", "replace")
    message.topic, message.queue_id = topic, queue_id


def delivery_of(record: Record) -> MessageExtBrokerInner | None:
    """Return the message that a waiting record becomes when it is due.

    None for one that must never be delivered: without a real topic, or whose real topic is one where messages wait.
    """
    properties = record.properties
    topic = properties.get(props.REAL_TOPIC)
    queue_id = number_or(properties.get(props.REAL_QUEUE_ID), -1)
    if not topic or topic in HOLDING_TOPICS or queue_id < 0:
        return None
    properties.pop(props.DELAY, None)
    return moved(record, topic, queue_id, properties, record.properties_bytes)


def give_up(store: RedirectedMessageStore, record: Record | None, commit_log_offset_bytes: int, why: str) -> bool:
    """Make a dead letter of a waiting message that can never be delivered, and log one line.

    What is acknowledged is checked before (:mod:`flintmq.core.broker.redirected_message`). What waits all the same was taken by
    another broker or an earlier FlintMQ, or its record was lost. The line ends in an id that stays the same:

    * ``[delivery.dead_letter]``: it lies in ``%DLQ%CID_RMQ_SYS_DELIVERY`` as it waited; REAL_TOPIC says where it was to go;
    * ``[delivery.kept]``: no dead letter can be made of it; its record stays in the log until that expires;
    * ``[delivery.gone]``: the record was deleted, or cannot be read.

    Args:
        store: takes the dead letter.
        record: the message as it waited; None where it is no longer there.
        commit_log_offset_bytes: its place in the log.
        why: it cannot be delivered.

    Returns:
        False when the store takes nothing now: then nothing was logged, and the message is to be given up again later.
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
    """Refuse a message that could be stored where it waits, but never at its real topic.

    Args:
        message: as it will wait.
        real_topic: the topic that it is stored in when it is due.
        log_file_bytes: the size of a commit log file, which takes the largest record.
        spare_bytes: what its properties may still grow by while it waits.

    Raises:
        RefusedError: SYSTEM_ERROR for a name that no topic may have; MESSAGE_ILLEGAL for properties or a record too long.
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
    """Return the refusal of a message that breaks a limit or a rule, in the words of RocketMQ.

    Args:
        reason: the id of the refusal.
        measured: what was found.
        body_max_bytes: the longest body that the broker takes.
        key: the setting that decides; empty for none.
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

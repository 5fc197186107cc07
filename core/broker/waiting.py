"""Messages that wait in a topic of the broker's own until they may go to the topic they are meant for.

Such a message lies under its real topic's name as a property (``REAL_TOPIC``, ``REAL_QID``). Its delivery is another append, by
the feature that had it wait: delay levels, timers.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from flintmq.config.rocketmq.system_topics import HOLDING_TOPICS
from flintmq.core.broker.durable_positions import LogEnds
from flintmq.core.broker.topic_name import SYSTEM_GROUP_PREFIX, dlq_topic
from flintmq.core.client_log import client_log
from flintmq.core.record import properties as props
from flintmq.core.record.record import MessageExtBrokerInner, Record
from flintmq.core.record.sys_flag import without_transaction

_log = client_log(__name__)

UNDELIVERED_TOPIC = dlq_topic(f"{SYSTEM_GROUP_PREFIX}DELIVERY")
"""Where a waiting message goes, as it waited, that turns out to be undeliverable; made with the first."""


class PutOutcome(enum.Enum):
    """What became of a message handed to the store."""

    STORED = "stored"
    LATER = "later"
    """Not now: it is put again after a pause."""
    ILLEGAL = "illegal"
    """Never: it is given up."""


class WaitingStore(LogEnds, Protocol):
    """The store, as far as the delivery of waiting messages needs it. Loop thread."""

    def min_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def max_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def queue_units(
        self, topic: str, queue_id: int, queue_offset: int, max_units: int
    ) -> Iterable[tuple[int, int, int]]:
        """Entries from an offset on: (commit log offset in bytes, size in bytes, tags code)."""
        ...

    def look_message(self, commit_log_offset_bytes: int, size_bytes: int) -> Record | None:
        """The record at a place of the log; None when there is none any more."""
        ...

    def put_messages(
        self, messages: Sequence[MessageExtBrokerInner], topic: str, queue_id: int
    ) -> Sequence[PutOutcome]:
        """Appends messages in order, one outcome for each; after a LATER nothing is
        appended. Does not wait for durability.

        Args:
            topic: where they waited, with ``queue_id``; for the statistics.
        """
        ...


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


def delivery_of(record: Record) -> MessageExtBrokerInner | None:
    """The message that a waiting record becomes when it is due.

    None for one that must never be delivered: without a real topic, or whose real topic is one where messages wait.
    """
    properties = record.properties
    topic = properties.get(props.REAL_TOPIC)
    queue_id = properties.get(props.REAL_QUEUE_ID, "")
    if not topic or topic in HOLDING_TOPICS or not (queue_id.isascii() and queue_id.isdigit()):
        return None
    properties.pop(props.DELAY, None)
    return moved(record, topic, int(queue_id), properties, record.properties_bytes)


def give_up(store: WaitingStore, record: Record | None, commit_log_offset_bytes: int, why: str) -> bool:
    """Makes a dead letter of a waiting message that can never be delivered, and logs one line.

    What is acknowledged is checked before (:mod:`flintmq.core.broker.deliverable`). What waits all the same was taken by
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
        _log.error("the message that waited at position %d is lost: %s [delivery.gone]", commit_log_offset_bytes, why)
        return True
    outcome = store.put_messages([_dead_letter_of(record)], record.topic, record.queue_id)[0]
    if outcome is PutOutcome.LATER:
        return False
    properties = record.properties
    named = properties.get(props.UNIQ_KEY) or f"at position {commit_log_offset_bytes}"
    meant_for = properties.get(props.REAL_TOPIC, "")
    if outcome is PutOutcome.STORED:
        where = UNDELIVERED_TOPIC
        _log.error("message %s for %s is a dead letter in %s: %s [delivery.dead_letter]", named, meant_for, where, why)
    else:
        _log.error(
            "message %s for %s is not delivered: %s; it stays in the log at position %d until that expires [delivery.kept]",
            named,
            meant_for,
            why,
            commit_log_offset_bytes,
        )
    return True


def _dead_letter_of(record: Record) -> MessageExtBrokerInner:
    properties = record.properties
    properties.pop(props.DELAY, None)
    message = moved(record, UNDELIVERED_TOPIC, 0, properties, record.properties_bytes)
    message.sys_flag = without_transaction(record.sys_flag)
    return message

"""Makes and reads the records of a transaction. The functions have no side effects, except that ``redirect_to_half`` changes
its argument.

::

    half     the message that the producer sent, stored in the half topic; a property names its real topic
    copy     the half appended again, for one of two reasons: its producer is asked about it, or must not be asked yet
    final    the half stored in its real topic, after its producer committed
    op       a record that says that the half message at a queue offset is done: committed or rolled back
    given up the half stored in the topic of messages whose producer never answered

A half message and its copies are one transaction. They share the producer's UNIQ_KEY, the born timestamp and the born host. A
producer that sends the same message again after a rollback begins another transaction.

See docs/internals/algorithms.md, Transactions; docs/internals/store-format.md, Special topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flintmq.config.rocketmq.system_topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from flintmq.core.broker.redirected_message import moved, redirect
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.record import properties as props
from flintmq.core.record.host import offset_message_id
from flintmq.core.record.java_number import number_or, parse_long
from flintmq.core.record.record import MessageExtBrokerInner, Record, encode_record, record_size
from flintmq.core.record.sys_flag import TRANSACTION_COMMIT, without_transaction

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Name of the consumer group whose offsets are the broker's positions in the half queue and the op queue."""
HALF_QUEUE_ID: Final = 0
OP_TAG: Final = "d"
HALF_PROPERTIES_SPARE_BYTES: Final = 128
"""Number of bytes that must stay free in the properties of a half message, because copies of the half message get further
properties."""

Identity = tuple[str, int, bytes]
"""Identity of a transaction: UNIQ_KEY, born timestamp in ms, and packed born host. A half message and all its copies have the
same identity."""


def asks_for_transaction(properties: Mapping[str, str], reconsume_times: int) -> bool:
    """Return whether a sent message begins a transaction.

    A committed message keeps TRAN_MSG, but begins no transaction if a consumer sends it to its retry topic.
    """
    return properties.get(props.TRANSACTION_PREPARED, "").lower() == "true" and reconsume_times <= 0


def redirect_to_half(message: MessageExtBrokerInner) -> None:
    """Turn a message that was sent into a half message."""
    redirect(message, TRANS_HALF_TOPIC, HALF_QUEUE_ID)
    message.sys_flag = without_transaction(message.sys_flag)


def identity_of(record: Record) -> Identity:
    """Return a key that only a half message and its copies share. Without a UNIQ_KEY, each record has a different key."""
    key = record.properties.get(props.UNIQ_KEY) or f"@{record.queue_offset}"
    return key, record.born_timestamp_ms, record.born_host


def is_copy(properties: Mapping[str, str]) -> bool:
    """Return whether a half message is a copy that the broker appended."""
    return props.TRANSACTION_CHECK_TIMES in properties or props.TRANSACTION_PREPARED_QUEUE_OFFSET in properties


def check_times(properties: Mapping[str, str]) -> int:
    """Return how often the producer of a half message was asked whether to commit it."""
    return number_or(properties.get(props.TRANSACTION_CHECK_TIMES), 0)


def immunity_ms(properties: Mapping[str, str], timeout_ms: int) -> int | None:
    """Return the minimum age in ms that a half message must have before its producer is asked about it. The property
    CHECK_IMMUNITY_TIME_IN_SECONDS sets this age; return None if the message lacks the property."""
    text = properties.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS)
    if text is None:
        return None
    seconds = number_or(text, -1, parse_long)
    return timeout_ms if seconds == -1 else seconds * 1000


def copy_of(record: Record, changes: Mapping[str, str]) -> MessageExtBrokerInner:
    """Return a copy of the half message to append, with some properties changed."""
    properties = {**record.properties, **changes}
    return moved(record, TRANS_HALF_TOPIC, HALF_QUEUE_ID, properties, _stored(properties))


def given_up_of(record: Record) -> MessageExtBrokerInner:
    """Return the unchanged half message, for the topic of messages whose producer never answered."""
    return moved(record, TRANS_CHECK_MAX_TIME_TOPIC, 0, record.properties, record.properties_bytes)


def final_of(record: Record) -> MessageExtBrokerInner | None:
    """Return the committed message; None if the half message lacks its real topic.

    The committed message has the half message's stored properties, unchanged.
    """
    place = real_place(record.properties)
    if place is None:
        return None
    message = moved(record, *place, record.properties, record.properties_bytes)
    message.sys_flag = without_transaction(record.sys_flag) | TRANSACTION_COMMIT
    message.prepared_transaction_offset_bytes = record.commit_log_offset_bytes
    return message


def real_place(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the real topic and queue id of a half message; None if the message lacks the topic or the id."""
    topic, queue_id = properties.get(props.REAL_TOPIC), number_or(properties.get(props.REAL_QUEUE_ID), -1)
    return (topic, queue_id) if topic and queue_id >= 0 else None


def op_of(half_queue_offset: int, now_ms: int, store_host: bytes) -> MessageExtBrokerInner:
    """Return the op record that says that a half message is done."""
    properties = {props.WAIT: "true", props.TAGS: OP_TAG}
    return MessageExtBrokerInner(
        topic=TRANS_OP_HALF_TOPIC,
        queue_id=HALF_QUEUE_ID,
        body=b"%d" % half_queue_offset,
        properties=properties,
        properties_bytes=_stored(properties),
        born_timestamp_ms=now_ms,
        born_host=store_host,
        store_host=store_host,
        wait=False,
    )


def offsets_of_op(record: Record) -> list[int]:
    """Return the half queue offsets in an op record; empty for any other record.

    RocketMQ 5.x writes several offsets into one op record, separated by commas. Items that are not numbers of at most 19 digits
    are skipped.
    """
    if record.properties.get(props.TAGS) != OP_TAG:
        return []
    return [int(text) for text in record.body.split(b",") if text.isdigit() and len(text) < 20]


def check_header(record: Record, copy: DispatchRequest) -> dict[str, str]:
    """Return the header of CHECK_TRANSACTION_STATE (39).

    The header has the offsets of the half message's copy, which the producer repeats when it ends the transaction.
    """
    header = {
        "commitLogOffset": str(copy.commit_log_offset_bytes),
        "offsetMsgId": offset_message_id(record.store_host.hex().upper(), copy.commit_log_offset_bytes),
        "tranStateTableOffset": str(copy.queue_offset),
    }
    if copy.uniq_key:
        header["msgId"] = header["transactionId"] = copy.uniq_key
    return header


def check_body(record: Record, message: MessageExtBrokerInner, copy: DispatchRequest) -> bytes:
    """Return the body of a CHECK_TRANSACTION_STATE request (39), with which the broker asks a producer about a half message.
    The broker first appends a copy of the half message to the log. The body is the half message with its real topic and queue
    id, and with the queue offset and the physical offset of the copy."""
    properties = {**message.properties, props.WAIT: "false"}
    topic, queue_id = real_place(properties) or (message.topic, message.queue_id)
    shown = moved(record, topic, queue_id, properties, _stored(properties))
    place = copy.queue_offset, copy.commit_log_offset_bytes, record.store_timestamp_ms
    try:
        return b"".join(encode_record(shown, record_size(shown), *place))
    except ValueError:
        # If the message's real topic is invalid, the producer gets the message with the topic in which it is stored.
        # A message with an invalid topic is sent to the producer, too, because the producer may still roll it back.
        return b"".join(encode_record(message, record_size(message), *place))


def _stored(properties: Mapping[str, str]) -> bytes:
    return props.properties_to_string(properties).encode("utf-8", "replace")

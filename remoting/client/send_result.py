"""The result of a send: the status, the message's ids, and the message's queue and queue offset."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import FlintError
from flintmq.remoting.wire.codes import ResponseCode
from flintmq.remoting.wire.command import RemotingCommand
from flintmq.remoting.wire.header_codec import decode_header
from flintmq.remoting.wire.headers_message import SendMessageResponseHeader


class SendStatus(enum.Enum):
    """Whether a stored message is as durable as requested; in every case the broker has stored it."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


STORED: Final = tuple(int(status.value) for status in SendStatus)
"""Response codes that mean that the broker has stored the message."""
_STATUSES: Final = {int(status.value): status for status in SendStatus}


@attrs.frozen
class SendResult:
    """The result of a send of one message or of a batch, after the broker has stored the message or the batch."""

    status: SendStatus
    msg_id: str
    """The sender's id of the message (UNIQ_KEY); for a batch, the ids of all its messages, joined by commas."""
    offset_msg_id: str
    """The broker's id of the message; for a batch, the ids of all its messages, joined by commas."""
    queue: MessageQueue
    queue_offset: int
    """The queue offset of the message; for a batch, the queue offset of its first message."""
    transaction_id: str = ""
    region_id: str = ""
    trace_on: bool = True


class PartlySentError(FlintError):
    """A batch of ``Producer.send_all`` failed after earlier batches were stored; ``__cause__`` is the reason.

    Args:
        topic: the topic of the messages.
        results: the results of the batches that were stored.
        stored_messages: the number of messages in those batches, counted from the first message passed to ``send_all``.
    """

    def __init__(self, topic: str, results: Sequence[SendResult], stored_messages: int) -> None:
        super().__init__(
            f"the first {stored_messages} messages to {topic} are stored, in {len(results)} batches, then a batch failed: "
            f"send again from message {stored_messages} on"
        )
        self.results: tuple[SendResult, ...] = tuple(results)
        self.stored_messages = stored_messages


def send_result(msg_id: str, queue: MessageQueue, answer: RemotingCommand) -> SendResult:
    """Return the result of a send from the broker's answer, for one message or for a batch as a whole.

    Args:
        msg_id: the sender's id of the message; for a batch, all ids joined by commas.
        queue: the queue that the request named; the answer may name another queue, in which the message was stored.
        answer: the answer, with one of the codes in :data:`STORED`.
    """
    header = decode_header(SendMessageResponseHeader, answer.ext_fields)
    if header.queue_id != queue.queue_id:
        queue = MessageQueue(queue.broker_name, header.queue_id, queue.topic)
    return SendResult(
        _STATUSES[answer.code],
        msg_id,
        header.msg_id,
        queue,
        header.queue_offset,
        header.transaction_id or "",
        header.region_id or "",
        header.trace_on is not False,
    )


def send_results(msg_ids: Sequence[str], queue: MessageQueue, answer: RemotingCommand) -> list[SendResult]:
    """Return a result for each message of a batch; their queue offsets are consecutive.

    If the broker's answer does not have an id for each message, ``offset_msg_id`` is empty.
    """
    whole = send_result("", queue, answer)
    offset_msg_ids = whole.offset_msg_id.split(",")
    if len(offset_msg_ids) != len(msg_ids):
        offset_msg_ids = [""] * len(msg_ids)
    status, queue, region_id, trace_on = whole.status, whole.queue, whole.region_id, whole.trace_on
    return [
        SendResult(status, msg_id, offset_msg_id, queue, queue_offset, "", region_id, trace_on)
        for queue_offset, (msg_id, offset_msg_id) in enumerate(
            zip(msg_ids, offset_msg_ids, strict=True), whole.queue_offset
        )
    ]

"""What came of a send, as its caller gets it."""

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
    """How durable a message is that was stored."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


STORED: Final = tuple(int(status.value) for status in SendStatus)
"""The codes of an answer that says that the message is stored."""
_STATUSES: Final = {int(status.value): status for status in SendStatus}


@attrs.frozen
class SendResult:
    """A message, or a batch, that was stored."""

    status: SendStatus
    msg_id: str
    """UNIQ_KEY; of a batch all of them, joined by commas."""
    offset_msg_id: str
    """The broker's id; likewise."""
    queue: MessageQueue
    queue_offset: int
    """Of a batch the first one's."""
    transaction_id: str = ""
    region_id: str = ""
    trace_on: bool = True


class PartlySentError(FlintError):
    """A batch of ``Producer.send_all`` failed after others were stored; the cause says why.

    Args:
        topic: of the messages.
        results: of the batches that were stored.
        stored_messages: how many messages these hold: the first ones of those that were given.
    """

    def __init__(self, topic: str, results: Sequence[SendResult], stored_messages: int) -> None:
        super().__init__(
            f"the first {stored_messages} messages to {topic} are stored, in {len(results)} batches, then a batch failed: "
            f"send again from message {stored_messages} on"
        )
        self.results: tuple[SendResult, ...] = tuple(results)
        self.stored_messages = stored_messages


def send_result(msg_id: str, queue: MessageQueue, answer: RemotingCommand) -> SendResult:
    """Return what an answer says of the send of one message, or of a batch as a whole.

    Args:
        msg_id: the sender's, or those of a batch joined by commas.
        queue: which the request named; the answer names the one in which the message was stored.
        answer: one of the codes in :data:`STORED`.
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
    """Return what an answer says of each message of a batch: they lie side by side in their queue.

    A broker that does not name an id for each leaves ``offset_msg_id`` empty.
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

"""Makes the frames of a benchmark's requests. A frame is encoded only once, and its changing values are overwritten for each
request.

The normal encoder makes the frame with placeholder values. The positions of the placeholders are then searched once. Each value
has the same width as its placeholder, so it can replace the placeholder in the encoded frame.
"""

from __future__ import annotations

import re
import struct
from typing import Final

import msgspec

from flintmq.config.rocketmq.system_topics import AUTO_CREATE_TOPIC
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.core.record.properties import UNIQ_KEY, WAIT, properties_to_string
from flintmq.remoting.client.access import ANYONE, Access
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import RemotingCommand, encode_command, request
from flintmq.remoting.wire.headers_message import PullMessageRequestHeader, SendMessageRequestHeaderV2

PRODUCER_GROUP: Final = "flintmq-bench"
CONSUMER_GROUP: Final = "TOOLS_CONSUMER"
"""The consumer group of the benchmark's pulls. Every broker has this group."""
OPAQUE_BASE: Final = 1_000_000_000
OPAQUE_DIGITS: Final = 10
BORN_MS: Final = 1_111_111_111_111
"""Placeholder for the time of sending in a prepared send request. The placeholder has 13 digits, as a time in ms since 1970
has."""
_COUNTER_DIGITS: Final = 8
_QUEUE_OFFSET: Final = 7_777_777_777
_OPAQUE: Final = b'"opaque":'
_CODE: Final = re.compile(rb'"code":(\d+)')
_MAY_BE_HELD: Final = 2
_HAS_SUBSCRIPTION: Final = 4
_pack_int = struct.Struct(">i").pack_into


def body_of(size_bytes: int) -> bytes:
    """Return the body of a message for a benchmark, in printable bytes."""
    pattern = bytes(range(33, 127))
    return (pattern * (size_bytes // len(pattern) + 1))[:size_bytes]


class SendFrame:
    """The frame of the send requests of one slot of a connection.

    A connection has a fixed number of slots. Each slot has one request in flight, and uses an opaque that no other slot uses.

    Args:
        slot: the slot's number; the frame's opaque is ``OPAQUE_BASE + slot``.
        queue: the queue to send to.
        body: the body of each message.
        batch: the number of messages in the request.
        access: the credentials. If requests are signed, each frame is encoded again, because the signature covers the changing
            values.
    """

    __slots__ = ("_access", "_batch", "_body", "_born_at", "_counters_at", "_frame", "_head", "_queue", "_slot")

    def __init__(self, slot: int, queue: MessageQueue, body: bytes, batch: int, access: Access = ANYONE) -> None:
        head = f"BE0000{slot:018X}"
        self._access = access
        self._slot, self._queue, self._body, self._batch, self._head = slot, queue, body, batch, head
        keys = [f"{head}{n:08X}" for n in range(batch)]
        frame = encode_command(_send_command(slot, queue, body, keys))
        self._frame = bytearray(frame)
        self._born_at = _only(frame, b"%d" % BORN_MS)
        self._counters_at = [_only(frame, key.encode()) + len(head) for key in keys]

    def next(self, born_ms: bytes, counter: int) -> bytearray:
        """Return the frame for the slot's next send request. A slot has one request in flight at a time.

        The next call overwrites the frame, so the caller must copy the frame before that call.

        Args:
            born_ms: the time in ms since 1970, 13 digits.
            counter: a number for the request's first message, from which the messages' UNIQ_KEY properties are made. The
                numbers of all messages of a slot must differ.
        """
        if self._access.signer is not None:
            return self.signed(born_ms, counter, self._body)
        frame = self._frame
        born_at = self._born_at
        frame[born_at : born_at + len(born_ms)] = born_ms
        for at in self._counters_at:
            frame[at : at + _COUNTER_DIGITS] = b"%08X" % (counter & 0xFFFFFFFF)
            counter += 1
        return frame

    def signed(self, born_ms: bytes, counter: int, body: bytes, opaque: int | None = None) -> bytearray:
        """Return a newly encoded and signed send frame with another body, and with another opaque if one is given."""
        keys = [f"{self._head}{(counter + n) & 0xFFFFFFFF:08X}" for n in range(self._batch)]
        command = _send_command(self._slot, self._queue, body, keys, int(born_ms))
        if opaque is not None:
            command.opaque = opaque
        return bytearray(encode_command(self._access.signed(command)))


def _send_command(
    slot: int, queue: MessageQueue, body: bytes, keys: list[str], born_ms: int = BORN_MS
) -> RemotingCommand:
    properties = [properties_to_string({UNIQ_KEY: key, WAIT: "true"}) for key in keys]
    batched = len(keys) > 1
    header = SendMessageRequestHeaderV2(
        producer_group=PRODUCER_GROUP,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp_ms=born_ms,
        flag=0,
        properties=properties_to_string({WAIT: "true"}) if batched else properties[0],
        batch=batched,
        broker_name=queue.broker_name,
    )
    if batched:
        items = encode_batch(BatchItem(0, body, text.encode()) for text in properties)
        command = request(RequestCode.SEND_BATCH_MESSAGE, header, items)
    else:
        command = request(RequestCode.SEND_MESSAGE_V2, header, body)
    command.opaque = OPAQUE_BASE + slot
    return command


class PullFrame:
    """The encoded frames of the pull requests that a benchmark sends for one queue.

    Args:
        slot: the number of the slot that sends the requests. A connection has a fixed number of slots. Each slot has one
            request in flight, with the opaque ``OPAQUE_BASE + slot``, so that the answer can be assigned to its slot.
        queue: the queue to pull from.
        max_messages: maximum number of messages in an answer.
        access: the credentials.
        hold_ms: how long the broker may hold a pull without messages; 0 to hold no pull.
    """

    __slots__ = ("_access", "_after", "_before", "_header", "_slot")

    def __init__(
        self, slot: int, queue: MessageQueue, max_messages: int, access: Access = ANYONE, hold_ms: int = 0
    ) -> None:
        self._access, self._slot = access, slot
        header = self._header = PullMessageRequestHeader(
            consumer_group=CONSUMER_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=_QUEUE_OFFSET,
            max_msg_nums=max_messages,
            sys_flag=_HAS_SUBSCRIPTION | (_MAY_BE_HELD if hold_ms else 0),
            commit_consumer_offset=0,
            suspend_timeout_ms=hold_ms,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
            broker_name=queue.broker_name,
        )
        command = request(RequestCode.PULL_MESSAGE, header)
        command.opaque = OPAQUE_BASE + slot
        frame = encode_command(command)
        mark = b"%d" % _QUEUE_OFFSET
        at = _only(frame, mark)
        self._before, self._after = frame[8:at], frame[at + len(mark) :]

    def next(self, queue_offset: int) -> bytes:
        """Return the frame of a request that pulls messages from a queue offset on."""
        if self._access.signer is not None:
            command = request(
                RequestCode.PULL_MESSAGE, msgspec.structs.replace(self._header, queue_offset=queue_offset)
            )
            command.opaque = OPAQUE_BASE + self._slot
            return encode_command(self._access.signed(command))
        header = b"%b%d%b" % (self._before, queue_offset, self._after)
        prefix = bytearray(8)
        _pack_int(prefix, 0, 4 + len(header))
        _pack_int(prefix, 4, len(header))
        return bytes(prefix) + header


def _only(frame: bytes, mark: bytes) -> int:
    """Return the position of a placeholder value (``mark``) in an encoded frame; the placeholder must occur exactly once."""
    if frame.count(mark) != 1:
        raise ValueError(
            f"{mark!r} must occur once in a frame of {len(frame)} bytes, and occurs {frame.count(mark)} times"
        )
    return frame.index(mark)


def slot_of(frame: bytes) -> int:
    """Return the number of the connection's slot to which an answer belongs, from the answer's opaque.

    A connection has a fixed number of slots. Each slot has one request in flight, and uses an opaque that no other slot uses.
    The answer's header must be JSON, which the broker sends if the request's header is JSON.
    """
    at = frame.index(_OPAQUE) + len(_OPAQUE)
    return int(frame[at : at + OPAQUE_DIGITS]) - OPAQUE_BASE


def code_of(frame: bytes) -> int:
    """Return the response code of an encoded answer."""
    found = _CODE.search(frame)
    if found is None:
        raise ValueError("an answer without a code")
    return int(found[1])


def field_of(frame: bytes, name: bytes) -> int:
    """Return the number in the field ``name`` of the extFields of an encoded answer, for example in ``nextBeginOffset``. The
    answer's header must be JSON."""
    mark = b'"%b":"' % name
    at = frame.index(mark) + len(mark)
    return int(frame[at : frame.index(b'"', at)])

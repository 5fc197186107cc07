"""Messages as a client sees them: what is sent, and what comes back from a broker."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

import attrs
import msgspec
from msgspec.structs import replace

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import FlintError, InvalidArgumentError
from flintmq.core.record import properties as props
from flintmq.core.record.host import host_text, offset_message_id
from flintmq.core.record.record import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_MIN_BYTES,
    Record,
    RecordError,
    decode_record,
    decode_records,
)
from flintmq.core.record.sys_flag import COMPRESSED
from flintmq.remoting.client.compression import (
    DECOMPRESSED_MAX_BYTES,
    CompressionError,
    TooLongError,
    decompress,
    decompressed_parts,
)
from flintmq.remoting.client.timing import with_timer

DELAY_LEVEL_MAX: Final = 18
"""Of RocketMQ's own levels; a broker takes a level beyond its own ones for the last one, without a word."""


def _keys(value: str | Sequence[str]) -> tuple[str, ...]:
    if type(value) is tuple:
        return value
    if isinstance(value, str):
        return tuple(value.split(props.KEY_SEPARATOR))
    if not isinstance(value, Iterable):
        raise InvalidArgumentError(f"keys is {value!r}, and must be a text or a sequence of texts: keys={str(value)!r}")
    return tuple(value)


@attrs.frozen
class Message:
    """A message to be sent. Safe to share and to send again."""

    topic: str
    body: bytes
    tags: str = ""
    """What subscriptions choose by; one tag."""
    keys: tuple[str, ...] = attrs.field(default=(), converter=_keys)
    """What the message can be found by; a string is split at blanks."""
    properties: Mapping[str, str] = attrs.field(factory=dict)
    """The user's own properties."""
    delay_level: int = 0
    """1 to 18 of the broker's delay levels; 0: at once."""
    flag: int = 0
    """A number that is stored and handed on."""
    wait_store: bool = True
    """False: the broker acknowledges before the message is durable."""
    delay: str | timedelta | None = attrs.field(default=None, kw_only=True)
    """How long the broker waits before it delivers: ``"2h"``, ``"90s"``, ``"500ms"``, or a ``timedelta``. FlintMQ's brokers and
    those of RocketMQ 5 do; those of RocketMQ 4 know ``delay_level`` only, and deliver at once."""
    deliver_at: datetime | int | None = attrs.field(default=None, kw_only=True)
    """When it is delivered, likewise: a ``datetime`` (without a zone: of this machine's), or ms since 1970."""

    def __attrs_post_init__(self) -> None:
        """Raise ``InvalidArgumentError`` for what no broker would take: where it is made it is easily mended."""
        if type(self.body) is not bytes or type(self.topic) is not str or not self.topic or type(self.tags) is not str:
            self._check_texts()
        if self.keys and not all(type(key) is str for key in self.keys):
            raise InvalidArgumentError(f"keys is {self.keys!r}, and must be texts")
        if self.properties:
            self._check_properties()
        if self.delay_level or self.flag:
            self._check_numbers()
        if self.delay is not None or self.deliver_at is not None:
            timed = with_timer(self.properties, self.delay, self.deliver_at, self.delay_level)
            object.__setattr__(self, "properties", timed)

    def _check_texts(self) -> None:
        for name, text in (("topic", self.topic), ("tags", self.tags)):
            if not isinstance(text, str):
                raise InvalidArgumentError(f"{name} is {text!r}, and must be a text")
        if not self.topic:
            raise InvalidArgumentError("topic is '', and must be the name of a topic")
        body: object = self.body
        if isinstance(body, bytearray | memoryview):
            object.__setattr__(self, "body", bytes(body))  # what may be changed is copied
        elif isinstance(body, str):
            raise InvalidArgumentError(f"body is {brief(body)}, and must be bytes: encode it, {brief(body)}.encode()")
        elif not isinstance(body, bytes):
            raise InvalidArgumentError(f"body is {brief(body)}, and must be bytes")

    def _check_properties(self) -> None:
        if not isinstance(self.properties, Mapping):
            raise InvalidArgumentError(
                f"properties is {brief(self.properties)}, and must be a mapping of texts to texts"
            )
        for name, value in self.properties.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise InvalidArgumentError(f"property {name!r} is {brief(value)}, and names and values must be texts")

    def _check_numbers(self) -> None:
        if not isinstance(self.delay_level, int) or not 0 <= self.delay_level <= DELAY_LEVEL_MAX:
            raise InvalidArgumentError(
                f"delay_level is {self.delay_level!r}, and must be a number from 0 to {DELAY_LEVEL_MAX}"
            )
        if not isinstance(self.flag, int) or not -(2**31) <= self.flag < 2**31:
            raise InvalidArgumentError(f"flag is {self.flag!r}, and must be a number of 32 bits")

    def wire_properties(self, uniq_key: str) -> dict[str, str]:
        """Return all properties as they are sent: the client's own first, because the broker looks at these at once
        when they lie as the Java client's do; what the user calls by the same name does not count."""
        result: dict[str, str] = {}
        if self.keys:
            result[props.KEYS] = props.KEY_SEPARATOR.join(self.keys)
        result[props.UNIQ_KEY] = uniq_key
        result[props.WAIT] = "true" if self.wait_store else "false"
        if self.delay_level > 0:
            result[props.DELAY] = str(self.delay_level)
        if self.tags:
            result[props.TAGS] = self.tags
        if self.properties:
            result |= {name: value for name, value in self.properties.items() if name not in result}
        return result

    def wire_text(self, uniq_key: str) -> str:
        """Return the properties as one string, in the form of the wire."""
        if self.properties or self.delay_level > 0:
            return props.properties_to_string(self.wire_properties(uniq_key))
        keys = f"KEYS\x01{props.KEY_SEPARATOR.join(self.keys)}\x02" if self.keys else ""
        wait = "true" if self.wait_store else "false"
        tags = f"\x02TAGS\x01{self.tags}" if self.tags else ""
        return f"{keys}UNIQ_KEY\x01{uniq_key}\x02WAIT\x01{wait}{tags}"


def brief(value: object) -> str:
    """Return a value as it is shown in an error: its beginning, where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class CodecError(FlintError):
    """A body does not decode as what a codec makes of it, or a value does not encode."""


class MessageExt(msgspec.Struct, frozen=True, dict=True):
    """A message that was stored. Safe to share.

    What is rarely looked at is made when it is first asked for: a consumer gets tens of thousands of these a second.
    """

    topic: str
    body: bytes
    """Decompressed; as stored where :attr:`body_error` says why it cannot be read."""
    properties_bytes: bytes
    """As stored."""
    queue_id: int
    queue_offset: int
    broker_name: str
    """Empty where the answer did not come from a known broker."""
    commit_log_offset_bytes: int
    store_size_bytes: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host_bytes: bytes
    """Packed, 8 or 20 bytes, or empty where it is not known; :attr:`born_host` is the same as text."""
    store_timestamp_ms: int
    store_host_bytes: bytes
    reconsume_times: int
    """How often consuming it has failed."""
    prepared_transaction_offset_bytes: int
    body_error: str = ""
    """Why :attr:`body` is not what was sent, but the stored bytes, for people; empty where it is what was sent."""

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """All properties, the client's own among them."""
        return props.string_to_properties(self.properties_bytes.decode("utf-8", "replace"))

    @cached_property
    def born_host(self) -> str:
        """``ip:port`` of the sender."""
        return host_text(self.born_host_bytes) if self.born_host_bytes else ""

    @cached_property
    def store_host(self) -> str:
        """``ip:port`` of the broker."""
        return host_text(self.store_host_bytes) if self.store_host_bytes else ""

    @cached_property
    def offset_msg_id(self) -> str:
        """The broker's id, which says where the message is stored; empty for a reply, which is not."""
        if self.commit_log_offset_bytes < 0:
            return ""
        return offset_message_id(self.store_host_bytes.hex().upper(), self.commit_log_offset_bytes)

    @property
    def msg_id(self) -> str:
        """The sender's id (UNIQ_KEY); the broker's where it has none."""
        return self.properties.get(props.UNIQ_KEY) or self.offset_msg_id

    @property
    def tags(self) -> str:
        return self.properties.get(props.TAGS, "")

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(props.KEYS, "").split())

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.broker_name, self.queue_id, self.topic)

    @cached_property
    def value(self) -> Any:
        """The body as the consumer's ``codec`` decodes it, when this is first asked for.

        Raises:
            CodecError: the body does not decode; or the consumer has no codec. :attr:`body` has the bytes.
        """
        if self.body_error:
            raise CodecError(f"{self.topic}: message {self.msg_id} of {self.queue} cannot be read: {self.body_error}")
        codec = self.__dict__.get("codec")
        if codec is None:
            raise CodecError(
                f"{self.topic}: this message has no codec: give the consumer one, such as codec=JsonCodec()"
            )
        try:
            return codec.decode(self.body)
        except Exception as failure:  # of a codec of the user's
            raise CodecError(
                f"{self.topic}: message {self.msg_id} of {self.queue} does not decode: {failure}"
            ) from failure


UNKNOWN_PLACE: Final = -1
"""The queue offset of a message whose record cannot be read."""


PACKED: Final = "it is still compressed"
"""The ``body_error`` of a message that was asked for as it is stored."""


def keep_packed(message: MessageExt) -> MessageExt:
    """Return a message with its body as it is stored. :func:`body_parts` gives what was sent, as much of it as is wanted."""
    return replace(message, body_error=PACKED) if message.sys_flag & COMPRESSED and message.body else message


def body_parts(message: MessageExt) -> Iterator[bytes]:
    """Yield what was sent in parts of at most 128 KiB, also of a message that is still compressed; of one that cannot be read
    what is stored.

    Raises:
        CompressionError: it cannot be decompressed; parts may have come before.
    """
    return decompressed_parts(message.body, message.sys_flag if message.body_error == PACKED else 0)


def body_beginning(message: MessageExt, max_bytes: int) -> tuple[bytes, bool]:
    """Return the beginning of what was sent, and whether it is all of it; see :func:`body_parts`. No more of it is made."""
    found = b""
    parts = body_parts(message)
    for part in parts:
        found += part
        if len(found) > max_bytes:
            return found[:max_bytes], False
    return found, True


CUT: Final = "only its beginning was read"
"""The ``body_error`` of a message that :func:`shortened` made."""


def shortened(message: MessageExt, max_bytes: int) -> MessageExt:
    """Return a message with the beginning of what was sent in place of its body, and the reason why it is not all of it."""
    if message.body_error == CUT or not message.body:
        return message
    try:
        body, is_whole = body_beginning(message, max_bytes)
    except CompressionError as failure:
        return replace(message, body=message.body[:max_bytes], body_error=str(failure))
    if message.body_error and message.body_error != PACKED:
        return replace(message, body=body)
    return replace(message, body=body, body_error="" if is_whole else CUT)


class Unpacking:
    """Decompresses the bodies of one answer. Together they get no longer than one may be, however many there are.

    A few kilobytes of an answer can become gigabytes.

    Args:
        max_bytes: how long they get; None, and at most: as long as one may be.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._left_bytes = min(DECOMPRESSED_MAX_BYTES, max_bytes or DECOMPRESSED_MAX_BYTES)
        self.is_full = False
        """Whether there was no room for a body: its message has the ``body_error`` :data:`NO_ROOM`."""

    def __call__(self, message: MessageExt) -> MessageExt:
        """Return a message with its body as it was before it was compressed, or with the reason why it is not."""
        try:
            body = decompress(message.body, message.sys_flag, self._left_bytes)
        except TooLongError as failure:
            if self._left_bytes == DECOMPRESSED_MAX_BYTES:
                return replace(message, body_error=str(failure))
            self.is_full = True
            return replace(message, body_error=NO_ROOM)
        except CompressionError as failure:
            return replace(message, body_error=str(failure))
        self._left_bytes -= len(body)
        return replace(message, body=body)


NO_ROOM: Final = "the messages before it in the answer take the memory that there is for an answer: ask for it alone"


Unpack = Callable[[MessageExt], MessageExt]
"""Makes what a reader gets of a message whose body is compressed: :class:`Unpacking`, or :func:`keep_packed`."""


def message_of(record: Record, broker_name: str = "", unpack: Unpack | None = None) -> MessageExt:
    """Return the message in a record, with the stored body where it cannot be decompressed.

    Args:
        record: as a broker stored it.
        broker_name: which one, if that is known.
        unpack: for the bodies of the answer that the record is of; None: it is the only one.
    """
    sys_flag = record.sys_flag
    message = MessageExt(
        record.topic,
        record.body,
        record.properties_bytes,
        record.queue_id,
        record.queue_offset,
        broker_name,
        record.commit_log_offset_bytes,
        record.size_bytes,
        record.flag,
        sys_flag,
        record.born_timestamp_ms,
        record.born_host,
        record.store_timestamp_ms,
        record.store_host,
        record.reconsume_times,
        record.prepared_transaction_offset_bytes,
    )
    return (unpack or Unpacking())(message) if sys_flag & COMPRESSED else message


def messages_of(records: bytes, broker_name: str, unpack: Unpack) -> list[MessageExt]:
    """Return the messages in consecutive records, see :func:`message_of`.

    Raises:
        RecordError: one of them is damaged; :func:`messages_apart` returns the others.
    """
    return [message_of(record, broker_name, unpack) for record in decode_records(records)]


def messages_apart(records: bytes, broker_name: str, unpack: Unpack) -> list[MessageExt]:
    """Return the messages in consecutive records, of which some may be damaged.

    One whose checksum is wrong has the stored body. Of a record that cannot be read, nothing is known but its bytes, which are
    the body of a message at the queue offset :data:`UNKNOWN_PLACE`; where it does not say how long it is, these are all the
    bytes that follow.
    """
    view = memoryview(records)
    messages: list[MessageExt] = []
    position = 0
    while position < len(view):
        try:
            record = decode_record(view, position, check_crc=False)
        except RecordError as failure:
            size_bytes = _stated_size(view, position)
            messages.append(_unreadable(bytes(view[position : position + size_bytes]), broker_name, str(failure)))
            position += size_bytes
            continue
        message = message_of(record, broker_name, unpack)
        crc = zlib.crc32(record.body) & 0x7FFFFFFF
        if record.body and crc != record.body_crc:
            wrong = f"it is damaged: its checksum is 0x{crc:08X}, the record says 0x{record.body_crc:08X}"
            message = replace(message, body=record.body, body_error=wrong)
        messages.append(message)
        position += record.size_bytes
    return messages


def decode_messages(records: bytes, broker_name: str = "", *, packed: bool = False) -> list[MessageExt]:
    """Return the messages in the records of a pull's or a query's answer, each decoded by itself.

    One that cannot be read has the stored bytes and the reason in :attr:`MessageExt.body_error`.

    Args:
        records: the answer's body.
        broker_name: who answered, if that is known.
        packed: leave bodies as they are stored, for who looks at a part of them (:func:`body_parts`).
    """
    try:
        return messages_of(records, broker_name, keep_packed if packed else Unpacking())
    except RecordError:
        return messages_apart(records, broker_name, keep_packed if packed else Unpacking())


UNPACKED_AT_ONCE_MAX_BYTES: Final = 4 * 1024 * 1024
"""What the loop itself unpacks of an answer: some 10 ms."""


async def unpacked_messages(records: bytes, broker_name: str = "", *, packed: bool = False) -> list[MessageExt]:
    """Return what :func:`decode_messages` does; a thread unpacks bodies that would keep the loop."""
    unpack = Unpacking(UNPACKED_AT_ONCE_MAX_BYTES)
    try:
        messages = messages_of(records, broker_name, keep_packed if packed else unpack)
    except RecordError:
        return decode_messages(records, broker_name, packed=packed)
    return await asyncio.to_thread(decode_messages, records, broker_name) if unpack.is_full else messages


def _stated_size(view: memoryview, position: int) -> int:
    """Return how long a record says that it is, where another one or the end follows there; else the number of bytes left."""
    left = len(view) - position
    size = int.from_bytes(view[position : position + 4], "big")
    if RECORD_MIN_BYTES <= size < left:
        magic = int.from_bytes(view[position + size + 4 : position + size + 8], "big")
        return size if magic in (MAGIC_V1, MAGIC_V2) else left
    return left


def _unreadable(stored: bytes, broker_name: str, reason: str) -> MessageExt:
    unknown = UNKNOWN_PLACE
    body_error = f"the record cannot be read: {reason}"
    return MessageExt(
        "", stored, b"", unknown, unknown, broker_name, unknown, len(stored), 0, 0, 0, b"", 0, b"", 0, 0, body_error
    )

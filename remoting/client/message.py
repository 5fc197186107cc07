"""The messages of the client library: :class:`Message` to send, and :class:`MessageExt`, received from a broker."""

from __future__ import annotations

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
from flintmq.core.io.threads import background
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
"""The highest of RocketMQ's default delay levels. If a message has a higher level than the broker's highest level, the broker
uses its highest level without an error."""


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
    """A message to send. A message is immutable: it can be shared between threads and sent several times."""

    topic: str
    body: bytes
    tags: str = ""
    """The tag of the message, by which subscriptions select messages. A message has at most one tag."""
    keys: tuple[str, ...] = attrs.field(default=(), converter=_keys)
    """The keys by which the message can be queried. A single string is split at blanks."""
    properties: Mapping[str, str] = attrs.field(factory=dict)
    """The properties of the message that the user defines."""
    delay_level: int = 0
    """The broker's delay level for the message, 1 to 18. With 0, the message is delivered without delay."""
    flag: int = 0
    """A 32-bit number that the broker stores and delivers unchanged."""
    wait_store: bool = True
    """Whether the broker acknowledges the message only when the message is durable."""
    delay: str | timedelta | None = attrs.field(default=None, kw_only=True)
    """The time after which the broker delivers the message: ``"2h"``, ``"90s"``, ``"500ms"``, or a ``timedelta``.

    FlintMQ and RocketMQ 5 support such a delay. RocketMQ 4 supports only ``delay_level``, and delivers a message with ``delay``
    at once."""
    deliver_at: datetime | int | None = attrs.field(default=None, kw_only=True)
    """The time at which the broker delivers the message: a ``datetime`` (naive: local time) or ms since 1970.

    FlintMQ and RocketMQ 5 support such a time. RocketMQ 4 delivers a message with ``deliver_at`` at once."""

    def __attrs_post_init__(self) -> None:
        """Raise ``InvalidArgumentError`` for values of a message that every broker would refuse."""
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
            # A bytearray or memoryview is copied, because the caller could change the body later.
            object.__setattr__(self, "body", bytes(body))
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
        """Return all properties of the message in the order in which they are sent: first the client's, then the user's.

        The Java client sends properties in this order, too. A broker quickly finds the properties that it reads if they are in
        this order. A user's property with the name of a client's property is ignored.
        """
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
        """Return all properties as one string in the wire format, in the order of :meth:`wire_properties`."""
        if self.properties or self.delay_level > 0:
            return props.properties_to_string(self.wire_properties(uniq_key))
        keys = f"KEYS\x01{props.KEY_SEPARATOR.join(self.keys)}\x02" if self.keys else ""
        wait = "true" if self.wait_store else "false"
        tags = f"\x02TAGS\x01{self.tags}" if self.tags else ""
        return f"{keys}UNIQ_KEY\x01{uniq_key}\x02WAIT\x01{wait}{tags}"


def brief(value: object) -> str:
    """Return a value's ``repr`` for an error message, cut to 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class CodecError(FlintError):
    """A codec cannot decode a body, or cannot encode a value."""


class MessageExt(msgspec.Struct, frozen=True, dict=True):
    """A message received from a broker. It is immutable and can be shared between threads.

    A consumer may receive tens of thousands of messages a second. To save time, values that few consumers use are computed only
    when a program first reads them.
    """

    topic: str
    body: bytes
    """The decompressed body of the message; the stored bytes if :attr:`body_error` is not empty."""
    properties_bytes: bytes
    """The properties of the message in the encoding of the store. :attr:`properties` is the decoded mapping."""
    queue_id: int
    queue_offset: int
    broker_name: str
    """Name of the broker that the message came from; empty if the name is not known."""
    commit_log_offset_bytes: int
    store_size_bytes: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host_bytes: bytes
    """The sender's address and port, packed in 8 or 20 bytes; empty if not known. :attr:`born_host` is the same address as
    text."""
    store_timestamp_ms: int
    store_host_bytes: bytes
    reconsume_times: int
    """Number of times that consuming the message has failed."""
    prepared_transaction_offset_bytes: int
    body_error: str = ""
    """A text for users that says why :attr:`body` contains the stored bytes instead of the sent body. Empty if :attr:`body` is
    the sent body."""

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """All properties of the message, including the properties that the client library adds."""
        return props.string_to_properties(self.properties_bytes.decode("utf-8", "replace"))

    @cached_property
    def born_host(self) -> str:
        """The address of the message's sender as ``ip:port``; empty if not known."""
        return host_text(self.born_host_bytes) if self.born_host_bytes else ""

    @cached_property
    def store_host(self) -> str:
        """The address of the broker that stored the message, as ``ip:port``; empty if not known."""
        return host_text(self.store_host_bytes) if self.store_host_bytes else ""

    @cached_property
    def offset_msg_id(self) -> str:
        """The broker's message id, which contains the message's position in the store; empty for a reply, which is not
        stored."""
        if self.commit_log_offset_bytes < 0:
            return ""
        return offset_message_id(self.store_host_bytes.hex().upper(), self.commit_log_offset_bytes)

    @property
    def msg_id(self) -> str:
        """The sender's id (UNIQ_KEY) of the message, or the broker's id if the sender gave none."""
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
        """The body, decoded by the consumer's ``codec`` at first access.

        Raises:
            CodecError: the body cannot be decoded, or the consumer has no codec. :attr:`body` has the bytes.
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
        except Exception as failure:  # A user's codec can raise exceptions of any type, so all are caught.
            raise CodecError(
                f"{self.topic}: message {self.msg_id} of {self.queue} does not decode: {failure}"
            ) from failure


UNKNOWN_PLACE: Final = -1
"""The queue offset that a received message has if its record cannot be read."""


PACKED: Final = "it is still compressed"
"""The ``body_error`` of a received message whose body is still compressed."""


def keep_packed(message: MessageExt) -> MessageExt:
    """Return a message with its body as the broker stored it. If the body is compressed, ``body_error`` is :data:`PACKED`.

    :func:`body_parts` decompresses such a body part by part.
    """
    return replace(message, body_error=PACKED) if message.sys_flag & COMPRESSED and message.body else message


def body_parts(message: MessageExt) -> Iterator[bytes]:
    """Yield a message's body in parts of at most 128 KiB. If the ``body_error`` is :data:`PACKED`, the body is decompressed.

    If the message has another ``body_error``, the stored bytes are yielded.

    Raises:
        CompressionError: the body cannot be decompressed; some parts may already have been yielded.
    """
    return decompressed_parts(message.body, message.sys_flag if message.body_error == PACKED else 0)


def body_beginning(message: MessageExt, max_bytes: int) -> tuple[bytes, bool]:
    """Return the first ``max_bytes`` of a message's body, and whether the body has no more bytes.

    The rest of the body is not decompressed.

    Raises the exceptions of :func:`body_parts`.
    """
    found = b""
    parts = body_parts(message)
    for part in parts:
        found += part
        if len(found) > max_bytes:
            return found[:max_bytes], False
    return found, True


CUT: Final = "only its beginning was read"
"""The ``body_error`` of a message of which :func:`shortened` has kept only the first bytes of the body."""


def shortened(message: MessageExt, max_bytes: int) -> MessageExt:
    """Return a message with only the first ``max_bytes`` of its body, and with a ``body_error`` if the body is longer."""
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
    """Decompresses the message bodies of one answer, up to a total size. Call the object with each message in turn.

    Without a limit of the total size, an answer of a few kilobytes could expand to gigabytes.

    Args:
        max_bytes: the maximum total size of the decompressed bodies. If it is None or greater than ``DECOMPRESSED_MAX_BYTES``,
            the maximum is ``DECOMPRESSED_MAX_BYTES``, which is also the maximum size of a single body.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._left_bytes = min(DECOMPRESSED_MAX_BYTES, max_bytes or DECOMPRESSED_MAX_BYTES)
        self.is_full = False
        """Whether a body was not decompressed because the decompressed bodies would have exceeded their maximum total size. The
        message of such a body has the ``body_error`` :data:`NO_ROOM`."""

    def __call__(self, message: MessageExt) -> MessageExt:
        """Return a message with its body decompressed, or with the reason in ``body_error`` if that is not possible."""
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
"""A function that takes a received message with a compressed body, and returns the message for the user. :class:`Unpacking`
decompresses the body; :func:`keep_packed` leaves it compressed."""


def message_of(record: Record, broker_name: str = "", unpack: Unpack | None = None) -> MessageExt:
    """Return the message in a record.

    A message whose body cannot be decompressed has the stored body and a ``body_error``.

    Args:
        record: a record that a broker stored.
        broker_name: the name of that broker, or empty if not known.
        unpack: called with the message if its body is compressed. All records of an answer share one :class:`Unpacking`, which
            limits the total size of their bodies. None: a new :class:`Unpacking`, for an answer with only this record.
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
        RecordError: a record is damaged; :func:`messages_apart` returns the other messages despite the damage.
    """
    return [message_of(record, broker_name, unpack) for record in decode_records(records)]


def messages_apart(records: bytes, broker_name: str, unpack: Unpack) -> list[MessageExt]:
    """Return the messages in consecutive records, some of which may be damaged.

    A message whose checksum is wrong has the stored body and a ``body_error``. A record that cannot be decoded becomes a
    message at the queue offset :data:`UNKNOWN_PLACE`, whose body is the record's bytes. If the record's size is damaged too,
    the body is all the remaining bytes.
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
    """Return the messages in the answer to a pull or a query. A damaged message does not affect the other messages.

    A message that cannot be read has the stored bytes as its body and the reason in :attr:`MessageExt.body_error`.

    Args:
        records: the answer's body.
        broker_name: the name of the broker that answered, or empty if not known.
        packed: whether to leave compressed bodies as they are stored, for callers that read a part (:func:`body_parts`).
    """
    try:
        return messages_of(records, broker_name, keep_packed if packed else Unpacking())
    except RecordError:
        return messages_apart(records, broker_name, keep_packed if packed else Unpacking())


UNPACKED_AT_ONCE_MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum total size of the bodies that are decompressed on the event loop. Decompressing this size takes about 10 ms. If the
bodies are larger, they are decompressed on a thread."""


async def unpacked_messages(records: bytes, broker_name: str = "", *, packed: bool = False) -> list[MessageExt]:
    """Return the messages in the answer to a pull or a query, as :func:`decode_messages` does.

    Bodies whose decompression would block the event loop are decompressed on a thread.
    """
    unpack = Unpacking(UNPACKED_AT_ONCE_MAX_BYTES)
    try:
        messages = messages_of(records, broker_name, keep_packed if packed else unpack)
    except RecordError:
        return decode_messages(records, broker_name, packed=packed)
    return await background(decode_messages, records, broker_name) if unpack.is_full else messages


def _stated_size(view: memoryview, position: int) -> int:
    """Return the size of a record that cannot be decoded.

    The result is the size that the record's header states, if another record begins directly after it. Otherwise the result is
    the number of remaining bytes.
    """
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

"""Checks, compresses and encodes messages before a send; the encoded messages can be sent to any queue of their topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from flintmq.core.broker.topic_name import DLQ_PREFIX, RETRY_PREFIX
from flintmq.core.errors import InvalidArgumentError
from flintmq.core.limits import BATCH_MAX_MESSAGES, PROPERTIES_MAX_BYTES
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.core.record.properties import (
    DELAY,
    MSG_TYPE,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    TRANSACTION_PREPARED,
    WAIT,
    properties_to_string,
)
from flintmq.remoting.client.compression import compress
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.request_reply import is_reply
from flintmq.remoting.client.timing import TIMERS
from flintmq.remoting.client.unique_id import UniqueIdMaker
from flintmq.remoting.wire.codes import RequestCode

MESSAGE_MAX_BYTES: Final = 4 * 1024 * 1024
_SEPARATORS: Final = {NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR}
_SHORT: Final = PROPERTIES_MAX_BYTES // 4
"""Number of characters up to which a message's properties cannot exceed their maximum size in bytes. A character has at most
four bytes in UTF-8."""
_NOT_IN_BATCHES: Final = frozenset({DELAY, MSG_TYPE, TRANSACTION_PREPARED}) | TIMERS
"""Properties of messages that a batch cannot contain: delayed messages, replies, and half messages of transactions."""


@attrs.frozen
class Prepared:
    """One message or one batch, encoded for a send request. Only the queue is still to be chosen."""

    code: int
    topic: str
    msg_id: str
    body: bytes
    properties: str
    sys_flag: int = 0
    flag: int = 0
    batch: bool = False
    sources: Sequence[Message] = ()
    """The messages from which the body and the properties of the request were made."""

    @property
    def messages(self) -> int:
        """Number of messages that were encoded."""
        return len(self.sources)


@attrs.frozen
class Preparer:
    """Encodes messages as sends, within a producer's limits.

    Its methods raise ``ValueError`` for messages that cannot be sent.
    """

    compress_over_bytes: int | None = None
    """Size in bytes from which the body of a message is compressed; None never compresses."""
    max_message_bytes: int = MESSAGE_MAX_BYTES
    """Maximum size in bytes of the body of a message, or of a batch as a whole."""
    ids: UniqueIdMaker = attrs.field(factory=UniqueIdMaker)
    """Maker of the unique ids of sent messages."""

    def one(self, message: Message) -> Prepared:
        """Return the encoded send of one message."""
        body, sys_flag = message.body, 0
        self._check_length(len(body))
        uniq_key = self.ids.make()
        if self.compress_over_bytes is not None and len(body) >= self.compress_over_bytes:
            body, sys_flag = compress(body)
        properties = _properties_text(message, uniq_key)
        code = RequestCode.SEND_REPLY_MESSAGE_V2 if is_reply(message) else RequestCode.SEND_MESSAGE_V2
        return Prepared(code, message.topic, uniq_key, body, properties, sys_flag, message.flag, sources=(message,))

    def goes_in_batch(self, message: Message) -> bool:
        """Return whether a batch can hold a message; batches cannot hold delayed, compressed, retry or reply messages."""
        if message.delay_level or message.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return False
        if self.compress_over_bytes is not None and len(message.body) >= self.compress_over_bytes:
            return False
        return not message.properties or _NOT_IN_BATCHES.isdisjoint(message.properties)

    def item(self, message: Message) -> tuple[str, BatchItem]:
        """Return a new UNIQ_KEY for a message, and the message as an item of a batch."""
        self._check_length(len(message.body))
        uniq_key = self.ids.make()
        return uniq_key, BatchItem(message.flag, message.body, _properties_text(message, uniq_key).encode())

    def batch(self, messages: Sequence[Message]) -> Prepared:
        """Return the encoded send of messages as one batch."""
        if not 0 < len(messages) <= BATCH_MAX_MESSAGES:
            raise InvalidArgumentError(f"a batch has 1 to {BATCH_MAX_MESSAGES} messages, not {len(messages)}")
        return self.joined(messages, [*self._items(messages)])

    def batches(self, messages: Sequence[Message]) -> list[Prepared]:
        """Return the encoded sends of messages, in order, in as few batches as the limits allow."""
        made: list[Prepared] = []
        part: list[tuple[str, BatchItem]] = []
        part_bytes = begin = 0
        for at, (uniq_key, item) in enumerate(self._items(messages)):
            if part and (part_bytes + item.size_bytes > self.max_message_bytes or len(part) == BATCH_MAX_MESSAGES):
                made.append(self.joined(messages[begin:at], part))
                part, part_bytes, begin = [], 0, at
            part.append((uniq_key, item))
            part_bytes += item.size_bytes
        if part:
            made.append(self.joined(messages[begin:], part))
        return made

    def joined(self, messages: Sequence[Message], items: Sequence[tuple[str, BatchItem]]) -> Prepared:
        """Return the encoded send of a batch, from its messages and the items that :meth:`item` made of them."""
        like = messages[0]
        body = encode_batch(item for _, item in items)
        self._check_length(len(body))
        wait = properties_to_string({WAIT: "true" if like.wait_store else "false"})
        ids = ",".join(uniq_key for uniq_key, _ in items)
        return Prepared(RequestCode.SEND_BATCH_MESSAGE, like.topic, ids, body, wait, batch=True, sources=messages)

    def _check_length(self, length_bytes: int) -> None:
        if length_bytes > self.max_message_bytes:
            raise InvalidArgumentError(f"a body of {length_bytes} bytes, at most {self.max_message_bytes} are sent")

    def _items(self, messages: Iterable[Message]) -> Iterator[tuple[str, BatchItem]]:
        """Yield each message as an item of a batch, see :meth:`item`.

        Raises ``InvalidArgumentError`` if the messages cannot be in the same batch.
        """
        first: Message | None = None
        for message in messages:
            first = first or message
            if (message.topic, message.wait_store) != (first.topic, first.wait_store):
                raise InvalidArgumentError("all messages of a batch must have the same topic and the same wait_store")
            is_delayed = message.delay_level or (message.properties and not TIMERS.isdisjoint(message.properties))
            if is_delayed or message.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                raise InvalidArgumentError("a batch cannot be delayed, nor go to a retry topic")
            yield self.item(message)


def _properties_text(message: Message, uniq_key: str) -> str:
    if message.properties or message.delay_level > 0:
        properties = message.wire_properties(uniq_key)
        text, expected, is_named = properties_to_string(properties), len(properties), "" not in properties
    else:
        text, expected, is_named = message.wire_text(uniq_key), 2 + bool(message.keys) + bool(message.tags), True
    if not is_named or text.count(NAME_VALUE_SEPARATOR) != expected or text.count(PROPERTY_SEPARATOR) != expected - 1:
        raise InvalidArgumentError(_wrong_property(message.wire_properties(uniq_key)))
    if len(text) > _SHORT and len(text.encode()) > PROPERTIES_MAX_BYTES:
        raise InvalidArgumentError(
            f"properties of {len(text.encode())} bytes, at most {PROPERTIES_MAX_BYTES} are stored"
        )
    return text


def _wrong_property(properties: Mapping[str, str]) -> str:
    wrong = next(name for name, value in properties.items() if not name or _SEPARATORS & {*name, *value})
    return f"property {wrong!r} has no name, or contains a separator (0x01, 0x02)"

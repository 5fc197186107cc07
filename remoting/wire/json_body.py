"""JSON bodies: read whatever a peer sends, write what a peer can read (docs/internals/protocol.md, JSON dialect).

Clients of the field read three dialects: fastjson's own with unquoted numeric keys and objects as keys (old Go clients need
it), strict JSON (clients from 4.9.4 on ask for it in route requests), and both. A body is a struct whose fields carry the
wire's names in alphabetical order, which is the order fastjson writes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, Literal, Self, TypeVar, get_args

import msgspec

from flintmq.core import limits
from flintmq.core.errors import JsonSyntaxError
from flintmq.core.io import fastjson
from flintmq.core.io.fastjson.reader import check_depth
from flintmq.core.io.typed_json import read_as
from flintmq.remoting.wire.codes import language_name

Style = Literal["fastjson", "standard"]
"""``standard`` quotes every key, sorts maps and escapes what is not ASCII."""

T = TypeVar("T")

ConsumeFromWhere = Literal[
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
]
ConsumeType = Literal["CONSUME_ACTIVELY", "CONSUME_PASSIVELY"]
MessageModel = Literal["BROADCASTING", "CLUSTERING"]

_ORDINALS: Final[dict[str, tuple[str, ...]]] = {
    "consumeType": get_args(ConsumeType),
    "messageModel": get_args(MessageModel),
    "consumeFromWhere": get_args(ConsumeFromWhere),
}
"""Enums that C++ clients send as ordinals."""


IN_LOOP_MAX_BYTES: Final = 16 * 1024
"""Of an answer that is read without a thread: some 10 ms, whatever its dialect."""


def dumps(value: Any, style: Style = "fastjson") -> bytes:
    """Return structs, mappings, lists and scalars as a body; members that are None are left out.

    Raises:
        TypeError: a value has no place in JSON.
    """
    standard = style == "standard"
    text = fastjson.dumps(value, unquoted_int_keys=not standard, sort_keys=standard, ascii_only=standard)
    return text.encode("utf-8", "replace")


def decode_body(data: bytes, model: type[T], *, dialect_max_bytes: int = limits.JSON_BODY_MAX_BYTES) -> T:
    """Read a body as a type: the fast way when it is plain JSON of the right types, leniently otherwise.

    Args:
        data: as received; an empty body is read as an empty object.
        model: what it is read as.
        dialect_max_bytes: a longer body must be plain JSON; the reader of fastjson's dialect takes a microsecond a character.

    Raises:
        JsonSyntaxError: it cannot be read; JsonTypeError where it is not of this type.
    """
    data = data or b"{}"
    if b'"$ref"' not in data:
        try:
            value = msgspec.json.decode(data, type=model, strict=False)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            pass  # the lenient way below says what is wrong
        else:
            check_depth(data)
            return value
    return read_as(_with_names(fastjson.loads(data, dialect_max_chars=dialect_max_bytes)), model)


def _with_names(value: Any) -> Any:
    """Return a value in which ordinals of known enums are replaced by names."""
    if isinstance(value, dict):
        return {key: _with_names(_named(key, member)) for key, member in value.items()}
    if isinstance(value, list):
        return [_with_names(item) for item in value]
    return value


def _named(key: Any, member: Any) -> Any:
    if isinstance(member, int) and not isinstance(member, bool):
        if key == "language":
            return language_name(member)
        names = _ORDINALS.get(key, ())
        if 0 <= member < len(names):
            return names[member]
    return member


def decode_request_body(data: bytes, model: type[T]) -> T:
    """Read the body of a client's request, which may be smaller and have fewer objects than an answer: the loop waits for it.

    Raises:
        JsonSyntaxError: it is too large, or cannot be read.
    """
    if len(data) > limits.REQUEST_JSON_MAX_BYTES:
        raise JsonSyntaxError(f"a body of {len(data)} bytes; at most {limits.REQUEST_JSON_MAX_BYTES}")
    objects = data.count(b"{")
    if objects > limits.REQUEST_JSON_MAX_OBJECTS:
        raise JsonSyntaxError(f"a body of {objects} objects; at most {limits.REQUEST_JSON_MAX_OBJECTS}")
    return decode_body(data, model, dialect_max_bytes=limits.REQUEST_JSON_DIALECT_MAX_BYTES)


class Body(msgspec.Struct, rename="camel"):
    """The base of most bodies. All fields have defaults, because RocketMQ takes whatever is there."""

    def encode(self, style: Style = "fastjson") -> bytes:
        """Return the body as bytes."""
        return dumps(self, style)

    @classmethod
    def of_request(cls, data: bytes) -> Self:
        """Read the body of a client's request; see :func:`decode_request_body`."""
        return decode_request_body(data, cls)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a body; see :func:`decode_body`."""
        return decode_body(data, cls)


class PlainBody(Body):
    """A body whose two styles are equal to every reader, and that has neither a nullable member nor a set."""

    def encode(self, style: Style = "fastjson") -> bytes:
        """Return the body as bytes, written in one call where that does."""
        return msgspec.json.encode(self) if style == "fastjson" else dumps(self, style)


async def decode_answer(data: bytes, model: type[T]) -> T:
    """Read a broker's answer as :func:`decode_body` does; a thread reads a long one.

    The reader of fastjson's dialect takes a microsecond a character: positions of a topic with thousands of queues would keep
    the loop for seconds.
    """
    decode = model.decode if issubclass(model, Body) else partial(decode_body, model=model)
    return decode(data) if len(data) <= IN_LOOP_MAX_BYTES else await asyncio.to_thread(decode, data)

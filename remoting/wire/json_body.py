"""Reads JSON bodies in any dialect that peers send, and writes the dialect that a peer can read.

Some clients, such as old Go clients, read only fastjson's dialect, with unquoted numbers and objects as keys. Some clients read
only strict JSON; clients since version 4.9.4 ask for strict JSON in routes. Other clients read both dialects. A body is a
struct whose fields have the wire's names in alphabetical order, in which fastjson writes them. See docs/internals/protocol.md,
JSON dialect.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, Literal, Self, TypeVar, get_args

import msgspec

from flintmq.core import limits
from flintmq.core.errors import JsonSyntaxError
from flintmq.core.io import fastjson
from flintmq.core.io.fastjson.reader import check_depth
from flintmq.core.io.threads import background
from flintmq.core.io.typed_json import read_as
from flintmq.remoting.wire.codes import language_name

Style = Literal["fastjson", "standard"]
"""Dialect of written JSON: ``fastjson``, or ``standard``, which quotes all keys, sorts maps and escapes non-ASCII text."""

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
"""Names of the enum members that C++ clients send as numbers, keyed by the name of the JSON member."""


IN_LOOP_MAX_BYTES: Final = 16 * 1024
"""Maximum size in bytes of an answer's body that is decoded on the event loop. Decoding a body of this size takes up to 10 ms
in any dialect of JSON. Larger bodies are decoded on a thread."""


def dumps(value: Any, style: Style = "fastjson") -> bytes:
    """Return a value (structs, mappings, lists and scalars) encoded as a JSON body; members that are None are left out.

    Raises:
        TypeError: a value cannot be encoded as JSON.
    """
    standard = style == "standard"
    text = fastjson.dumps(value, unquoted_int_keys=not standard, sort_keys=standard, ascii_only=standard)
    return text.encode("utf-8", "replace")


def decode_body(data: bytes, model: type[T], *, dialect_max_bytes: int = limits.JSON_BODY_MAX_BYTES) -> T:
    """Return a JSON body decoded as a type. The fast reader reads plain JSON with the right types.

    The lenient reader reads other bodies.

    Args:
        data: the received body; an empty body counts as an empty object.
        model: the type to decode the body into.
        dialect_max_bytes: the maximum size of a body in fastjson's dialect, whose reader takes a microsecond per character.

    Raises:
        JsonSyntaxError: the body cannot be read.
        JsonTypeError: a member has a wrong type.
    """
    data = data or b"{}"
    if b'"$ref"' not in data:
        try:
            value = msgspec.json.decode(data, type=model, strict=False)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            # The lenient fastjson reader accepts a body that msgspec rejects, or reports the error.
            pass
        else:
            check_depth(data)
            return value
    return read_as(_with_names(fastjson.loads(data, dialect_max_chars=dialect_max_bytes)), model)


def _with_names(value: Any) -> Any:
    """Return a JSON value in which the names of enum members replace the numbers that some clients send instead."""
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
    """Return the body of a client's request decoded as a type.

    The limits of requests' bodies are lower than those of answers, because the event loop decodes the bodies.

    Raises:
        JsonSyntaxError: the body is too large, has too many objects, or cannot be read.
    """
    if len(data) > limits.REQUEST_JSON_MAX_BYTES:
        raise JsonSyntaxError(f"a body of {len(data)} bytes; at most {limits.REQUEST_JSON_MAX_BYTES}")
    objects = data.count(b"{")
    if objects > limits.REQUEST_JSON_MAX_OBJECTS:
        raise JsonSyntaxError(f"a body of {objects} objects; at most {limits.REQUEST_JSON_MAX_OBJECTS}")
    return decode_body(data, model, dialect_max_bytes=limits.REQUEST_JSON_DIALECT_MAX_BYTES)


class Body(msgspec.Struct, rename="camel"):
    """The base class of most JSON bodies. All fields have defaults, because RocketMQ accepts bodies with missing members."""

    def encode(self, style: Style = "fastjson") -> bytes:
        """Return the body encoded as JSON in the given style: fastjson's dialect or standard JSON."""
        return dumps(self, style)

    @classmethod
    def of_request(cls, data: bytes) -> Self:
        """Return the body of a client's request decoded as this type, see :func:`decode_request_body`."""
        return decode_request_body(data, cls)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return a JSON body decoded as this type, see :func:`decode_body`."""
        return decode_body(data, cls)


class PlainBody(Body):
    """The base class of bodies whose JSON is the same in fastjson's dialect and in standard JSON.

    The bodies have no nullable members and no sets.
    """

    def encode(self, style: Style = "fastjson") -> bytes:
        """Return the body encoded as JSON. A single fast call of the encoder is used if possible."""
        return msgspec.json.encode(self) if style == "fastjson" else dumps(self, style)


async def decode_answer(data: bytes, model: type[T]) -> T:
    """Return a broker's answer decoded like :func:`decode_body`. A long answer is decoded on a thread.

    The reader of fastjson's dialect takes a microsecond per character. On the event loop, this reader would block all other
    work for seconds if an answer has the offsets of a topic with thousands of queues.
    """
    decode = model.decode if issubclass(model, Body) else partial(decode_body, model=model)
    return decode(data) if len(data) <= IN_LOOP_MAX_BYTES else await background(decode, data)

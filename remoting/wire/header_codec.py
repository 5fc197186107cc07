"""Converts extFields to typed headers and back (docs/internals/protocol.md, Errors before a processor).

On the wire a request's header is a map of strings. A typed header is a struct whose fields have the wire's names; numbers and
booleans are parsed from text. A field without a default is required.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, TypeVar

import msgspec

from flintmq.core.errors import RefusedError
from flintmq.core.io import typed_json
from flintmq.core.record.java_number import parse_int, parse_long
from flintmq.core.response_code import ResponseCode

if TYPE_CHECKING:
    from flintmq.core.io.typed_json import Int as Int
    from flintmq.core.io.typed_json import Long as Long
else:
    # Unlike Java, msgspec accepts "1.0" and "1e3" as integers if float is not an alternative.
    # With float as an alternative, msgspec reads "1.0" as a float. No float is >= 1 and <= -1, so msgspec rejects "1.0".
    # If msgspec has rejected a number, parse_int() or parse_long() reads the number's text as Java does.
    _NEVER = Annotated[float, msgspec.Meta(ge=1, le=-1)]
    Int = typed_json.Int | _NEVER
    Long = typed_json.Long | _NEVER


class CommandHeader(msgspec.Struct, kw_only=True, gc=False, rename="camel"):
    """The base class of typed headers of requests and answers. Unknown fields are ignored, as in RocketMQ."""

    refuses_no_numbers: ClassVar[bool] = False
    """Whether a header with an invalid value of an optional number is refused, as by RocketMQ's ``FastCodesHeader.decode``."""

    @classmethod
    def of_fields(cls, ext_fields: dict[str, str] | None) -> Self:
        """Return the typed header in a command's extFields; see :func:`decode_header`."""
        return decode_header(cls, ext_fields)


H = TypeVar("H", bound=CommandHeader)


@functools.cache
def _fields(model: type[CommandHeader]) -> tuple[tuple[str, str, Callable[[str], Any], bool], ...]:
    """Return each field of a header's type: its attribute, its wire name, its parser, and whether it is required.

    The result is cached for each type.
    """
    return tuple((f.name, f.encode_name, _reader(f.type), f.required) for f in msgspec.structs.fields(model))


def _reader(field_type: Any) -> Callable[[str], Any]:
    """Return the function that parses the text of a header field. The function raises ``ValueError`` if the text is invalid."""
    kinds = {field_type, *typing.get_args(field_type)}
    if typed_json.Int in kinds:
        return parse_int
    if typed_json.Long in kinds or int in kinds:
        return parse_long
    return lambda text: msgspec.convert(text, field_type, strict=False)


def decode_header(model: type[H], ext_fields: dict[str, str] | None) -> H:
    """Return the typed header in a command's extFields.

    An optional field that is absent gets its default. A value that cannot be parsed counts as absent. Required fields are
    checked afterwards.

    Raises:
        RefusedError: a required field is missing (code 1, ``the custom field <name> is null``).
    """
    if ext_fields is None:
        ext_fields = {}
    try:
        return msgspec.convert(ext_fields, model, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError):
        # msgspec raises UnicodeEncodeError for a text with a lone surrogate, which can result from an escape in JSON.
        # If msgspec rejects a header, the header's fields are decoded one by one, with numbers as in Java.
        return _decode_field_by_field(model, ext_fields)


def _decode_field_by_field(model: type[H], ext_fields: dict[str, str]) -> H:
    values: dict[str, Any] = {}
    for name, wire_name, read, required in _fields(model):
        text = ext_fields.get(wire_name)
        if text is not None:
            try:
                values[name] = read(text)
                continue
            except ValueError as failure:
                if required or (model.refuses_no_numbers and read in (parse_int, parse_long)):
                    raise _missing(wire_name, measured=f"{text[:64]!r}") from failure
        if required:
            raise _missing(wire_name)
    return model(**values)


def _missing(wire_name: str, measured: str = "") -> RefusedError:
    return RefusedError(
        ResponseCode.SYSTEM_ERROR,
        f"the custom field <{wire_name}> is null",
        reason="header.incomplete",
        measured=measured,
    )


def encode_header(header: CommandHeader) -> dict[str, str]:
    """Return a typed header as extFields, with each value as text. Fields that are None are left out."""
    ext_fields: dict[str, str] = {}
    for name, wire_name, _, _ in _fields(type(header)):
        value = getattr(header, name)
        if value is not None:
            ext_fields[wire_name] = str(value).lower() if value is True or value is False else str(value)
    return ext_fields


ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""A field that RocketMQ's client signs, and that RocketMQ's broker leaves out when it checks a signature. FlintMQ accepts
signatures with and without the field."""
SIGNED_AT: Final = "FlintSignedAt"
"""Name of a field that FlintMQ's client adds to signed requests, with the value ``<ms since 1970>-<random number>``. If
``acl.replay_window_ms`` is set, the broker refuses a request whose time differs too much from the broker's time."""

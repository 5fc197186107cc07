"""Conversion of JSON values to typed structs, with RocketMQ's types: a value that a RocketMQ broker could not read is refused.

Request bodies and configuration files are structs whose fields have these types; :func:`read_as` converts a value to a struct.
Like fastjson, :func:`read_as` accepts numbers and booleans that are written as text. It treats null as an absent member,
accepts numbers as the keys of maps with text keys, and ignores unknown members.
"""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from flintmq.core.errors import JsonTypeError, StoreFormatError

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""Type of a Java ``int``, an integer of 32 bits."""
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Type of a Java ``long``, an integer of 64 bits."""

_NAMES: Final[dict[Any, str]] = {
    Int: f"an int ({-(2**31)} to {2**31 - 1})",
    Long: f"a long ({-(2**63)} to {2**63 - 1})",
    bool: "a boolean",
    str: "a string",
    float: "a number",
}
_FAILURES: Final = (msgspec.ValidationError, RecursionError, TypeError)
_LISTS: Final = (list, tuple, frozenset)
_MEASURED_MAX: Final = 100

T = TypeVar("T")


def read_as(value: Any, model: type[T]) -> T:
    """Return a JSON value converted to a type.

    Args:
        value: a result of :func:`flintmq.core.io.fastjson.loads`.
        model: a struct with fields of this module's types, or a list or dict of such structs.

    Raises:
        JsonTypeError: a member has a wrong type or is out of range; the message states its name and value.
    """
    try:
        return msgspec.convert(value, model, strict=False)
    except _FAILURES:
        plain = _plain(value)
    try:
        return msgspec.convert(plain, model, strict=False)
    except _FAILURES as failure:
        path, member, wanted = _fault(plain, model, "")
        field, measured = path or "the value", _brief(member)
        raise JsonTypeError(
            f"{field} is {measured}, and must be {_name(wanted, failure)}", field, measured
        ) from failure


@contextlib.contextmanager
def of_file(path: Path | None) -> Iterator[None]:
    """Convert a JsonTypeError of a ``with`` block that reads a file into a StoreFormatError with the file's path."""
    try:
        yield
    except JsonTypeError as error:
        raise StoreFormatError(f"{path}: {error}") from error


def _plain(value: Any) -> Any:
    """Return a JSON value without members that are null, and with keys that are numbers converted to text.

    fastjson writes a number as a key without quotes, and reads it as the declared type of the map's keys.
    """
    if isinstance(value, dict):
        return {_plain_key(key): _plain(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _plain_key(key: Any) -> Any:
    return "null" if key is None else str(key) if isinstance(key, (int, float)) else key


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, strict=False)
    except _FAILURES:
        return False
    return True


def _fault(value: Any, kind: Any, path: str) -> tuple[str, Any, Any]:
    """Return the path, the value and the required type of the JSON member whose value does not have its required type."""
    for name, member, wanted in _members(value, kind):
        if not _fits(member, wanted):
            return _fault(member, wanted, f"{path}.{name}" if path else str(name))
    return path, value, kind


def _members(value: Any, kind: Any) -> Iterator[tuple[object, Any, Any]]:
    origin = typing.get_origin(kind)
    if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            if field.encode_name in value:
                yield field.encode_name, value[field.encode_name], field.type
    elif isinstance(value, Mapping) and origin is dict:
        key_kind, member_kind = typing.get_args(kind)
        for key, member in value.items():
            yield key, key, key_kind
            yield key, member, member_kind
    elif isinstance(value, list) and origin in _LISTS:
        for number, item in enumerate(value):
            yield number, item, typing.get_args(kind)[0]


def _name(kind: Any, failure: Exception) -> str:
    if kind in _NAMES:
        return _NAMES[kind]
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(typing.get_args(kind))
    if typing.get_origin(kind) in _LISTS:
        return "a list"
    if typing.get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        text = str(failure)
        return (
            f"an object with {text.partition('`')[2].partition('`')[0]}" if "missing required" in text else "an object"
        )
    return str(failure).partition(" - at")[0]


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MEASURED_MAX else f"{text[: _MEASURED_MAX - 3]}..."

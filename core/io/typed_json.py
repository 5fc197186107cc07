"""JSON values as RocketMQ's types: what its broker could not take for an int, a long, a boolean or an enum is refused here.

Bodies of requests and configuration files are structs whose fields have these types; :func:`read_as` is the one way from a
value to a struct. As fastjson does, it takes a number or a boolean from its text, a null for what is not there, a number as the
key of a map whose keys are text, and leaves members alone that it does not know.
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
"""Java's int, of 32 bits."""
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's long, of 64 bits."""

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
    """Return a value as a type.

    Args:
        value: what :func:`flintmq.core.io.fastjson.loads` returns.
        model: a struct, or a list or a dict of some, with fields of this module's types.

    Raises:
        JsonTypeError: a member is of another type or beyond its range; names it with its value.
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
    """Raise a wrong type that the body finds in a file as StoreFormatError, with the name of the file."""
    try:
        yield
    except JsonTypeError as error:
        raise StoreFormatError(f"{path}: {error}") from error


def _plain(value: Any) -> Any:
    """Return a value without nulls, and with numbers among the keys as text: fastjson writes a key that is a number without
    quotes, whatever the map is read as, and reads it as what the map is declared to have."""
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
    """Return the place where a value does not fit a type: its path, the member that stands there, and the type it needs."""
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

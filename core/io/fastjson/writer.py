"""Writes values in fastjson's dialect: bodies on one line, configuration files indented with tabs."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec


def dumps(value: Any, *, unquoted_int_keys: bool = True, sort_keys: bool = False, ascii_only: bool = False) -> str:
    """Return a value as JSON on one line, without members that are None.

    Args:
        value: a struct, mapping, sequence, set, string, number, boolean or None. The members of a struct are written in
            alphabetical order. Structs and mappings that are keys are written as objects. NaN and infinity are written as null.
        unquoted_int_keys: write ``{0:1}`` as fastjson does; False quotes every key, as in standard JSON.
        sort_keys: write the members of mappings in alphabetical order.
        ascii_only: write characters beyond ASCII as ``\\uXXXX``.

    Raises:
        TypeError: the type of a value is not supported.
    """
    return _Writer(unquoted_int_keys, sort_keys, ascii_only, pretty=False).text(value)


def dumps_pretty(value: Any) -> str:
    """Return a value in the format of RocketMQ's configuration files: indented by tabs, with each map with numeric keys on one
    line."""
    return _Writer(unquoted_int_keys=True, sort_keys=False, ascii_only=False, pretty=True).text(value)


@functools.cache
def _names_of(struct: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Return the fields of a struct as pairs (name in JSON, name of the attribute), sorted by the name in JSON."""
    return sorted(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))


class _Writer:
    def __init__(self, unquoted_int_keys: bool, sort_keys: bool, ascii_only: bool, *, pretty: bool) -> None:
        self.unquoted_int_keys = unquoted_int_keys
        self.sort_keys = sort_keys
        self.quote = json.encoder.encode_basestring_ascii if ascii_only else json.encoder.encode_basestring
        self.pretty = pretty
        self.parts: list[str] = []

    def text(self, value: Any) -> str:
        self.write(value, 0)
        return "".join(self.parts)

    def write(self, value: Any, indent: int) -> None:
        if isinstance(value, str):
            self.parts.append(self.quote(value))
        elif value is None or value is True or value is False:
            self.parts.append({None: "null", True: "true", False: "false"}[value])
        elif isinstance(value, int):
            self.parts.append(str(int(value)))
        elif isinstance(value, float):
            self.parts.append(repr(value) if math.isfinite(value) else "null")
        elif isinstance(value, Mapping):
            self.members(value.items(), indent)
        elif isinstance(value, msgspec.Struct):
            self.members(((name, getattr(value, attribute)) for name, attribute in _names_of(type(value))), indent)
        elif isinstance(value, AbstractSet):
            self.items(sorted(value), indent)
        elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
            self.items(value, indent)
        else:
            raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")

    def break_line(self, indent: int) -> None:
        if self.pretty:
            self.parts.append("\n" + "\t" * indent)

    def members(self, found: Iterable[tuple[Any, Any]], indent: int) -> None:
        members = [(key, member) for key, member in found if member is not None]
        if self.sort_keys:
            members.sort(key=lambda item: str(item[0]))
        self.parts.append("{")
        for number, (key, member) in enumerate(members):
            if number:
                self.parts.append(",")
            if isinstance(key, str):
                self.break_line(indent + 1)
            self.key(key, indent + 1)
            self.parts.append(":")
            self.write(member, indent + 1)
        if members:
            self.break_line(indent)
        self.parts.append("}")

    def key(self, key: Any, indent: int) -> None:
        if isinstance(key, str):
            self.parts.append(self.quote(key))
        elif self.unquoted_int_keys:
            self.write(key, indent)
        else:
            plain = _Writer(False, self.sort_keys, False, pretty=False).text(key)
            self.parts.append(self.quote(plain))

    def items(self, value: Sequence[Any], indent: int) -> None:
        lines = any(isinstance(item, (Mapping, list, tuple)) for item in value)
        self.parts.append("[")
        for number, item in enumerate(value):
            if number:
                self.parts.append(",")
            if lines:
                self.break_line(indent + 1)
            self.write(item, indent + 1)
        if lines:
            self.break_line(indent)
        self.parts.append("]")

"""Decodes Avro's binary encoding for display, with limits on depth, number of values and time.

fastavro (extra ``avro``) is faster but has no limits: a body of a few bytes can claim a list of 2^60 nulls, or nest until the
stack overflows. A message must not be able to block the console. See the specification of Avro 1.11, "Binary Encoding".
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

VALUES_MAX: Final = 50_000
DEPTH_MAX: Final = 64
NAME_MAX_CHARS: Final = 1_000
TIME_MAX_S: Final = 1.0
"""Maximum processor time, in seconds, for decoding a message body. The decoder compares its processor time with this maximum
only once for every :data:`_LOOKED_EACH` (1,024) decoded values, because a comparison for each value would be slow."""
_LOOKED_EACH: Final = 1_024
SCHEMA_MAX_CHARS: Final = 200_000
_CONFLUENT_BYTES: Final = 5
"""Size of the header that serializers with a schema registry write before the body: a zero byte and the schema's number."""
_SINGLE_OBJECT: Final = b"\xc3\x01"
_SINGLE_OBJECT_BYTES: Final = 10
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class AvroError(ValueError):
    """An Avro schema is not valid, or a body does not match the schema. The error's message explains the problem to the
    user."""


def decode(schema_text: str, body: bytes) -> Any:
    """Return the value of a body, made of dicts, lists, strings and numbers; bytes become hexadecimal text.

    The header of a schema registry or of the single-object encoding is skipped.

    Args:
        schema_text: the schema of the body as JSON; the name of a primitive type needs no quotes.
        body: the message's body.

    Raises:
        AvroError: the schema is not valid, the body does not match it, or the body is too large to show.
    """
    schema = Schema(schema_text)
    starts = [0]
    if body[:1] == b"\x00" and len(body) > _CONFLUENT_BYTES:
        starts.append(_CONFLUENT_BYTES)
    if body[:2] == _SINGLE_OBJECT:
        starts.append(_SINGLE_OBJECT_BYTES)
    failure: AvroError | None = None
    for start in starts:
        try:
            return schema.read(body[start:])
        except AvroError as error:
            failure = failure or error
    assert failure is not None
    raise failure


class Schema:
    """An Avro schema that decodes bodies, one at a time. Not thread-safe.

    Args:
        text: the schema as JSON.

    Raises:
        AvroError: the text is not a valid schema.
    """

    def __init__(self, text: str) -> None:
        if len(text) > SCHEMA_MAX_CHARS:
            raise AvroError(f"the schema is longer than {SCHEMA_MAX_CHARS:,} characters")
        self._named: dict[str, Mapping[str, Any]] = {}
        self._body = b""
        self._at = 0
        self._left = 0
        self._until_s = 0.0
        self._readers: dict[str, Callable[[], Any]] = {
            "null": lambda: None,
            "boolean": lambda: self._take(1) != b"\x00",
            "int": self._long,
            "long": self._long,
            "float": lambda: struct.unpack("<f", self._take(4))[0],
            "double": lambda: struct.unpack("<d", self._take(8))[0],
            "bytes": lambda: self._take(self._long()).hex(),
            "string": self._string,
        }
        if text.strip() in _PRIMITIVES:
            self._schema: Any = text.strip()
            return
        try:
            self._schema = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise AvroError(f"the schema is not JSON: {error}") from error
        self._note_names(self._schema, "", 0)

    def read(self, body: bytes) -> Any:
        """Return the value of a whole Avro body. Raises AvroError."""
        self._body, self._at, self._left = body, 0, VALUES_MAX
        self._until_s = time.thread_time() + TIME_MAX_S
        try:
            found = self._value(self._schema, "", 0)
        finally:
            self._body = b""
        if self._at != len(body):
            raise AvroError(f"the body does not end after its value; bytes left: {len(body) - self._at:,}")
        return found

    # --- reading the Avro schema ---

    def _note_names(self, schema: Any, space: str, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise AvroError("the schema nests too deep")
        if isinstance(schema, list):
            for branch in schema:
                self._note_names(branch, space, depth + 1)
        elif isinstance(schema, dict):
            kind = schema.get("type")
            if kind in ("record", "error", "enum", "fixed"):
                space = self._note_name(schema, space)
            for inner in (schema.get("items"), schema.get("values"), kind if isinstance(kind, (dict, list)) else None):
                self._note_names(inner, space, depth + 1)
            fields = schema.get("fields", [])
            if not isinstance(fields, list) or not all(
                isinstance(field, dict) and isinstance(field.get("name"), str) for field in fields
            ):
                raise AvroError("fields of a record are a list of objects with a name and a type")
            for field in fields:
                self._note_names(field.get("type"), space, depth + 1)

    def _note_name(self, schema: dict[str, Any], space: str) -> str:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise AvroError(f"a {schema['type']} in the schema has no name")
        own = schema.get("namespace", space)
        if not isinstance(own, str) or len(name) + len(own) > NAME_MAX_CHARS:
            raise AvroError(f"a name and its namespace are texts of at most {NAME_MAX_CHARS} characters together")
        full = name if "." in name or not own else f"{own}.{name}"
        self._named[full] = schema
        schema["_space"] = full.rpartition(".")[0]
        return str(schema["_space"])

    # --- decoding the body of a message ---

    def _value(self, schema: Any, space: str, depth: int) -> Any:
        self._count()
        if depth > DEPTH_MAX:
            raise AvroError(f"the body nests deeper than {DEPTH_MAX}")
        if isinstance(schema, list):
            return self._value(self._branch(schema), space, depth + 1)
        if isinstance(schema, dict):
            return self._complex(schema, space, depth)
        read = self._readers.get(schema) if isinstance(schema, str) else None
        if read is not None:
            return read()
        named = self._named.get(f"{space}.{schema}", self._named.get(schema)) if isinstance(schema, str) else None
        if named is None:
            raise AvroError(f"the schema names a type {str(schema)[:80]!r} that the schema does not define")
        return self._complex(named, space, depth)

    def _count(self) -> None:
        """Count one more decoded value. Raises AvroError if there are too many values or decoding takes too long."""
        self._left -= 1
        if self._left < 0:
            raise AvroError(f"the body has more than {VALUES_MAX:,} values: download the body")
        if not self._left % _LOOKED_EACH and time.thread_time() > self._until_s:
            raise AvroError("decoding the body takes too long: download the body")

    def _complex(self, schema: Mapping[str, Any], space: str, depth: int) -> Any:
        kind, space = schema.get("type"), schema.get("_space", space)
        if kind in ("record", "error"):
            return {one["name"]: self._value(one.get("type"), space, depth + 1) for one in schema.get("fields", ())}
        if kind == "enum":
            symbols, index = schema.get("symbols", ()), self._long()
            if not 0 <= index < len(symbols):
                raise AvroError(f"an enum has no symbol {index}")
            return symbols[index]
        if kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or size < 0:
                raise AvroError("a type 'fixed' in the schema has no valid size")
            return self._take(size).hex()
        if kind == "array":
            return [self._value(schema.get("items"), space, depth + 1) for _ in self._blocks()]
        if kind == "map":
            return {self._string(): self._value(schema.get("values"), space, depth + 1) for _ in self._blocks()}
        if kind is None or kind is schema:
            raise AvroError("a part of the schema has no type")
        return self._value(kind, space, depth + 1)

    def _branch(self, branches: list[Any]) -> Any:
        index = self._long()
        if not 0 <= index < len(branches):
            raise AvroError(f"a union has no branch {index}")
        return branches[index]

    def _blocks(self) -> Any:
        """Yield None before each entry of an Avro array or map; the caller then reads the entry. Each entry counts toward the
        limit of values, even if the entry has no bytes."""
        while True:
            count = self._long()
            if count < 0:
                count = -count
                self._long()
            if not count:
                return
            for _ in range(count):
                self._count()
                yield None

    def _string(self) -> str:
        return self._take(self._long()).decode("utf-8", "replace")

    def _long(self) -> int:
        found = shift = 0
        while True:
            byte = self._take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
            if shift > 63:
                raise AvroError("a number is longer than ten bytes")

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._body) - self._at:
            raise AvroError("the body ends before its value is complete, or has another schema")
        found = self._body[self._at : self._at + size]
        self._at += size
        return found

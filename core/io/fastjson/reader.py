"""Reads JSON and fastjson's dialect, with limits on size and depth."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from flintmq.core.errors import JsonSyntaxError
from flintmq.core.limits import JSON_BODY_MAX_BYTES, JSON_MAX_DEPTH

_SPACE: Final = re.compile(r"(?:[ \t\r\n\f\b]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
"""Pattern of blanks and comments, which the reader skips."""
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_NAME: Final = re.compile(r"[A-Za-z_$%][^\s:,{}\[\]\"']*")
_PLAIN: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_ESCAPES: Final = {"b": "\b", "f": "\f", "F": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "/": "/"} | {
    str(number): chr(number) for number in range(8)
}
_WORDS: Final = {"null": None, "undefined": None, "true": True, "false": False, "NaN": None}
_NUMBER_SUFFIXES: Final = "LlSsBbFfDd"
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'{}[]"'))
_MAX_DIGITS: Final = 40
"""Maximum length of a number in JSON. No field of the protocol has a longer number, and the time to convert a text to an
integer grows with the square of its length."""


def loads(
    text: str | bytes | bytearray | memoryview,
    *,
    max_depth: int = JSON_MAX_DEPTH,
    dialect_max_chars: int = JSON_BODY_MAX_BYTES,
) -> Any:
    """Return the value of a text in JSON or in fastjson's dialect.

    Args:
        text: at most ``limits.JSON_BODY_MAX_BYTES`` characters, or bytes of UTF-8.
        max_depth: maximum depth of nested objects and lists.
        dialect_max_chars: maximum length of a text that is not plain JSON.

    Returns:
        Dicts, lists, strings, numbers, booleans or None. A key that is an unquoted number is an int, and a quoted key is a
        string. A key that is an object is an :class:`ObjectKey`.

    Raises:
        JsonSyntaxError: the text is malformed, too long, or nests too deep.
    """
    if len(text) > JSON_BODY_MAX_BYTES:
        raise JsonSyntaxError(f"{len(text)} bytes of JSON, at most {JSON_BODY_MAX_BYTES} are read")
    if not isinstance(text, str):
        try:
            text = bytes(text).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise JsonSyntaxError(f"JSON is not UTF-8: {error.reason} at byte {error.start}") from error
    try:
        value = msgspec.json.decode(text)
        check_depth(text, max_depth)
    except msgspec.DecodeError as error:
        if len(text) > dialect_max_chars:
            raise JsonSyntaxError(
                f"the text of {len(text)} characters is not standard JSON: {error}; a text in fastjson's dialect may have "
                f"at most {dialect_max_chars} characters"
            ) from error
        value = Reader(text, max_depth).document()
    except RecursionError as error:
        # The text nests so deep that the reader reached Python's recursion limit.
        raise JsonSyntaxError(f"JSON nests deeper than {max_depth}") from error
    if '"$ref"' in text:
        value = References(value, text).resolved()
    return value


def check_depth(text: str | bytes, max_depth: int = JSON_MAX_DEPTH) -> None:
    """Check that plain JSON does not nest too deep. A parser's own limit differs between interpreters; this limit does not.

    Args:
        text: valid JSON.
        max_depth: maximum number of objects and lists around a value.

    Raises:
        JsonSyntaxError: the text nests deeper.
    """
    openings = text.count("{") + text.count("[") if isinstance(text, str) else text.count(b"{") + text.count(b"[")
    if openings <= max_depth:
        return
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    brackets = data.translate(None, _NO_BRACKETS).replace(b'""', b"")
    if b'"' in brackets or b"\\" in data:
        # Brackets inside strings do not count as nesting.
        # If strings of the text contain brackets or escaped quotes, all strings are removed before the nesting is measured.
        brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    # Each pass of the loop removes the innermost pairs of brackets. Most JSON texts need at most six passes.
    for _ in range(max_depth):
        if not brackets:
            return
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    if brackets:
        raise JsonSyntaxError(f"JSON nests deeper than {max_depth}")


class Reader:
    """A recursive-descent parser of one text in fastjson's dialect."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.text = text
        self.at = 0
        self.max_depth = max_depth

    def document(self) -> Any:
        value = self.value(0)
        if self.peek():
            raise self.error("text after the end of the value")
        return value

    def error(self, what: str) -> JsonSyntaxError:
        return JsonSyntaxError(f"{what} at character {self.at} of {len(self.text)}")

    def peek(self) -> str:
        """Skip blanks and comments, and return the next character without consuming it; empty at the end."""
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Any:
        first = self.peek()
        if first == "{":
            return self.object(depth)
        if first == "[":
            return self.list(depth)
        if first in ('"', "'") and first:
            return self.string(first)
        if first in ("-", "+") or first.isdigit():
            return self.number()
        word = self.name()
        if word in _WORDS:
            return _WORDS[word]
        raise self.error(f"unknown word {word[:20]!r}")

    def check_depth(self, depth: int) -> None:
        if depth >= self.max_depth:
            raise self.error(f"JSON nests deeper than {self.max_depth}")

    def object(self, depth: int) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        self.check_depth(depth)
        self.at += 1
        while True:
            first = self.peek()
            if first == "}":
                self.at += 1
                return members
            if first == ",":
                self.at += 1
                continue
            key = self.key(first, depth + 1)
            if self.peek() != ":":
                raise self.error("a key without a value")
            self.at += 1
            members[key] = self.value(depth + 1)
            if self.peek() not in (",", "}"):
                raise self.error("neither ',' nor '}' after a member")

    def key(self, first: str, depth: int) -> Any:
        if first in ('"', "'") and first:
            return self.string(first)
        if first == "{":
            return ObjectKey(self.object(depth))
        if first in ("-", "+") or first.isdigit():
            return self.number()
        word = self.name()
        return None if word == "null" else word

    def list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self.check_depth(depth)
        self.at += 1
        while True:
            first = self.peek()
            if first == "]":
                self.at += 1
                return items
            if first == ",":
                self.at += 1
                continue
            items.append(self.value(depth + 1))
            if self.peek() not in (",", "]"):
                raise self.error("neither ',' nor ']' after an item")

    def string(self, quote: str) -> str:
        self.at += 1
        parts: list[str] = []
        while True:
            match = _PLAIN[quote].match(self.text, self.at)
            assert match is not None
            parts.append(match.group())
            self.at = match.end()
            mark = self.text[self.at : self.at + 2]
            if not mark:
                raise self.error("a string without an end")
            if mark[0] == quote:
                self.at += 1
                return _joined("".join(parts))
            parts.append(self.escape(mark[1:]))

    def escape(self, letter: str) -> str:
        self.at += 2
        if letter in ("u", "x"):
            digits = self.text[self.at : self.at + (4 if letter == "u" else 2)]
            self.at += len(digits)
            if not re.fullmatch(r"[0-9a-fA-F]{4}|[0-9a-fA-F]{2}", digits):
                raise self.error("a broken escape")
            return chr(int(digits, 16))
        return _ESCAPES.get(letter, letter)

    def number(self) -> Any:
        match = _NUMBER.match(self.text, self.at)
        if match is None or match.end() - self.at > _MAX_DIGITS:
            raise self.error("a broken number")
        self.at = match.end()
        if self.text[self.at : self.at + 1] in tuple(_NUMBER_SUFFIXES):
            self.at += 1
        return self.made(match.group(), not (match.group(1) or match.group(2)))

    @staticmethod
    def made(text: str, is_integer: bool) -> Any:
        """Return the value of a number that is written in JSON. Subclasses may return a type other than int and float."""
        return int(text) if is_integer else float(text)

    def name(self) -> str:
        match = _NAME.match(self.text, self.at)
        if match is None:
            raise self.error("expected a value or a name")
        self.at = match.end()
        return match.group()


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _joined(text: str) -> str:
    """Return a text with each pair of surrogates replaced by its character, and each lone surrogate by U+FFFD."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


_CONTAINERS: Final = (dict, list)
_REFERENCE_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[['\"]([^'\"]*)['\"]\]")


class References:
    """Replaces every ``{"$ref":"$.path"}`` by the value at that path of the same document, or by None if the document has no
    value at the path.

    A value that several references name is not copied: the result contains the same object several times. Code that walks the
    result visits the object once for each reference, so a text of 16 KB could cause millions of visits. To prevent this, the
    number of referenced values, counted once for each reference, is limited to the number of characters of the text.
    """

    def __init__(self, root: Any, text: str) -> None:
        self._root = root
        self._left = len(text)
        self._sizes: dict[int, int] = {}

    def resolved(self) -> Any:
        """Return the JSON document with each reference ``{"$ref":"$.path"}`` replaced by the value at its path.

        Raises:
            JsonSyntaxError: the document nests too deep, or the referenced values together exceed the limit.
        """
        return self._resolve(self._root, 0)

    def _resolve(self, value: Any, depth: int) -> Any:
        if depth > JSON_MAX_DEPTH:
            raise JsonSyntaxError(f"references nest deeper than {JSON_MAX_DEPTH}")
        below = depth + 1
        if type(value) is dict:
            path = value.get("$ref")
            if len(value) == 1 and isinstance(path, str):
                return self._named(path)
            return {
                key: self._resolve(member, below) if type(member) in _CONTAINERS else member
                for key, member in value.items()
            }
        if type(value) is list:
            return [self._resolve(item, below) if type(item) in _CONTAINERS else item for item in value]
        return value

    def _named(self, path: str) -> Any:
        target = _follow(path, self._root)
        if target is self._root:
            return None
        self._left -= self._size(target, 0)
        if self._left < 0:
            raise JsonSyntaxError("references expand to more values than allowed")
        return target

    def _size(self, value: Any, depth: int) -> int:
        """Return the number of values that a JSON value contains: the value itself, its members, the members of its members,
        and so on.
        """
        if type(value) not in _CONTAINERS:
            return 1
        known = self._sizes.get(id(value))
        if known is None:
            if depth > JSON_MAX_DEPTH:
                raise JsonSyntaxError(f"references nest deeper than {JSON_MAX_DEPTH}")
            known = 1 + len(value)
            for member in value.values() if type(value) is dict else value:
                if type(member) in _CONTAINERS:
                    known += self._size(member, depth + 1) - 1
            self._sizes[id(value)] = known
        return known


def _follow(path: str, root: Any) -> Any:
    value = root
    for match in _REFERENCE_STEP.finditer(path):
        name, index, quoted = match.groups()
        if index is not None and isinstance(value, list):
            value = value[int(index)] if int(index) < len(value) else None
        elif isinstance(value, dict):
            key = name or quoted or index
            value = value.get(key, value.get(int(key)) if key.isdigit() else None)
        else:
            return None
    return value


class ObjectKey(Mapping[str, Any]):
    """A hashable, read-only mapping, for a JSON object that is the key of another object. Two such keys are equal if their
    members are equal."""

    __slots__ = ("_hash", "_members")

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = dict(members)
        self._hash = hash(frozenset((name, _hashable(value)) for name, value in members.items()))

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ObjectKey):
            return self._members == other._members
        return NotImplemented

    def __repr__(self) -> str:
        return f"ObjectKey({self._members!r})"


def _hashable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return frozenset((name, _hashable(member)) for name, member in value.items())
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    return value

"""Reads Java's properties format, in which RocketMQ's ``broker.conf`` is written.

Comments start with ``#`` or ``!``; a key ends at ``=``, ``:`` or a blank; a backslash at the end joins the next line, and
elsewhere escapes the character after it (``\\t``, ``\\n``, ``\\r``, ``\\f``, ``\\uXXXX``, or the character itself).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import attrs

from flintmq.config.errors import ConfigError

PROPERTIES_MAX_CHARS: Final = 1024 * 1024
"""Maximum length of the text of a properties file; no configuration is nearly as long."""

_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


@attrs.frozen
class Property:
    """A key and its value in a file of Java's ``.properties`` format, with the line number for error messages."""

    key: str
    """Key of the property, with its escapes replaced."""
    value: str
    """Value of the property, with its escapes replaced. Blanks at the end are kept, as in Java."""
    line: int
    """Number of the line that contains the property's key, counted from 1."""


def parse_properties(text: str, *, file: str | None = None) -> list[Property]:
    """Return the entries of a properties file in order, including those with repeated keys.

    Args:
        text: the content of the file.
        file: the name of the file in errors; None for no name.

    Raises:
        ConfigError: a ``\\u`` escape is malformed, or the text is longer than 1 Mi characters.
    """
    if len(text) > PROPERTIES_MAX_CHARS:
        raise ConfigError(f"the properties are larger than {PROPERTIES_MAX_CHARS} characters", file=file)
    found = []
    for line, logical in _logical_lines(text.removeprefix("\ufeff")):
        entry = _ENTRY.fullmatch(logical)
        assert entry is not None
        try:
            found.append(Property(_unescaped(entry[1]), _unescaped(entry[2]), line))
        except ConfigError as error:
            raise ConfigError(error.message, file=file, line=line) from None
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    parts: list[str] = []
    first = 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join((*parts, line))
        parts = []
    if parts:
        yield first, "".join(parts)


def _unescaped(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        escape = found[1]
        if escape == "u":
            raise ConfigError("malformed \\uXXXX escape")
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _CONTROLS.get(escape, escape)

    # Each escape \uXXXX is one unit of UTF-16, so two escapes may be the surrogates of one character.
    units = _ESCAPE.sub(replace, text)
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

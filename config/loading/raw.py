"""Settings as they are written in a source: texts with their places, before they get the types of their fields.

A scalar stays text until it gets the type of its field. So ``name: on`` is a name and ``delete_when: 04`` is an hour, although
YAML would make a boolean and an integer of them. The same rules hold for files, the environment and the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.fields import Unit

OriginKind = Literal["default", "file", "environment", "command line"]


@attrs.frozen
class Origin:
    """The source of a value."""

    kind: OriginKind
    """Kind of the source."""
    place: str | None = None
    """Path of the file, or ``environment`` and the name of the variable; None for other kinds."""
    line: int | None = None
    """Line in the file, counted from 1; None for other kinds."""

    def __str__(self) -> str:
        text = self.place or self.kind
        return f"{text}:{self.line}" if self.line is not None else text

    def error(self, message: str, *, key: str | None = None, suggestion: str | None = None) -> ConfigError:
        """Return a :class:`ConfigError` that names this place."""
        file = None if self.kind == "default" else self.place or self.kind
        return ConfigError(message, key=key, file=file, line=self.line, suggestion=suggestion)


DEFAULT = Origin("default")
"""The origin of a value that no source sets."""


@attrs.frozen
class RawScalar:
    """A scalar value as text."""

    text: str
    """Text as it is written, without quotes."""
    origin: Origin = DEFAULT
    """Source of the text."""
    quoted: bool = False
    """Whether the text is in quotes. Such a text is never null."""
    plain: Unit | None = None
    """Unit of a plain integer; None for the unit of the field."""

    @property
    def is_null(self) -> bool:
        """Return whether the text is empty, ``~`` or ``null``, without quotes."""
        return not self.quoted and self.text in ("", "~", "null", "Null", "NULL")


@attrs.frozen
class RawList:
    """A list of values."""

    items: tuple[RawNode, ...]
    """The values, each with its line."""
    origin: Origin = DEFAULT
    """Source and first line of the list."""


@attrs.frozen
class RawMapping:
    """A mapping of names to values."""

    entries: Mapping[str, RawNode] = attrs.field(factory=dict)
    """Values, keyed by name. The origin of each has the line of its key."""
    origin: Origin = DEFAULT
    """Source and first line of the mapping."""

    def merged(self, other: RawMapping) -> RawMapping:
        """Return this mapping with the entries of ``other``. Mappings in both are merged; other values are replaced."""
        entries = dict(self.entries)
        for name, node in other.entries.items():
            mine = entries.get(name)
            both = isinstance(mine, RawMapping) and isinstance(node, RawMapping)
            entries[name] = mine.merged(node) if both else node  # type: ignore[union-attr, arg-type]
        return RawMapping(entries, self.origin if self.origin.kind != "default" else other.origin)


RawNode = RawScalar | RawList | RawMapping


def nest(path: tuple[str, ...], node: RawNode) -> RawMapping:
    """Return a node inside nested mappings; the path ``("a", "b")`` gives ``{a: {b: node}}``."""
    for name in reversed(path):
        node = RawMapping({name: node}, node.origin)
    assert isinstance(node, RawMapping)
    return node

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
    """The source of a setting's value: a default, a file, the environment or the command line."""

    kind: OriginKind
    """Kind of the source that a value comes from."""
    place: str | None = None
    """Path of the file, or ``environment`` and the name of the variable, that a value comes from; None for other sources."""
    line: int | None = None
    """Line of the value in its file, counted from 1; None if the source is not a file."""

    def __str__(self) -> str:
        text = self.place or self.kind
        return f"{text}:{self.line}" if self.line is not None else text

    def error(self, message: str, *, key: str | None = None, suggestion: str | None = None) -> ConfigError:
        """Return a :class:`ConfigError` that names the place where the value is set."""
        file = None if self.kind == "default" else self.place or self.kind
        return ConfigError(message, key=key, file=file, line=self.line, suggestion=suggestion)


DEFAULT = Origin("default")
"""The origin of a value that no source sets, so that the default is used."""


@attrs.frozen
class RawScalar:
    """A scalar value of a setting, as the text that was written in the source."""

    text: str
    """Text of the value as written, without quotes."""
    origin: Origin = DEFAULT
    """Source of the value's text."""
    quoted: bool = False
    """Whether the value is written in quotes. A quoted value is never null."""
    plain: Unit | None = None
    """Unit of the value if it is written as a number only; None for the unit that the setting's field declares."""

    @property
    def is_null(self) -> bool:
        """Return whether the text of a setting stands for null: it is empty, ``~`` or ``null``, without quotes."""
        return not self.quoted and self.text in ("", "~", "null", "Null", "NULL")


@attrs.frozen
class RawList:
    """A list of values, as written in a source of settings."""

    items: tuple[RawNode, ...]
    """The values of the list, each with its line."""
    origin: Origin = DEFAULT
    """Source of the list, with its first line."""


@attrs.frozen
class RawMapping:
    """A mapping of names to values, as written in a source of settings."""

    entries: Mapping[str, RawNode] = attrs.field(factory=dict)
    """Values of the mapping, keyed by name. The origin of each value has the line of its name."""
    origin: Origin = DEFAULT
    """Source of the mapping, with its first line."""

    def merged(self, other: RawMapping) -> RawMapping:
        """Return this mapping with the entries of ``other``. If a name has a mapping as its value in this mapping and in
        ``other``, the two values are merged; any other value is replaced by the value in ``other``."""
        entries = dict(self.entries)
        for name, node in other.entries.items():
            mine = entries.get(name)
            both = isinstance(mine, RawMapping) and isinstance(node, RawMapping)
            entries[name] = mine.merged(node) if both else node  # type: ignore[union-attr, arg-type]
        return RawMapping(entries, self.origin if self.origin.kind != "default" else other.origin)


RawNode = RawScalar | RawList | RawMapping


def nest(path: tuple[str, ...], node: RawNode) -> RawMapping:
    """Return nested mappings that contain a value at a path: the path ``("a", "b")`` gives ``{a: {b: node}}``."""
    for name in reversed(path):
        node = RawMapping({name: node}, node.origin)
    assert isinstance(node, RawMapping)
    return node

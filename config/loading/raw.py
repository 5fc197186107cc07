"""Settings as they were written: text with its place, before any model gives it a type.

A scalar stays text until the field it is for says what it is. So ``name: on`` is a name and ``delete_when: 04`` an hour,
whatever YAML would have made of them, and the environment and the command line are read by the same rules as a file.
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
    """Where a value comes from."""

    kind: OriginKind
    """The layer."""
    place: str | None = None
    """The file, or ``environment`` and the variable's name."""
    line: int | None = None
    """1-based line in a file."""

    def __str__(self) -> str:
        text = self.place or self.kind
        return f"{text}:{self.line}" if self.line is not None else text

    def error(self, message: str, *, key: str | None = None, suggestion: str | None = None) -> ConfigError:
        """Return a :class:`ConfigError` that names this place."""
        file = None if self.kind == "default" else self.place or self.kind
        return ConfigError(message, key=key, file=file, line=self.line, suggestion=suggestion)


DEFAULT = Origin("default")
"""The origin of a default."""


@attrs.frozen
class RawScalar:
    """One text."""

    text: str
    """As written, without quotes."""
    origin: Origin = DEFAULT
    """Where."""
    quoted: bool = False
    """Quoted text is never null."""
    plain: Unit | None = None
    """What a plain integer means; None where it is what the field says."""

    @property
    def is_null(self) -> bool:
        """Return true for an empty text, ``~`` and ``null``."""
        return not self.quoted and self.text in ("", "~", "null", "Null", "NULL")


@attrs.frozen
class RawList:
    """Several values in order."""

    items: tuple[RawNode, ...]
    """The values, each with its own line."""
    origin: Origin = DEFAULT
    """Where it starts."""


@attrs.frozen
class RawMapping:
    """Named values."""

    entries: Mapping[str, RawNode] = attrs.field(factory=dict)
    """The values; each one's origin is the line of its key."""
    origin: Origin = DEFAULT
    """Where it starts."""

    def merged(self, other: RawMapping) -> RawMapping:
        """Return this mapping with ``other`` laid over it: mappings are merged, everything else is replaced."""
        entries = dict(self.entries)
        for name, node in other.entries.items():
            mine = entries.get(name)
            both = isinstance(mine, RawMapping) and isinstance(node, RawMapping)
            entries[name] = mine.merged(node) if both else node  # type: ignore[union-attr, arg-type]
        return RawMapping(entries, self.origin if self.origin.kind != "default" else other.origin)


RawNode = RawScalar | RawList | RawMapping


def nest(path: tuple[str, ...], node: RawNode) -> RawMapping:
    """Return ``node`` under nested mappings: ``("a", "b")`` gives ``{a: {b: node}}``."""
    for name in reversed(path):
        node = RawMapping({name: node}, node.origin)
    assert isinstance(node, RawMapping)
    return node

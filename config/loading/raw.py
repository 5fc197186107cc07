"""Settings as they were written: text with its place, before any model gives it a type.

A scalar stays text until the field it is for says what it is. So ``name: on`` is a name and ``delete_when: 04`` an hour,
whatever YAML would have made of them, and the environment and the command line are read by the same rules as a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import attrs

from flintmq.config.errors import ConfigError

OriginKind = Literal["default", "file", "environment", "command line"]


@attrs.frozen
class Origin:
    """Where a value comes from."""

    kind: OriginKind
    """The layer."""
    file: str | None = None
    """The file, when it is one."""
    line: int | None = None
    """1-based line in ``file``."""
    name: str | None = None
    """The environment variable, when it is one."""

    @property
    def place(self) -> str | None:
        """Return what an error names before the line; None for a default."""
        if self.kind == "file":
            return self.file
        if self.kind == "environment":
            return f"environment {self.name}" if self.name else "environment"
        return None if self.kind == "default" else self.kind

    def __str__(self) -> str:
        place = self.place or self.kind
        return f"{place}:{self.line}" if self.line is not None else place

    def error(self, message: str, *, key: str | None = None, suggestion: str | None = None) -> ConfigError:
        """Return a :class:`ConfigError` that names this place."""
        return ConfigError(message, key=key, file=self.place, line=self.line, suggestion=suggestion)


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


@attrs.frozen
class RawSection:
    """A section that no built-in model describes: a plugin's, or a mistake."""

    name: str
    """Its dotted name: ``my_plugin``, ``flush.my_strategy``."""
    values: RawMapping
    """What it holds."""

    @property
    def origin(self) -> Origin:
        """Return the origin of its first value."""
        return self.values.origin

    def leaves(self) -> Iterator[tuple[str, RawNode]]:
        """Yield every scalar and list with its dotted name."""
        pending: list[tuple[str, RawNode]] = [(self.name, self.values)]
        while pending:
            name, node = pending.pop()
            if isinstance(node, RawMapping):
                pending.extend((f"{name}.{key}", child) for key, child in reversed(list(node.entries.items())))
            else:
                yield name, node


def nest(path: tuple[str, ...], node: RawNode) -> RawMapping:
    """Return ``node`` under nested mappings: ``("a", "b")`` gives ``{a: {b: node}}``."""
    for name in reversed(path):
        node = RawMapping({name: node}, node.origin)
    assert isinstance(node, RawMapping)
    return node
